"""How a broker appends: checks, encoding, the log, and dispatch right after it."""
