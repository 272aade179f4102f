"""Builds consume queues and index from the log into a directory of their own; `build.build` is the entrance."""
