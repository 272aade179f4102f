"""What to do about a damaged store: plan, apply, undo.

Recover, rebuild and salvage are three planners over one machine that applies and takes back. Nothing is written that is
not a step of a plan, and no plan is made from a scan that did not cover what it changes.
"""
