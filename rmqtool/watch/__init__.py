"""Watches a store that a broker is writing to: flushed parts are checked as it grows, and lags are measured.

The checks are those of `verify`, over ranges. It never writes to the store and takes no lock.
"""
