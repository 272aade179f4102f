"""Splits of work on Spark: the data source, the jobs, the session.

The only room that imports pyspark. It never holds a rule of its own: what it runs on many machines is what the rooms
below run on one.
"""
