"""The compiled code of the scan and its checksum; the plain readers define the results.

No store is opened here, and nothing judged.
"""
