"""Predict a broker's next start: load, recovery and serving, simulated over a store view.

This room predicts and counts; it never changes a store and never recommends. The rules of a broker version come from
`engine.rules.versions`. Whatever reads raises UnreadableError where the disk does not give a file of the store, and
WriteError where the overlay has no room for a change; what follows a broker raises LoadFailure where that gives up.
Docstrings name other errors only.
"""
