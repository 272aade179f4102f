"""Carries any plan out safely: lock, journal, fence, steps, read back, undo. Decides nothing about a store."""
