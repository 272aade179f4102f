"""The timer as a broker has it after load: the end of its log, the units of the slots, and its next messages.

Broker: `TimerMessageStore#recover`, `#recoverAndRevise`, `#reviseQueueOffset`, `TimerWheel#reviseSlot`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final, NamedTuple

from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.reading.reader import Reader
from rmqtool.engine.reading.record import Record, decode_record
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.formats import timer
from rmqtool.formats.properties import TIMER_TOPIC
from rmqtool.sides.timer.files import UNIT_STRUCT, TimerUnit, read_slots, read_units
from rmqtool.store.directory import Segment, Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.sizes import infer_file_size
from rmqtool.store.source import read_range
from rmqtool.store.view import Entry

NO_POSITION: Final = -1
WHEEL: Final = "timerwheel"


class LoadedSlot(NamedTuple):
    """The second (or other tick) of a slot, and its last unit."""

    due_tick: int
    last_position: int


class ChainEnd(NamedTuple):
    """Where a chain of units ends before its first unit, and why."""

    position: int
    reason: str


@dataclass(frozen=True)
class TimerFiles:
    """The timer's files as they lie there.

    Attributes:
        wheel: the file that a load reads: the newest snapshot, or `timerwheel`.
        log: its files in order.
        flushed_position: end of the flushed log, by the snapshot's name or the checkpoint.
    """

    wheel: Entry | None
    log: tuple[Segment, ...]
    log_file_size: int
    check: timer.TimerCheck
    check_entry: Entry | None
    flushed_position: int

    @property
    def start(self) -> int:
        """Position of the first byte of the log."""
        return self.log[0].start if self.log else 0

    def segment_at(self, position: int) -> Segment | None:
        """The file that holds a position; None where there is none."""
        return next((segment for segment in reversed(self.log) if segment.start <= position < segment.end), None)


def timer_files(store: Store) -> TimerFiles:
    """The timer's files."""
    entries = store.files.get(FileKind.TIMER_LOG, ())
    log = tuple(sorted((Segment(entry, int(entry.name)) for entry in entries), key=lambda segment: segment.start))
    check_entry = store.first(FileKind.TIMER_CHECK)
    check = timer.TimerCheck()
    if check_entry is not None:
        with closing(store.view.open(check_entry.path)) as source:
            check = timer.parse_check(read_range(source, 0, timer.CHECK_SIZE))
    wheels = {entry.name: entry for entry in store.files.get(FileKind.TIMER_WHEEL, ())}
    snapshots = {int(number): wheels[name] for name in wheels if (number := name.partition(".")[2]).isdigit()}
    wheel, flushed_position = wheels.get(WHEEL), check.flushed_position
    if snapshots:
        flushed_position = max(snapshots)
        wheel = snapshots[flushed_position]
    size = store.settings.timer_log_file_size or infer_file_size(log) or timer.DEFAULT_LOG_FILE_SIZE
    return TimerFiles(wheel, log, size, check, check_entry, flushed_position)


@dataclass(frozen=True)
class LoadedTimer:
    """The timer after a load.

    Attributes:
        log_end: position after the last unit that the load keeps.
        slots: by their number; only those that lead to a unit.
        queue_offset: next message of the timer's topic that comes into the log.
        logged_offset: queue offset after the message of the log's last unit: those from `queue_offset` up to it come
            into the log a second time.
        precision_ms: milliseconds of a tick.
    """

    files: TimerFiles
    log_end: int
    slots: Mapping[int, LoadedSlot]
    queue_offset: int
    logged_offset: int
    precision_ms: int
    _open: OpenFiles

    @property
    def read_tick(self) -> int:
        """The first tick that is not wholly delivered."""
        return self.files.check.read_timestamp_ms // self.precision_ms

    def pending_slots(self) -> list[LoadedSlot]:
        """Slots whose time has not been delivered, by time."""
        return sorted(slot for slot in self.slots.values() if slot.due_tick >= self.read_tick)

    def unit_at(self, position: int) -> TimerUnit | None:
        """The bytes at a position of the log as a unit; None where the log has none there."""
        segment = self.files.segment_at(position)
        if segment is None:
            return None
        raw = self._open.read(segment.path, position - segment.start, timer.UNIT_SIZE)
        return TimerUnit(position, *UNIT_STRUCT.unpack(raw)) if len(raw) == timer.UNIT_SIZE else None

    def chain(self, slot: LoadedSlot) -> tuple[list[TimerUnit], ChainEnd | None]:
        """The units of a slot, the oldest first, and where the way back to the first one breaks off."""
        units: list[TimerUnit] = []
        broken = None
        position = slot.last_position
        before = self.log_end
        while position != NO_POSITION:
            if position >= before:
                is_after_end = before == self.log_end
                reason = "after the end of the log" if is_after_end else "not before the unit that leads to it"
                broken = ChainEnd(position, reason)
                break
            unit = self.unit_at(position)
            if unit is None or not unit.is_valid:
                broken = ChainEnd(position, "not a unit" if unit is not None else "outside of the log")
                break
            if unit.due_timestamp_ms // self.precision_ms != slot.due_tick:
                broken = ChainEnd(position, "a unit of another time")
                break
            units.append(unit)
            before, position = position, unit.previous_position
        units.reverse()
        return units, broken


def load_timer(files: TimerFiles, reader: Reader, queue: Queue) -> LoadedTimer:
    """The timer as a load makes it of the files, the commit log and the queue of the timer's topic."""
    view = reader.store.view
    slots: dict[int, LoadedSlot] = {}
    if files.wheel is not None and files.wheel.size == timer.WHEEL_SIZE:
        with closing(view.open(files.wheel.path)) as source:
            slots = {slot.number: LoadedSlot(slot.due_tick, slot.last_position) for slot in read_slots(source)}
    start = max(0, files.flushed_position - (files.log_file_size if files.log else 0))
    first_file = max((number for number, segment in enumerate(files.log) if segment.start <= start), default=0)
    log_end, last = files.start, None
    recent = []
    for segment in files.log[first_file:]:
        log_end = segment.start
        is_cut = False
        with closing(view.open(segment.path)) as source:
            for unit in read_units(source, segment.start):
                if isinstance(unit, TimerUnit):
                    recent.append((unit.due_timestamp_ms, unit.position))
                    log_end, last = unit.position + timer.UNIT_SIZE, unit
                    continue
                is_cut = not unit.is_blank
                log_end = segment.end if unit.is_blank else unit.position
                break
            else:
                is_cut = log_end < segment.end
        if is_cut:
            break
    # Milliseconds of a tick: the number that makes most slots those of their last units.
    due_by_position = {position: due_ms for due_ms, position in recent}
    votes: Counter[int] = Counter()
    for slot in slots.values():
        due = due_by_position.get(slot.last_position)
        if due and slot.due_tick > 0 and due % slot.due_tick == 0:
            votes[due // slot.due_tick] += 1
    precision_ms = votes.most_common(1)[0][0] if votes else timer.DEFAULT_PRECISION_MS
    for due_ms, position in recent:
        tick = due_ms // precision_ms
        slots[tick % timer.SLOT_COUNT] = LoadedSlot(tick, position)
    record = timer_record(reader, last) if last is not None else None
    logged = files.check.queue_offset if record is None else record.queue_offset + 1
    first, logged = (
        min(max(offset, queue.min_queue_offset), queue.max_queue_offset)
        for offset in (min(logged, files.check.master_queue_offset), logged)
    )
    return LoadedTimer(files, log_end, slots, first, logged, precision_ms, OpenFiles(view))


def timer_record(reader: Reader, unit: TimerUnit) -> Record | None:
    """The record that a unit leads to; None where a broker gets none."""
    place = reader.log.selectable(unit.physical_offset, unit.record_size)
    if place is None or unit.physical_offset < reader.log.minimum:
        return None
    record = decode_record(reader.log, place)
    return record if record is not None and record.size == unit.record_size else None


def timer_queue(reader: Reader) -> Queue:
    """The queue of the messages that wait for their time.

    Raises:
        UnsupportedError: the queues are kept in a database.
    """
    return reader.queue(TIMER_TOPIC, 0)
