"""Writes a new store with chosen messages of other stores: a part of one, or several joined into one.

The stores are only read. The new log is written here; queues, index and checkpoint are those that `repair` builds from
it, so that they are what `rebuild` would make.
"""
