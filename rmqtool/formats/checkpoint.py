"""The checkpoint: six numbers at the start of a 4096-byte file, no magic, no checksum.

Broker: `StoreCheckpoint`.
"""

from dataclasses import dataclass, fields
from typing import Final

from construct import Int64sb, Struct

from rmqtool.formats.layout import Format

FILE_SIZE: Final = 4096
LATEST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""

CHECKPOINT: Final = Format(
    "checkpoint",
    "StoreCheckpoint",
    "StoreCheckpoint#flush",
    Struct(
        "commitlog_timestamp_ms" / Int64sb * "store time of the last flushed record (physicMsgTimestamp)",
        "consumequeue_timestamp_ms" / Int64sb * "store time of the last record in the queues (logicsMsgTimestamp)",
        "index_timestamp_ms" / Int64sb * "end time of the last full index file (indexMsgTimestamp)",
        "master_flushed_offset" / Int64sb * "from 5.0.0",
        "confirm_physical_offset"
        / Int64sb
        * "from 5.1.1; outside controller mode the start of a record, not the log end",
        "consumequeue_physical_offset"
        / Int64sb
        * "from 5.5.0: start of the last record in the flushed queues (logicsPhysicalOffset)",
    ),
    "The rest of the 4096 bytes is zero. Fields that a version does not know are zero.",
)
FIELDS_SIZE: Final = 48
assert CHECKPOINT.size == FIELDS_SIZE


@dataclass(frozen=True)
class Checkpoint:
    """The six fields; a missing or short file reads as zeros, as the broker reads it."""

    commitlog_timestamp_ms: int = 0
    consumequeue_timestamp_ms: int = 0
    index_timestamp_ms: int = 0
    master_flushed_offset: int = 0
    confirm_physical_offset: int = 0
    consumequeue_physical_offset: int = 0


assert [field.name for field in fields(Checkpoint)] == [field.name for field in CHECKPOINT.fields]


def parse_checkpoint(raw: bytes) -> Checkpoint:
    """Read the fields; bytes that are not there count as zero, for the broker's mapping extends the file."""
    values = CHECKPOINT.struct.parse(raw[:FIELDS_SIZE].ljust(FIELDS_SIZE, b"\0"))
    return Checkpoint(**{field.name: int(values[field.name]) for field in CHECKPOINT.fields})


def build_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The whole file."""
    return bytes(CHECKPOINT.struct.build(vars(checkpoint))).ljust(FILE_SIZE, b"\0")


def impossible_fields(checkpoint: Checkpoint, log_end: int | None = None) -> list[str]:
    """Fields with a number that no broker writes.

    A version leaves those alone that it does not know (`StoreCheckpoint#flush`), so they may be of a newer one.

    Args:
        log_end: of a log without a record, which no offset is after; None where records tell what is possible.
    """
    names = []
    for name, value in vars(checkpoint).items():
        highest = None if log_end is None else LATEST_MS if name.endswith("_ms") else log_end
        if value < 0 or (highest is not None and value > highest):
            names.append(name)
    return names
