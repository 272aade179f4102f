"""Sends the messages of stores into a running cluster: their choice, their targets, and the state for a second run.

Stores are only read, through the scan's judge. The cluster is spoken to through `remoting` alone.
"""
