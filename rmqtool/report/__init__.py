"""Presentation of results: tables, JSON, JSON lines, CSV, annotated hex, progress.

Everything here draws what another room has already decided. It never opens a store and never changes a verdict.
Text that came out of a message is escaped here, so that no control code reaches a terminal.
"""
