"""Side state of a broker besides log, queues and index: the files of each kind, how a load treats them,
and its check.

`kinds.SIDES` has a row for each: which files it has, which versions read them, and which commands look into them.
Whatever reads raises UnreadableError where the disk does not give a file; docstrings name other errors only.
"""
