"""What a broker answers: pulls, queries by key, messages by offset; and what a store shows of itself."""
