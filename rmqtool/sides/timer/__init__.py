"""The timer of 5.x brokers: wheel, log and checkpoint, their state after a load, waiting messages, and the checks."""
