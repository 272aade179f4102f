"""The command line: one file per command, listed by hand in `command_list`, in rooms by purpose.

This room reads options and environment, opens stores, calls the rooms below and passes what they return to `report`.
It is the only room that wires other rooms together. It never decodes a byte and never judges a record.
"""
