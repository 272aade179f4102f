"""What each check of the log starts from: queues and index read alone, the options, what was read of each file."""
