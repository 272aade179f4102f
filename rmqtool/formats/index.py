"""IndexFile: header, hash slots, entries; key texts and their hash.

Broker: `IndexHeader`, `IndexFile#putKey`, `IndexService#buildIndex`.
"""

from dataclasses import dataclass
from struct import Struct as NumberStruct
from typing import Final, Self

from construct import Int32sb, Int64sb, Struct

from rmqtool.formats.java_text import java_hash
from rmqtool.formats.layout import Format

HEADER: Final = Format(
    "index-header",
    "IndexFile header",
    "IndexHeader",
    Struct(
        "begin_timestamp_ms" / Int64sb * "store time of the first entry's record",
        "end_timestamp_ms" / Int64sb * "store time of the last entry's record",
        "begin_physical_offset" / Int64sb * "record of the first entry",
        "end_physical_offset" / Int64sb * "record of the last entry",
        "used_slot_count" / Int32sb * "slots in use (broker: hashSlotCount); some releases count wrongly",
        "next_entry_number"
        / Int32sb
        * "number of the next entry (broker: indexCount); starts at 1, entry 0 is never used",
    ),
)
HEADER_SIZE: Final = 40
assert HEADER.size == HEADER_SIZE
_HEADER_NUMBERS: Final = NumberStruct(HEADER.struct_code)


@dataclass(frozen=True)
class IndexHeader:
    """The numbers of a header, as `HEADER` declares them; times in ms."""

    begin_timestamp_ms: int = 0
    end_timestamp_ms: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    used_slot_count: int = 0
    next_entry_number: int = 1

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """The header at the start of some bytes; missing bytes of a short file count as zeros, as in a mapped file."""
        return cls(*_HEADER_NUMBERS.unpack(raw[:HEADER_SIZE].ljust(HEADER_SIZE, b"\0")))

    def build(self) -> bytes:
        """Its bytes."""
        return _HEADER_NUMBERS.pack(*vars(self).values())


SLOT: Final = Format(
    "index-slot",
    "IndexFile hash slot",
    "IndexFile#putKey",
    Struct("newest_entry" / Int32sb * "number of the newest entry of the chain, 0 for none"),
    "Slot s is at 40 + 4*s; a key's slot is its hash modulo the slot count.",
)
SLOT_SIZE: Final = 4

ENTRY: Final = Format(
    "index-entry",
    "IndexFile entry",
    "IndexFile#putKey",
    Struct(
        "key_hash" / Int32sb * "absolute value of the key text's Java hash",
        "physical_offset" / Int64sb * "where the record starts in the commit log",
        "time_delta_seconds" / Int32sb * "store time minus the start time in the header",
        "previous_entry" / Int32sb * "next older entry of the same slot, 0 ends the chain (broker: next index)",
    ),
    "Entry n is at 40 + 4*slots + 20*n.",
)
ENTRY_SIZE: Final = 20
assert ENTRY.size == ENTRY_SIZE

DEFAULT_SLOT_COUNT: Final = 5_000_000
DEFAULT_ENTRY_COUNT: Final = 20_000_000


def file_size(slot_count: int, entry_count: int) -> int:
    """Bytes of an index file (`IndexFile` constructor)."""
    return HEADER_SIZE + SLOT_SIZE * slot_count + ENTRY_SIZE * entry_count


def slot_position(slot: int) -> int:
    """File position of a slot."""
    return HEADER_SIZE + SLOT_SIZE * slot


def entry_position(number: int, slot_count: int) -> int:
    """File position of an entry."""
    return HEADER_SIZE + SLOT_SIZE * slot_count + ENTRY_SIZE * number


def key_hash(text: str) -> int:
    """Hash of a key text: the absolute Java hash, 0 where that has none (`IndexFile#indexKeyHashMethod`)."""
    value = abs(java_hash(text))
    return 0 if value == 1 << 31 else value


def key_text(topic: str, key: str) -> str:
    """Text that is hashed for a key or a unique key (`IndexService#buildKey`)."""
    return f"{topic}#{key}"


def tag_text(topic: str, tags: str) -> str:
    """Text that is hashed for a tag, from 5.4.0 on."""
    return f"{topic}#T#{tags}"
