"""Checks the timer of 5.x brokers: lengths, slots, chains of units, their records, and messages that wait outside them.

What a load repairs by itself is no finding: a wheel that is behind its log, for instance.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing
from typing import Final

import numpy as np
from numpy.typing import NDArray

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
from rmqtool.sides.queue_scan import queue_units, record_at
from rmqtool.sides.timer.files import TimerUnit, is_timer_checked, read_slots, read_units
from rmqtool.sides.timer.loaded import LoadedTimer, TimerFiles, load_timer, timer_files, timer_queue, timer_record
from rmqtool.sides.timer.waiting import TimerKey, timer_due_ms, waiting_key
from rmqtool.store.config.config_json import ConfigState
from rmqtool.store.config.config_kinds import TIMER_METRICS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.databases.rocksdb_files import is_rocksdb_used
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.view import Entry

_LOG: Final = "timerlog"
_CHECK: Final = "config/timercheck"


def timer_findings(store: Store, rules: BrokerRules, account: Account) -> Iterator[Finding]:
    """All findings about the timer, in no order; none for a store that has none."""
    wheels = store.files.get(FileKind.TIMER_WHEEL, ())
    used = [*wheels, *store.files.get(FileKind.TIMER_LOG, ())]
    if not (used or (TIMER_TOPIC, 0) in store.queues) or not is_timer_checked(store, rules):
        return
    for entry in used:
        account.file(entry.path, entry.size).checked += entry.size
    try:
        metrics = read_config(store.view, TIMER_METRICS)
        if metrics.state is ConfigState.BROKEN and metrics.is_backup_broken:  # a broker does not start
            yield finding("config.unreadable", TIMER_METRICS, "; ".join(metrics.problems), repair=REBUILD_TIMER)
        files = timer_files(store)
        lengths = [
            (wheel.path, wheel.size, timer.WHEEL_SIZE)
            for wheel in wheels
            if wheel.size not in (0, timer.WHEEL_SIZE) and not wheel.name.endswith(".tmp")
        ]
        lengths += [
            (segment.path, segment.size, files.log_file_size)
            for segment in files.log
            if segment.size != files.log_file_size
        ]
        for path, size, expected in lengths:
            text = f"{size} bytes long; a broker expects {expected}"
            yield finding("timer.wrong-file-size", path, text, length=size, expected=str(expected), found=str(size))
        if lengths:
            return  # a broker does not start, and nothing else can be read as it would
        with open_reader(store, rules) as reader:
            queue = timer_queue(reader)
            if files.check_entry is not None:
                yield from _check_findings(files, files.check_entry, queue)
            if queue.max_queue_offset and not is_rocksdb_used(store.files.get(FileKind.ROCKSDB, ())):
                count = queue.max_queue_offset - queue.min_queue_offset
                for path, is_there in ((_LOG, bool(files.log)), (_CHECK, files.check_entry is not None)):
                    if not is_there:
                        text = f"missing, though {count} messages came to {TIMER_TOPIC}"
                        yield finding("timer.missing-file", path, text)
            loaded = load_timer(files, reader, queue)
            if files.wheel is not None and files.wheel.size == timer.WHEEL_SIZE:
                with closing(store.view.open(files.wheel.path)) as source:
                    for slot in read_slots(source):
                        if slot.due_tick < 0 or slot.due_tick % timer.SLOT_COUNT != slot.number:
                            text = f"slot {slot.number} is of tick {slot.due_tick}, whose place is another one"
                            yield finding(
                                "timer.bad-slot", files.wheel.path, text,
                                file_position=slot.number * timer.SLOT_SIZE, length=timer.SLOT_SIZE,
                            )  # fmt: skip
            yield from _unit_findings(loaded, reader, queue)
    except (UnreadableError, UnsupportedError) as error:
        yield finding("store.unreadable", _LOG, str(error))


def _check_findings(files: TimerFiles, entry: Entry, queue: Queue) -> Iterator[Finding]:
    check = files.check
    if entry.size != timer.CHECK_FILE_SIZE:
        expected = str(timer.CHECK_FILE_SIZE)
        yield finding("timer.bad-check", entry.path, f"{entry.size} bytes", expected=expected, found=str(entry.size))
    if queue.max_queue_offset and not any(vars(check).values()):
        yield finding("timer.bad-check", entry.path, f"all zero, though messages came to {TIMER_TOPIC}")
    limits = {
        "read_timestamp_ms": None,
        "flushed_position": files.log[-1].end if files.log else None,  # a log that is missing has its own finding
        "queue_offset": queue.max_queue_offset,
        "master_queue_offset": None,
    }
    for name, limit in limits.items():
        value = getattr(check, name)
        if value < 0 or (limit is not None and value > limit):
            text = f"{name} is {value}" + (f", which is after {limit}" if limit is not None and value >= 0 else "")
            yield finding("timer.bad-check", entry.path, text, file_position=timer.CHECK.position(name), length=8)


def _unit_findings(loaded: LoadedTimer, reader: Reader, queue: Queue) -> Iterator[Finding]:
    """One pass over the log's units, then the chains of the slots that wait, then the units in none of them."""
    files, precision_ms = loaded.files, loaded.precision_ms
    records, pending = array("q"), array("q")
    """Physical offsets of the messages of all units, and positions of the units whose time is not over."""
    last_write_ms, end = 0, files.start
    for segment in files.log:
        with closing(reader.store.view.open(segment.path)) as source:
            for unit in read_units(source, segment.start):
                if isinstance(unit, TimerUnit):
                    end = unit.position + timer.UNIT_SIZE
                    records.append(unit.physical_offset)
                    last_write_ms = max(last_write_ms, unit.write_timestamp_ms)
                    if unit.due_timestamp_ms >= loaded.read_tick * precision_ms:
                        pending.append(unit.position)
                    continue
                end = unit.position + unit.length
                if not unit.is_blank and unit.position < files.flushed_position:
                    yield _at(files, "timer.bad-unit", unit.position, "not a unit", length=unit.length)
    if files.log and end < min(files.flushed_position, files.log[-1].end):
        text = f"zeros, though the timer log was flushed up to {files.flushed_position}"
        yield _at(files, "timer.bad-unit", end, text, length=files.flushed_position - end)
    reached = array("q")
    cut_ticks: set[int] = set()
    """Ticks whose chain leads to a file that a broker deleted because of its age."""
    for slot in loaded.pending_slots():
        units, broken = loaded.chain(slot)
        reached.extend(unit.position for unit in units)
        if broken is not None:
            kind, reason = "timer.broken-chain", broken.reason
            if not units and broken.position >= loaded.log_end:
                kind = "timer.slot-ahead-of-log"
            elif 0 <= broken.position < files.start:
                kind, reason = "timer.expired-record", "its file was deleted, as old files of the commit log were"
                cut_ticks.add(slot.due_tick)
            text = f"the units due {slot.due_tick * precision_ms} lead to {broken.position}: {reason}"
            yield _at(files, kind, broken.position, text)
        for unit in units:
            kind, text = _record_problem(loaded, reader, unit)
            if kind:
                yield _at(files, kind, unit.position, text, physical_offset=unit.physical_offset)
    lost = np.setdiff1d(np.array(pending, "i8"), np.array(reached, "i8"))
    lost = lost[lost < loaded.log_end]
    for run in np.split(lost, np.flatnonzero(np.diff(lost) != timer.UNIT_SIZE) + 1):
        if len(run):
            length = len(run) * timer.UNIT_SIZE
            text = "no slot leads to it"
            yield _at(files, "timer.unreachable-unit", int(run[0]), text, length=length, count=len(run))
    in_log = np.unique(np.array(records, "i8"))
    # Messages that a unit leads to, and that the broker takes from the queue once more.
    again = [entry.physical_offset for entry in queue_units(queue, loaded.queue_offset, loaded.logged_offset)]
    count = int(np.isin(np.array(again, "i8"), in_log).sum())
    if count:
        check = files.check
        text = (
            f"queue_offset is {check.queue_offset} and master_queue_offset {check.master_queue_offset}, but the "
            f"timer log has messages up to {loaded.logged_offset - 1}: {count} come into it a second time"
        )
        place = timer.CHECK.position("master_queue_offset")
        yield finding("timer.check-behind", _CHECK, text, file_position=place, length=8, count=count)
    if files.log:
        from_ms = max(files.check.read_timestamp_ms, files.check.version_timestamp_ms, last_write_ms)
        yield from _missing_units(loaded, reader, queue, in_log, from_ms, cut_ticks)


def _record_problem(loaded: LoadedTimer, reader: Reader, unit: TimerUnit) -> tuple[str, str]:
    """Finding type and text for the message of a unit; both empty where it is the right one."""
    if unit.physical_offset < reader.log.minimum:
        return "timer.expired-record", "its record was deleted with old files of the commit log"
    record = timer_record(reader, unit)
    if record is None or record.topic != TIMER_TOPIC:
        topic = f"a record of {record.topic}" if record is not None else "no record"
        return "timer.wrong-record", f"leads to {topic} in the commit log"
    out_ms = timer_due_ms(record.properties)
    # A repair sets a unit that is late to a later time, and ends the log with one that deletes and stands for nothing.
    is_early = out_ms is not None and unit.due_timestamp_ms // loaded.precision_ms < out_ms // loaded.precision_ms
    is_idle = unit.deletes and TIMER_DELETE_KEY not in record.properties
    if is_early and not (unit.rolls or is_idle):
        return "timer.wrong-record", f"due {unit.due_timestamp_ms}, but its message {out_ms}"
    if unit.topic_hash != java_hash(record.properties.get(REAL_TOPIC, "")):
        return "timer.wrong-record", "the hash is not that of its topic"
    return "", ""


def _missing_units(
    loaded: LoadedTimer,
    reader: Reader,
    queue: Queue,
    in_log: NDArray[np.int64],
    from_ms: int,
    cut_ticks: AbstractSet[int],
) -> Iterator[Finding]:
    """Messages that the timer counts as waiting, whose time is still to come, and that no unit leads to.

    Args:
        in_log: sorted physical offsets of the messages that units lead to.
        from_ms: a message that is due later waits.
        cut_ticks: ticks whose units may be in a file that is gone.
    """
    missing: list[tuple[QueueUnit, TimerKey, int]] = []
    for entry in queue_units(queue, queue.min_queue_offset, loaded.queue_offset):
        at = int(np.searchsorted(in_log, entry.physical_offset))
        if at < len(in_log) and in_log[at] == entry.physical_offset:
            continue
        waiting = waiting_key(record_at(reader, entry.physical_offset))
        if waiting is not None:
            due_ms = waiting[0].due_timestamp_ms
            if due_ms > from_ms or due_ms // loaded.precision_ms in cut_ticks:
                missing.append((entry, *waiting))
    # Of messages that were put into the timer again only the last record waits.
    last_rolls = dict.fromkeys((key for _, key, _ in missing), 0)
    if missing:
        for entry in queue_units(queue, missing[0][0].queue_offset, queue.max_queue_offset):
            waiting = waiting_key(record_at(reader, entry.physical_offset))
            if waiting is not None and waiting[0] in last_rolls:
                last_rolls[waiting[0]] = max(last_rolls[waiting[0]], waiting[1])
    for entry, key, rolls in missing:
        if rolls >= last_rolls[key]:
            text = f"the message due {key.due_timestamp_ms} is in no unit of the timer log"
            yield finding(
                "timer.missing-unit", _LOG, text, physical_offset=entry.physical_offset, length=entry.record_size,
                topic=TIMER_TOPIC, queue_id=0, queue_offset=entry.queue_offset,
            )  # fmt: skip


def _at(
    files: TimerFiles, kind: str, position: int, text: str, *, length: int = timer.UNIT_SIZE, **details: int
) -> Finding:
    segment = files.segment_at(position)
    path = segment.path if segment is not None else _LOG
    place = position - segment.start if segment is not None else None
    return finding(kind, path, text, file_position=place, length=length, **details)
