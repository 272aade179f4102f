"""RocksDB databases of a store, read in a process of their own and through links, so that nothing in the store changes.

What their rows mean is said in `formats`.
"""
