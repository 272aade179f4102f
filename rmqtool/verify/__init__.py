"""Findings about a store, out of one catalog.

`run` calls every check in order: `survey` reads queues and index alone, `match` compares the log with them split by
split, `files` looks at whole files. Every check is a map and an associative merge. Damage is data here, never an
exception, and a check never repairs.
"""
