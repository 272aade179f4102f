"""Writes a support bundle of a store without what customers wrote into it, and reads one on another machine.

The bundle holds a copy of the store in which bodies, keys, tags and property values are replaced by others of the same
length, with the checksums and hashes that give the same verdict. No room above needs to know of it.
"""
