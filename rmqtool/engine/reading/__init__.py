"""A broker's responses to pulls, queries by key and messages by offset; and the summary of a store."""
