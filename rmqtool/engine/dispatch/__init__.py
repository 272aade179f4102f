"""Entries of log records in consume queues, extensions and index, and the writers of those files."""
