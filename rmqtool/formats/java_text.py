"""Text as the broker's virtual machine sees it: UTF-8 decoding and `String.hashCode`.

Java's decoder replaces what is not UTF-8 by U+FFFD, as Python's does, with one difference: an encoded surrogate
(ED A0..BF, then a continuation byte or not) gives one replacement character in Java, and one per byte in Python.
"""

import re
from functools import lru_cache

_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()


def decode_java_utf8(raw: bytes) -> str:
    """Decode bytes as `new String(bytes, UTF_8)` does; never fails."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub(_REPLACEMENT, raw).decode("utf-8", "replace")


def java_hash(text: str) -> int:
    """`String.hashCode`: over UTF-16 code units, a signed 32-bit result."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for at in range(0, len(units), 2):
            value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


@lru_cache(1 << 12)
def java_hash_of_bytes(raw: bytes) -> int:
    """The hash of the text that bytes are decoded to; tags are few."""
    return java_hash(decode_java_utf8(raw))


def java_length(text: str) -> int:
    """Length in UTF-16 code units, as `String.length` counts it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2
