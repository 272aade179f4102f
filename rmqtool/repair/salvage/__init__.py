"""Keeps what lies after damage inside the log: finds it, learns what was lost, bridges it, and hands over to recover.

Nothing here is written into a store: all of it ends in steps of a plan.
"""
