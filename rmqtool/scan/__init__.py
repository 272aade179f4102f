"""Many records at once: a split of a byte source in, columns and findings out.

Two readers, a plain one and a compiled one, apply one rule table and are held equal by the tests. This room knows of
the store no more than the byte source, never looks for files, and needs bounded memory whatever a length field claims.
"""
