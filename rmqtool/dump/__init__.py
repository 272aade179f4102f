"""Rows of `dump`: the files that a path means, their rows, and the filter of a request.

Rows come from the readers of `scan` and `engine`; how they look is the job of `report`.
"""
