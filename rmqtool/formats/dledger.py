"""The log of DLedger: a header before each message record, and an index of fixed units.

Broker: `DLedgerEntryCoder`, `DLedgerMmapFileStore`, `DLedgerCommitLog`.
"""

from __future__ import annotations

from typing import Final

from construct import Int32sb, Int64sb, Struct

from rmqtool.formats.layout import Format

ENTRY: Final = Format(
    "dledger-entry",
    "Header of an entry in a DLedger log",
    "DLedgerEntryCoder#encode",
    Struct(
        "magic" / Int32sb * "1 a message, 2 no operation, 3 a change of the group; -1 ends the file",
        "size" / Int32sb * "header and body; with magic -1: bytes up to the end of the file",
        "index" / Int64sb * "number of the entry, counted from 0 without gaps",
        "term" / Int64sb * "term of the leader that wrote it",
        "position" / Int64sb * "of this header in the log",
        "channel" / Int32sb * "unused",
        "chain_crc" / Int32sb * "0 in what brokers write",
        "body_crc" / Int32sb * "0 in what brokers write",
        "body_length" / Int32sb * "bytes after the header",
    ),
    "A message record follows, whose physical offset is the header's position plus 48. "
    "Consume queues and the broker's index point to the record.",
)
INDEX_UNIT: Final = Format(
    "dledger-index-unit",
    "Unit of the index of a DLedger log",
    "DLedgerMmapFileStore#appendAsLeader",
    Struct(
        "magic" / Int32sb * "as in the entry",
        "position" / Int64sb * "of the entry's header",
        "size" / Int32sb * "of the entry",
        "index" / Int64sb * "of the entry; its unit is at 32 times this number",
        "term" / Int64sb * "of the entry",
    ),
)

ENTRY_SIZE: Final = 48
INDEX_UNIT_SIZE: Final = 32
INDEX_FILE_SIZE: Final = INDEX_UNIT_SIZE * 5 * 1024 * 1024
"""Bytes of each file of the index; no setting changes them."""
MESSAGE: Final = 1
KINDS: Final = (1, 2, 3)
END_OF_FILE: Final = -1
END_SIZE_MIN: Final = 8
assert (ENTRY.size, INDEX_UNIT.size) == (ENTRY_SIZE, INDEX_UNIT_SIZE)
