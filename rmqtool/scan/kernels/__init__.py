"""The compiled code of the scan and its checksum; what it computes is said by the plain readers.

No store is opened here, and nothing judged.
"""
