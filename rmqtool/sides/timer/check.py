"""Checks the timer of 5.x brokers: lengths, slots, chains of units, their records, and what waits outside of them.

What a load repairs by itself is no finding: a wheel that is behind its log, for instance.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final

import numpy as np

from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.queues.unit import QueueUnit
from rmqtool.engine.reading.reader import Reader, open_reader
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.findings.account import Account
from rmqtool.findings.finding import REBUILD_TIMER, Finding
from rmqtool.findings.registry import finding
from rmqtool.formats import timer
from rmqtool.formats.java_text import java_hash
from rmqtool.formats.properties import REAL_TOPIC, TIMER_DELETE_KEY, TIMER_TOPIC
from rmqtool.sides.queue_scan import queue_units
from rmqtool.sides.timer.files import TimerUnit, is_timer_checked, read_slots, read_units
from rmqtool.sides.timer.loaded import (
    ChainEnd,
    LoadedSlot,
    LoadedTimer,
    TimerFiles,
    load_timer,
    timer_files,
    timer_queue,
    timer_record,
)
from rmqtool.sides.timer.waiting import TimerKey, roll_count, timer_due_ms, waiting_key
from rmqtool.store.config.config_json import TIMER_METRICS, ConfigState
from rmqtool.store.config.read_config import read_config
from rmqtool.store.databases.rocksdb_files import is_rocksdb_used
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind

_KINDS: Final = (FileKind.TIMER_WHEEL, FileKind.TIMER_LOG)
_LOG: Final = "timerlog"
_CHECK: Final = "config/timercheck"


def timer_findings(store: Store, rules: BrokerRules, account: Account) -> Iterator[Finding]:
    """All findings about the timer, in no order; none for a store that has none."""
    used = [entry for kind in _KINDS for entry in store.files.get(kind, ())]
    if not (used or (TIMER_TOPIC, 0) in store.queues) or not is_timer_checked(store, rules):
        return
    for entry in used:
        account.file(entry.path, entry.size).checked += entry.size
    try:
        yield from _metrics_findings(store)
        files = timer_files(store)
        lengths = list(_lengths(store, files))
        yield from lengths
        if lengths:
            return  # a broker does not start, and nothing else can be read as it would
        with open_reader(store, rules) as reader:
            queue = timer_queue(reader)
            yield from _check_findings(files, queue)
            if queue.max_queue_offset and not is_rocksdb_used(store.files.get(FileKind.ROCKSDB, ())):
                yield from _missing_files(files, queue)
            loaded = load_timer(files, reader, queue)
            yield from _wheel_findings(store, loaded)
            yield from _UnitChecks(store, loaded, reader, queue).findings()
    except (UnreadableError, UnsupportedError) as error:
        yield finding("store.unreadable", _LOG, str(error))


def _metrics_findings(store: Store) -> Iterator[Finding]:
    """A broker does not start where neither the statistics nor their backup can be read."""
    metrics = read_config(store.view, TIMER_METRICS)
    if metrics.state is ConfigState.BROKEN and metrics.is_backup_broken:
        yield finding("config.unreadable", TIMER_METRICS, "; ".join(metrics.problems), repair=REBUILD_TIMER)


def _lengths(store: Store, files: TimerFiles) -> Iterator[Finding]:
    for entry in store.files.get(FileKind.TIMER_WHEEL, ()):
        if entry.size not in (0, timer.WHEEL_SIZE) and not entry.name.endswith(".tmp"):
            yield _wrong_size(entry.path, entry.size, timer.WHEEL_SIZE)
    for segment in files.log:
        if segment.size != files.log_file_size:
            yield _wrong_size(segment.path, segment.size, files.log_file_size)


def _wrong_size(path: str, size: int, expected: int) -> Finding:
    text = f"{size} bytes long; a broker expects {expected}"
    return finding("timer.wrong-file-size", path, text, length=size, expected=str(expected), found=str(size))


def _missing_files(files: TimerFiles, queue: Queue) -> Iterator[Finding]:
    lost = [name for name, is_there in ((_LOG, files.log), (_CHECK, files.check_entry)) if not is_there]
    for name in lost:
        count = queue.max_queue_offset - queue.min_queue_offset
        yield finding("timer.missing-file", name, f"missing, though {count} messages came to {TIMER_TOPIC}")


def _check_findings(files: TimerFiles, queue: Queue) -> Iterator[Finding]:
    entry, check = files.check_entry, files.check
    if entry is None:
        return
    if entry.size != timer.CHECK_FILE_SIZE:
        expected = str(timer.CHECK_FILE_SIZE)
        yield finding("timer.bad-check", entry.path, f"{entry.size} bytes", expected=expected, found=str(entry.size))
    if queue.max_queue_offset and not any(vars(check).values()):
        yield finding("timer.bad-check", entry.path, f"all zero, though messages came to {TIMER_TOPIC}")
    log_end = files.log[-1].end if files.log else None  # that it is missing is a finding of its own
    limits = {
        "read_timestamp_ms": None,
        "flushed_position": log_end,
        "queue_offset": queue.max_queue_offset,
        "master_queue_offset": None,
    }
    for name, limit in limits.items():
        value = getattr(check, name)
        if value < 0 or (limit is not None and value > limit):
            text = f"{name} is {value}" + (f", which is after {limit}" if limit is not None and value >= 0 else "")
            yield finding("timer.bad-check", entry.path, text, file_position=timer.CHECK.position(name), length=8)


def _wheel_findings(store: Store, loaded: LoadedTimer) -> Iterator[Finding]:
    """Slots that are in no time's place, or lead to no place of the log."""
    wheel = loaded.files.wheel
    if wheel is None or wheel.size != timer.WHEEL_SIZE:
        return
    with closing(store.view.open(wheel.path)) as source:
        for slot in read_slots(source):
            if slot.due_tick < 0 or slot.due_tick % timer.SLOT_COUNT != slot.number:
                text = f"slot {slot.number} is of tick {slot.due_tick}, whose place is another one"
                at = slot.number * timer.SLOT_SIZE
                yield finding("timer.bad-slot", wheel.path, text, file_position=at, length=timer.SLOT_SIZE)


class _UnitChecks:
    """One pass over the log's units, then the chains of the slots that wait, then what is in none of them."""

    def __init__(self, store: Store, loaded: LoadedTimer, reader: Reader, queue: Queue) -> None:
        self._store, self._loaded, self._reader, self._queue = store, loaded, reader, queue
        self._records = array("q")
        self._pending = array("q")
        self._last_write_ms = 0
        self._cut_ticks: set[int] = set()

    def findings(self) -> Iterator[Finding]:
        yield from self._pass()
        reached = array("q")
        for slot in self._loaded.pending_slots():
            units, broken = self._loaded.chain(slot)
            reached.extend(unit.position for unit in units)
            if broken is not None:
                yield self._chain_finding(slot, broken, is_whole=not units)
            for unit in units:
                yield from self._record_findings(unit)
        yield from self._unreached(reached)
        yield from self._entered_again()
        yield from self._missing()

    def _chain_finding(self, slot: LoadedSlot, broken: ChainEnd, *, is_whole: bool) -> Finding:
        """The finding of a chain that breaks off; it may lead to a file that a broker deleted because of its age."""
        kind, reason = "timer.broken-chain", broken.reason
        if is_whole and broken.position >= self._loaded.log_end:
            kind = "timer.slot-ahead-of-log"
        elif 0 <= broken.position < self._loaded.files.start:
            kind, reason = (
                "timer.expired-record",
                "its file was deleted, as old files of the commit log were",
            )
            self._cut_ticks.add(slot.due_tick)
        due = slot.due_tick * self._loaded.precision_ms
        return self._at(kind, broken.position, f"the units due {due} lead to {broken.position}: {reason}")

    def _pass(self) -> Iterator[Finding]:
        """Every unit of every file; ranges that are none."""
        from_ms = self._loaded.read_tick * self._loaded.precision_ms
        files = self._loaded.files
        end = files.start
        for segment in files.log:
            with closing(self._store.view.open(segment.path)) as source:
                for unit in read_units(source, segment.start):
                    if isinstance(unit, TimerUnit):
                        end = unit.position + timer.UNIT_SIZE
                        self._records.append(unit.physical_offset)
                        self._last_write_ms = max(self._last_write_ms, unit.write_timestamp_ms)
                        if unit.due_timestamp_ms >= from_ms:
                            self._pending.append(unit.position)
                        continue
                    end = unit.position + unit.length
                    if not unit.is_blank and unit.position < files.flushed_position:
                        yield self._at("timer.bad-unit", unit.position, "not a unit", length=unit.length)
        if files.log and end < min(files.flushed_position, files.log[-1].end):
            text = f"zeros, though the timer log was flushed up to {files.flushed_position}"
            yield self._at("timer.bad-unit", end, text, length=files.flushed_position - end)

    def _record_findings(self, unit: TimerUnit) -> Iterator[Finding]:
        where = {"physical_offset": unit.physical_offset}
        if unit.physical_offset < self._reader.log.minimum:
            text = "its record was deleted with old files of the commit log"
            yield self._at("timer.expired-record", unit.position, text, **where)
            return
        record = timer_record(self._reader, unit)
        if record is None or record.topic != TIMER_TOPIC:
            topic = f"a record of {record.topic}" if record is not None else "no record"
            text = f"leads to {topic} in the commit log"
            yield self._at("timer.wrong-record", unit.position, text, **where)
            return
        out_ms = timer_due_ms(record.properties)
        is_idle = unit.deletes and TIMER_DELETE_KEY not in record.properties  # what a repair ends the log with
        if not (unit.rolls or is_idle) and out_ms is not None and not self._is_due(unit, out_ms):
            text = f"due {unit.due_timestamp_ms}, but its message {out_ms}"
            yield self._at("timer.wrong-record", unit.position, text, **where)
        elif unit.topic_hash != java_hash(record.properties.get(REAL_TOPIC, "")):
            yield self._at("timer.wrong-record", unit.position, "the hash is not that of its topic", **where)

    def _is_due(self, unit: TimerUnit, out_ms: int) -> bool:
        """Whether a unit is due when its message says, or later: a repair sets one that is late to a later time."""
        precision_ms = self._loaded.precision_ms
        return unit.due_timestamp_ms // precision_ms >= out_ms // precision_ms

    def _unreached(self, reached: Iterable[int]) -> Iterator[Finding]:
        """Units whose time is not over, to which no slot leads."""
        lost = np.setdiff1d(np.array(self._pending, "i8"), np.array(reached, "i8"))
        lost = lost[lost < self._loaded.log_end]
        for run in np.split(lost, np.flatnonzero(np.diff(lost) != timer.UNIT_SIZE) + 1):
            if len(run):
                length = len(run) * timer.UNIT_SIZE
                text = "no slot leads to it"
                yield self._at("timer.unreachable-unit", int(run[0]), text, length=length, count=len(run))

    def _entered_again(self) -> Iterator[Finding]:
        """Messages that a unit leads to, and that the broker takes from the queue once more."""
        first, check = self._loaded.queue_offset, self._loaded.files.check
        known = np.unique(np.array(self._records, "i8"))
        again = [entry.physical_offset for entry in queue_units(self._queue, first, self._loaded.logged_offset)]
        count = int(np.isin(np.array(again, "i8"), known).sum())
        if count:
            text = (
                f"queue_offset is {check.queue_offset} and master_queue_offset {check.master_queue_offset}, but the "
                f"timer log has messages up to {self._loaded.logged_offset - 1}: {count} come into it a second time"
            )
            place = timer.CHECK.position("master_queue_offset")
            yield finding("timer.check-behind", _CHECK, text, file_position=place, length=8, count=count)

    def _missing(self) -> Iterator[Finding]:
        """Messages that the timer counts as waiting, whose time is still to come, and that no unit leads to."""
        if not self._loaded.files.log:
            return
        known = np.unique(np.array(self._records, "i8"))
        check = self._loaded.files.check
        from_ms = max(check.read_timestamp_ms, check.version_timestamp_ms, self._last_write_ms)
        missing: list[tuple[QueueUnit, TimerKey, int]] = []
        for entry in queue_units(self._queue, self._queue.min_queue_offset, self._loaded.queue_offset):
            at = int(np.searchsorted(known, entry.physical_offset))
            if at < len(known) and known[at] == entry.physical_offset:
                continue
            read = self._key(entry)
            if read is not None and self._waits(read[0].due_timestamp_ms, from_ms):
                missing.append((entry, *read))
        last_rolls = self._last_rolls(missing)
        for entry, key, rolls in missing:
            if rolls >= last_rolls[key]:
                text = f"the message due {key.due_timestamp_ms} is in no unit of the timer log"
                yield finding(
                    "timer.missing-unit", _LOG, text, physical_offset=entry.physical_offset, length=entry.record_size,
                    topic=TIMER_TOPIC, queue_id=0, queue_offset=entry.queue_offset,
                )  # fmt: skip

    def _waits(self, due_ms: int, from_ms: int) -> bool:
        """Whether a message that no unit leads to was not due yet; its unit may be in a file that is gone."""
        return due_ms > from_ms or due_ms // self._loaded.precision_ms in self._cut_ticks

    def _last_rolls(self, missing: Sequence[tuple[QueueUnit, TimerKey, int]]) -> dict[TimerKey, int]:
        """How often messages were put into the timer again in the end: only their last record waits."""
        last_rolls = dict.fromkeys((key for _, key, _ in missing), 0)
        first = missing[0][0].queue_offset if missing else self._queue.max_queue_offset
        for entry in queue_units(self._queue, first, self._queue.max_queue_offset):
            read = self._key(entry)
            if read is not None and read[0] in last_rolls:
                last_rolls[read[0]] = max(last_rolls[read[0]], read[1])
        return last_rolls

    def _key(self, entry: QueueUnit) -> tuple[TimerKey, int] | None:
        """Key of a message in the queue, and how often it was put into the timer again; None: it cannot wait."""
        message = self._reader.message_at(entry.physical_offset)
        record = message.record if message is not None else None
        if record is None or record.topic != TIMER_TOPIC:
            return None
        due_ms = timer_due_ms(record.properties)
        return (waiting_key(record.properties, due_ms), roll_count(record.properties)) if due_ms is not None else None

    def _at(self, kind: str, position: int, text: str, *, length: int = timer.UNIT_SIZE, **details: int) -> Finding:
        segment = self._loaded.files.segment_at(position)
        path = segment.path if segment is not None else _LOG
        place = position - segment.start if segment is not None else None
        return finding(kind, path, text, file_position=place, length=length, **details)
