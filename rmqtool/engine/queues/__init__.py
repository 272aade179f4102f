"""Every kind of consume queue as one class, `queue.Queue`: bounds, units, search by time, recovery.

A further kind is one module and one entry in `kinds.KINDS`.
"""
