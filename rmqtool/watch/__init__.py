"""Watches a store that a broker is writing to: what has been flushed is checked as it grows, and lags are measured.

The checks are those of `verify`, over ranges. It never writes to the store and takes no lock.
"""
