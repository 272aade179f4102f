"""How the compiled writer of JSON lines is told to write a field."""

from __future__ import annotations

from typing import Final

NUMBER, CHOICE, TEXT, BODY_TEXT, BASE64, HEX, HOST, MESSAGE_ID, PROPERTIES, KEYS = range(10)
"""How a field is written, and its two numbers in a row: a number; the number of a text that is JSON already; where
bytes begin and how many there are, -1 for null; where a host begins; where a host begins and a physical offset; where a
property block, or the text of keys, begins and its length."""
PROPERTIES_MAX: Final = 64
"""Names of one message that are compared with each other; one with more is left to the plain writer."""
LONGEST_ESCAPE: Final = 6
"""Bytes of text that one byte of a record can become."""
