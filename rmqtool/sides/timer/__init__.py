"""The timer of 5.x brokers: its wheel, log and checkpoint, what a load makes of them, what waits, and what is wrong."""
