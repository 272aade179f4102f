"""Sends the messages of stores into a running cluster: which ones, where to, and what a second run need not repeat.

Stores are only read, through the scan's judge. The cluster is spoken to through `remoting` alone.
"""
