"""Checksums of a record: over the body (always), and over the whole record (property `__CRC32#`, optional from 5.2.0).

Broker: `UtilAll#crc32`, `MessageDecoder#createCrc32`, `CommitLog.CRC32_RESERVED_LEN`.
"""

import zlib
from typing import Final

from rmqtool.formats.properties import RECORD_CRC

CRC_MASK: Final = 0x7FFFFFFF
DIGITS: Final = 10
PROPERTY_SIZE: Final = len(RECORD_CRC) + 1 + DIGITS + 1
"""The last bytes of a record that carries the property: name, 0x01, ten digits, 0x02."""
assert PROPERTY_SIZE == 20
_FITTING: Final = (*(bytes((byte,)) for byte in RECORD_CRC.encode() + b"\x01"), *[b"0123456789"] * DIGITS, b"\x02")
"""Allowed bytes at each position."""
_CONTINUATION_MAX: Final = 3
"""Bytes of a UTF-8 character after its first."""


def masked_crc(raw: bytes | memoryview) -> int:
    """CRC-32 with the top bit cleared, as the broker stores it; 0 for no bytes.

    It cannot be continued over further bytes, which would need the bit that is cleared.
    """
    return zlib.crc32(raw) & CRC_MASK


def record_crc_property(record_without: bytes) -> bytes:
    """The 20 bytes that follow the rest of the record."""
    return RECORD_CRC.encode() + b"\x01" + record_crc_digits(masked_crc(record_without)) + b"\x02"


def with_record_crc(record: bytes) -> bytes:
    """A record whose whole-record CRC, which it carries, is computed again."""
    rest = record[:-PROPERTY_SIZE]
    return rest + record_crc_property(rest)


def record_crc_digits(value: int) -> bytes:
    """The value in decimal, least significant digit first, padded with 0 to ten."""
    return str(value)[::-1].ljust(DIGITS, "0").encode("ascii")


def stored_record_crc(record: bytes) -> int | None:
    """The whole-record CRC that a record carries; None if it carries none."""
    block = record[-PROPERTY_SIZE:]
    name = RECORD_CRC.encode() + b"\x01"
    digits = block[len(name) : len(name) + DIGITS]
    if not block.startswith(name) or block[-1:] != b"\x02" or not digits.isdigit():
        return None
    return int(digits[::-1])


def record_crc_matches(record: bytes) -> bool | None:
    """True if the whole-record CRC is right; None if the record has none."""
    stored = stored_record_crc(record)
    return None if stored is None else stored == masked_crc(record[:-PROPERTY_SIZE])


def is_record_crc_lost(record: bytes) -> bool:
    """True if a whole-record CRC was overwritten: zeros replace some of its bytes, or bytes there are not text."""
    block = record[-PROPERTY_SIZE:]
    if 0 in block and all(byte == 0 or byte in fitting for byte, fitting in zip(block, _FITTING, strict=True)):
        return True
    return not block.isascii() and not _ends_in_text(block)


def _ends_in_text(block: bytes) -> bool:
    """True if bytes are UTF-8, of which the first character may begin before them."""
    started = next((at for at in range(_CONTINUATION_MAX) if block[at] & 0xC0 != 0x80), _CONTINUATION_MAX)
    try:
        block[started:].decode()
    except UnicodeDecodeError:
        return False
    return True
