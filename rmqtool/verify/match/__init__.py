"""Compares the log with queues and index, one split of the log after the other."""
