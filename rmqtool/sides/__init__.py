"""What a broker keeps beside log, queues and index: of each kind, its files, what a load makes of them, and its check.

`kinds.SIDES` has a row for each: which files it has, which versions read them, and which commands look into them.
"""
