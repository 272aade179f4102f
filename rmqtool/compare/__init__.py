"""Differences of two stores, or of a store and a manifest of another.

Each part of the log is compared by itself and the outcomes are merged; memory does not grow with the log. This room
reads both sides, judges neither, and changes nothing.
"""
