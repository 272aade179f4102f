"""The tables of the data source: which columns and rows each has, and how its work is split into tasks.

What is here reads stores; it writes nothing.
"""
