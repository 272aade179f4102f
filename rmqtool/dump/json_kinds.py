"""Field kinds of the compiled writer of JSON lines."""

from __future__ import annotations

from typing import Final

NUMBER, CHOICE, TEXT, BODY_TEXT, BASE64, HEX, HOST, MESSAGE_ID, PROPERTIES, KEYS = range(10)
"""Kind of a field, with its two numbers in a row: a number; the number of a text that is JSON already; start and number
of bytes, -1 for null; start of a host; start of a host and a physical offset; start and length of a property block, or
of the text of keys.
"""
PROPERTIES_MAX: Final = 64
"""Names of one message that are compared with each other; one with more is left to the plain writer."""
LONGEST_ESCAPE: Final = 6
"""Bytes of text that one byte of a record can become."""
