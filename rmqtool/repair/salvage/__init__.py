"""Keeps messages after damage in the log: finds it, learns which are lost, bridges it, and hands over to recover.

Nothing here is written into a store: all of it ends in steps of a plan.
"""
