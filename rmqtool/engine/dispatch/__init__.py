"""What the records of the log put into consume queues, extensions and index, and how those files are written."""
