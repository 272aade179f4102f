"""Where bytes lie: the store view (list, stat, read a range), directories, file names, byte sources, lock, settings.

Everything above reads a store through this room. Files are opened read-only; nothing is decoded beyond what is needed
to tell one kind of file from another, and no judgement is made about a record.
"""
