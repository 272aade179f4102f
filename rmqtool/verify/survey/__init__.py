"""Input of each check of the log: queues and index read alone, the options, results of each file."""
