"""Carries any plan out safely: lock, journal, fence, steps, read back, undo. Decides nothing about a store.

Whatever reads raises UnreadableError, and whatever changes something WriteError, where the system refuses. Docstrings
name other errors, and these where they say more: what is left then, or that something else is wrong.
"""
