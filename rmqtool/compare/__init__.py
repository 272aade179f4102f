"""What is different: two stores, or a store and a manifest of another, compared with each other.

Each part of the log is compared by itself and the outcomes are merged; memory does not grow with the log. This room
reads both sides, judges neither, and changes nothing.
"""
