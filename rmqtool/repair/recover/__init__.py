"""Plans `recover`: what a crash leaves, repaired as far as the log proves it."""
