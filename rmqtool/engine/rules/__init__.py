"""Differences of broker versions, as data: the only place that compares versions."""
