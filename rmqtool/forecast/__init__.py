"""Predict a broker's next start: load, recovery and serving, simulated over a store view.

This room predicts and counts; it never changes a store and never recommends. The rules of a broker version come from
`engine.rules.versions`.
"""
