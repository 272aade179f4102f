"""Every kind of consume queue behind one protocol, `unit.Queue`: bounds, units, search by time, recovery.

A further kind is one module and one entry in `kinds.KINDS`.
"""
