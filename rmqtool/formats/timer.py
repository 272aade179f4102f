"""The timer's files: slots of the wheel, units of its log, its checkpoint.

Broker: `Slot`, `TimerWheel`, `TimerLog`, `TimerMessageStore#doEnqueue`, `TimerCheckpoint`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from construct import Int32sb, Int64sb, Struct

from rmqtool.formats.layout import Format

SLOT: Final = Format(
    "timerwheel-slot",
    "Timer wheel slot",
    "TimerWheel#putSlot",
    Struct(
        "due_tick" / Int64sb * "delivery time divided by timerPrecisionMs (1000 by default)",
        "first_position" / Int64sb * "of the slot's first unit in the timer log",
        "last_position" / Int64sb * "of the slot's last unit in the timer log, from which the broker reads backwards",
        "message_count" / Int32sb * "a unit that deletes counts -1; only for statistics",
        "magic" / Int32sb * "unused",
    ),
    "The wheel has 1,209,600 slots; a time's slot is its tick modulo that number. "
    "A slot counts only for the time that it names.",
)
UNIT: Final = Format(
    "timerlog-unit",
    "Timer log unit",
    "TimerMessageStore#doEnqueue",
    Struct(
        "size" / Int32sb * "always 52",
        "previous_position" / Int64sb * "of the previous unit of the same slot; -1 for none",
        "magic" / Int32sb * "1 always, + 2 roll (put into the timer again when due), + 4 delete another timer",
        "write_timestamp_ms" / Int64sb * "time at which the timer took the message, in whole ticks",
        "delay_ms" / Int32sb * "from that time to the delivery, or to the roll",
        "physical_offset" / Int64sb * "of the record in topic rmq_sys_wheel_timer",
        "record_size" / Int32sb * "of that record",
        "topic_hash" / Int32sb * "Java hash of the real topic; 0 without one",
        "reserved" / Int64sb * "0",
    ),
    "A broker reads the log only from slots, and on load from its last files.",
)
BLANK: Final = Format(
    "timerlog-blank",
    "Blank at the end of a timer log file",
    "TimerLog#append",
    Struct(
        "size" / Int32sb * "bytes up to the end of the file",
        "previous_position" / Int64sb * "0",
        "magic" / Int32sb * "-875286124",
    ),
    "Written where the file has no room for a unit and 16 more bytes.",
)
CHECK: Final = Format(
    "timercheck",
    "Timer checkpoint",
    "TimerCheckpoint#flush",
    Struct(
        "read_timestamp_ms" / Int64sb * "delivery time up to which all timers were delivered (lastReadTimeMs)",
        "flushed_position" / Int64sb * "end of the flushed timer log (lastTimerLogFlushPos)",
        "queue_offset" / Int64sb * "next message of rmq_sys_wheel_timer to put into the log (lastTimerQueueOffset)",
        "master_queue_offset" / Int64sb * "the same of the master; a broker never continues after it",
        "state_version" / Int64sb * "of the data version",
        "version_timestamp_ms" / Int64sb * "of the data version",
        "version_counter" / Int64sb * "of the data version",
    ),
    "The rest of the 4096 bytes is zero.",
)

SLOT_COUNT: Final = 2 * 604_800
SLOT_SIZE: Final = 32
UNIT_SIZE: Final = 52
BLANK_SIZE: Final = 16
CHECK_SIZE: Final = 56
CHECK_FILE_SIZE: Final = 4096
WHEEL_SIZE: Final = SLOT_COUNT * SLOT_SIZE
"""Bytes of a wheel: slots of two weeks, one a second."""
DEFAULT_LOG_FILE_SIZE: Final = 104_857_600
DEFAULT_PRECISION_MS: Final = 1000
BLANK_MAGIC: Final = -875286124
ROLL: Final = 2
DELETE: Final = 4
_SLOT: Final = struct.Struct(SLOT.struct_code)
_UNIT: Final = struct.Struct(UNIT.struct_code)
assert (SLOT.size, UNIT.size, BLANK.size, CHECK.size) == (SLOT_SIZE, UNIT_SIZE, BLANK_SIZE, CHECK_SIZE)


@dataclass(frozen=True)
class TimerCheck:
    """The fields of the timer's checkpoint; a missing or short file reads as zeros, as the broker reads it."""

    read_timestamp_ms: int = 0
    flushed_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    version_timestamp_ms: int = 0
    version_counter: int = 0


assert [field.name for field in fields(TimerCheck)] == [field.name for field in CHECK.fields]


def is_unit_magic(magic: int) -> bool:
    """True if a broker takes the bits for those of a unit (`TimerMessageStore#isMagicOK`)."""
    return 0 <= magic <= 0xF


def pack_slot(values: Sequence[int]) -> bytes:
    """A slot's bytes, of the fields in the order in which they are declared."""
    return _SLOT.pack(*values)


def pack_unit(values: Sequence[int]) -> bytes:
    """A unit's bytes, of the fields in the order in which they are declared."""
    return _UNIT.pack(*values)


def pack_blank(size: int) -> bytes:
    """The blank that ends a file of the log."""
    return bytes(BLANK.struct.build({"size": size, "previous_position": 0, "magic": BLANK_MAGIC}))


def parse_check(raw: bytes) -> TimerCheck:
    """Read the fields; bytes that are not there count as zero, for the broker's mapping extends the file."""
    values = CHECK.struct.parse(raw[:CHECK_SIZE].ljust(CHECK_SIZE, b"\0"))
    return TimerCheck(**{field.name: int(values[field.name]) for field in CHECK.fields})


def build_check(check: TimerCheck) -> bytes:
    """The whole file."""
    return bytes(CHECK.struct.build(vars(check))).ljust(CHECK_FILE_SIZE, b"\0")
