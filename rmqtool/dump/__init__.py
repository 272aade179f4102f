"""What `dump` shows: which files a path means, their rows, and which rows a person asked for.

Rows come from the readers of `scan` and `engine`; how they look is the job of `report`.
"""
