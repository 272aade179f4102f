"""Slots and units as they stand in the timer's files; holes and unused slots are skipped.

Broker: `TimerWheel#getRawSlot`, `TimerMessageStore#recoverAndRevise`.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.formats import timer
from rmqtool.scan.blocks import last_data_end
from rmqtool.store.directory import Store
from rmqtool.store.source import ByteSource, read_range, read_salvaging

BLOCK_UNITS: Final = 8192
_SLOT: Final = Struct(timer.SLOT.struct_code)
UNIT_STRUCT: Final = Struct(timer.UNIT.struct_code)
_BLANK: Final = Struct(timer.BLANK.struct_code)


class Slot(NamedTuple):
    """A slot of the wheel that is in use; `number` is its place."""

    number: int
    due_tick: int
    first_position: int
    last_position: int
    message_count: int
    magic: int


class TimerUnit(NamedTuple):
    """A unit of the timer log; `position` is its place in the log, over all files."""

    position: int
    size: int
    previous_position: int
    magic: int
    write_timestamp_ms: int
    delay_ms: int
    physical_offset: int
    record_size: int
    topic_hash: int
    reserved: int

    @property
    def due_timestamp_ms(self) -> int:
        """When it is delivered, or put into the timer again."""
        return self.write_timestamp_ms + self.delay_ms

    @property
    def rolls(self) -> bool:
        """True if the message is put into the timer again when its time comes."""
        return bool(self.magic & timer.ROLL)

    @property
    def deletes(self) -> bool:
        """True if the message removes another timer; a broker checks that only of a unit that does not roll."""
        return bool(self.magic & timer.DELETE)

    @property
    def is_valid(self) -> bool:
        """True if a load takes it for a unit."""
        return self.size == timer.UNIT_SIZE and timer.is_unit_magic(self.magic)


class NotAUnit(NamedTuple):
    """A range of a file where units should be: the blank that ends the file, or bytes that are none."""

    position: int
    length: int
    is_blank: bool


def read_slots(source: ByteSource) -> Iterator[Slot]:
    """The slots of a wheel that are not zero; unreadable bytes count as zeros."""
    whole = source.size // timer.SLOT_SIZE * timer.SLOT_SIZE
    done = 0
    for first, stop in source.extents(0, whole):
        for at, block in _blocks(
            source, max(done, first // timer.SLOT_SIZE * timer.SLOT_SIZE), min(whole, stop), timer.SLOT_SIZE
        ):
            for number, values in enumerate(_SLOT.iter_unpack(block), at // timer.SLOT_SIZE):
                if any(values):
                    yield Slot(number, *values)
            done = at + len(block)


def read_units(source: ByteSource, start: int = 0) -> Iterator[TimerUnit | NotAUnit]:
    """Units of a file of the log, up to its last byte that is not zero.

    Args:
        start: position of the file's first byte in the log.
    """
    end = last_data_end(source, 0, source.size)
    bad_from: int | None = None
    for at, block in _blocks(source, 0, min(source.size // timer.UNIT_SIZE * timer.UNIT_SIZE, end), timer.UNIT_SIZE):
        for position, values in enumerate(UNIT_STRUCT.iter_unpack(block)):
            here = at + position * timer.UNIT_SIZE
            unit = TimerUnit(start + here, *values)
            is_blank = unit.magic == timer.BLANK_MAGIC and unit.size == source.size - here
            if (unit.is_valid or is_blank) and bad_from is not None:
                yield NotAUnit(start + bad_from, here - bad_from, is_blank=False)
                bad_from = None
            if is_blank:
                yield NotAUnit(unit.position, unit.size, is_blank=True)
                return
            if unit.is_valid:
                yield unit
            elif bad_from is None:
                bad_from = here
    whole = -(-min(source.size // timer.UNIT_SIZE * timer.UNIT_SIZE, end) // timer.UNIT_SIZE) * timer.UNIT_SIZE
    if bad_from is None and whole < end:
        tail = read_range(source, whole, timer.BLANK_SIZE)
        values = _BLANK.unpack(tail) if len(tail) == timer.BLANK_SIZE else (0, 0, 0)
        if values[2] == timer.BLANK_MAGIC and values[0] == source.size - whole:
            yield NotAUnit(start + whole, values[0], is_blank=True)
            return
        bad_from = whole
    if bad_from is not None:
        yield NotAUnit(start + bad_from, max(end, whole) - bad_from, is_blank=False)


def _blocks(source: ByteSource, start: int, stop: int, unit: int) -> Iterator[tuple[int, bytearray]]:
    """Blocks of whole units, the last one up to the unit that holds the stop."""
    step = BLOCK_UNITS * unit
    for at in range(start, stop, step):
        block = bytearray(min(step, -(-(stop - at) // unit) * unit))
        read_salvaging(source, at, memoryview(block))
        yield at, block


def is_timer_checked(store: Store, rules: BrokerRules) -> bool:
    """True if the timer can be checked: its messages are found through a queue that is made of files."""
    return rules.timer and store.settings.runs_timer and store.queue_kind == "file" and bool(store.commitlog)
