"""The compiled code of the scan and its checksum; what it computes is said by the plain readers.

Nothing is opened or judged here.
"""
