"""Which messages of the timer's topic still wait: those that the log does not have under their own topic as well.

Broker: `TimerMessageStore#convertMessage`: a delivered message keeps the properties that it waited with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.queues.unit import QueueUnit
from rmqtool.engine.reading.reader import Reader
from rmqtool.engine.timers.timer_writer import TimerMessage
from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.formats.java_text import decode_java_utf8, java_hash
from rmqtool.formats.properties import (
    REAL_TOPIC,
    TIMER_DELETE_KEY,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    TIMER_TOPIC,
    UNIQUE_KEY,
    decode_properties,
)
from rmqtool.scan.log import ScanOptions, carries_record_crc, plan_segments, scan_log
from rmqtool.scan.row_columns import message_rows
from rmqtool.scan.rules import Verdict
from rmqtool.scan.runner import OnProgress
from rmqtool.scan.walk import Batch
from rmqtool.store.directory import Store

_TIME_DIGITS_MAX: Final = 18
_MARK: Final = TIMER_OUT_MS.encode() + b"\x01"


class TimerKey(NamedTuple):
    """What is the same of a message before and after its delivery."""

    topic: str
    unique_key: str
    due_timestamp_ms: int


@dataclass
class Waiting:
    """The messages that wait, in the order of their queue.

    Attributes:
        newest: the last message of the queue that can be read.
        queue_end: queue offset after the last message.
        delivered: messages that the log has under their own topic too.
        unreadable: units of the queue that lead to no message with a delivery time.
    """

    messages: list[TimerMessage] = field(default_factory=list)
    newest: TimerMessage | None = None
    queue_end: int = 0
    delivered: int = 0
    unreadable: int = 0


def waiting_messages(reader: Reader, queue: Queue, on_progress: OnProgress | None = None) -> Waiting:
    """Read the timer's queue, and all of the log for what was delivered.

    Raises:
        UnsupportedError: the log is damaged, so that nobody knows what was delivered.
        UnreadableError: the disk does not give a record.
    """
    waiting = Waiting(queue_end=queue.max_queue_offset)
    rows: list[tuple[TimerMessage, TimerKey]] = []
    first_rolls: dict[TimerKey, int] = {}
    gone: Counter[TimerKey] = Counter()
    for unit in queue_units(queue, queue.min_queue_offset, queue.max_queue_offset):
        message = reader.message_at(unit.physical_offset)
        record = message.record if message is not None else None
        due_ms = timer_due_ms(record.properties) if record is not None else None
        if record is None or record.topic != TIMER_TOPIC or due_ms is None:
            waiting.unreadable += 1
            continue
        key, rolls = waiting_key(record.properties, due_ms), roll_count(record.properties)
        # Where it was put into the timer again, the one before is over; that one may have left the log.
        gone[key] += rolls > first_rolls.setdefault(key, rolls)
        deletes = TIMER_DELETE_KEY in record.properties
        waiting.newest = TimerMessage(
            unit.queue_offset, unit.physical_offset, record.size, due_ms, java_hash(key.topic), deletes
        )
        rows.append((waiting.newest, key))
    delivered = _delivered(reader, queue, {key.topic for _, key in rows}, on_progress) if rows else Counter[TimerKey]()
    gone.update(delivered)
    waiting.delivered = sum(min(count, delivered[key]) for key, count in Counter(key for _, key in rows).items())
    for timer_message, key in rows:
        if gone[key] > 0:
            gone[key] -= 1
        else:
            waiting.messages.append(timer_message)
    return waiting


def waiting_key(properties: Mapping[str, str], due_ms: int) -> TimerKey:
    """The key of a message that waits."""
    return TimerKey(properties.get(REAL_TOPIC, ""), properties.get(UNIQUE_KEY, ""), due_ms)


def roll_count(properties: Mapping[str, str]) -> int:
    """How often a message was put into the timer again because its time was too far away."""
    text = properties.get(TIMER_ROLL_TIMES, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _TIME_DIGITS_MAX else 0


def timer_due_ms(properties: Mapping[str, str]) -> int | None:
    """The delivery time of a message that waits; None where it has none that a broker could read."""
    text = properties.get(TIMER_OUT_MS, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _TIME_DIGITS_MAX else None


def queue_units(queue: Queue, start: int, end: int) -> Iterator[QueueUnit]:
    """The units of queue offsets [start, end), file after file; queues without files give all at once.

    What starts below the queue starts at its minimum, as in a broker, and where files are missing the next one follows.

    Raises:
        UnreadableError: a queue without files ends before its end, as where a unit is missing in RocksDB.
    """
    at, end = max(start, queue.min_queue_offset), min(end, queue.max_queue_offset)
    while at < end:
        after = at
        for unit in queue.units_from(at) or ():
            if unit.queue_offset >= end:
                return
            yield unit
            after = unit.queue_offset + max(1, unit.message_count)
        following = queue.next_file_queue_offset(at)
        if following <= at:
            if after < end:
                raise UnreadableError(f"{queue.topic}/{queue.queue_id}: no unit at queue offset {after}")
            return
        at = (
            following
            if queue.loaded is None
            else max(following, queue.loaded.next_start(following * queue.unit_size) // queue.unit_size)
        )


def _delivered(reader: Reader, queue: Queue, topics: set[str], on_progress: OnProgress | None) -> Counter[TimerKey]:
    """How often the log has messages with a delivery time under the topics that they were sent to."""
    counts: Counter[TimerKey] = Counter()
    for batch, rows in intact_messages(reader.store, "timers", on_progress=on_progress):
        demand_in_queue(batch, rows, TIMER_TOPIC, {0: queue.max_queue_offset}, "the timer")
        counts.update(_keys(batch, rows, topics))
    return counts


def intact_messages(
    store: Store, kind: str, start: int = 0, on_progress: OnProgress | None = None
) -> Iterator[tuple[Batch, NDArray[Any]]]:
    """Batches of the log with the rows of their good messages, from the file that holds a physical offset on.

    Args:
        kind: what a person reads of the messages that are looked for.

    Raises:
        UnsupportedError: the log is damaged, so that nobody knows what was delivered.
    """
    bad_at = None
    segments = [segment for segment in store.commitlog if segment.end > start] or store.commitlog
    with closing(plan_segments(store.view.open, segments)) as plan:
        begin, total = plan.splits[0].physical_offset, sum(split.source.size for split in plan.splits)
        for batch in scan_log(plan, ScanOptions(record_crc=carries_record_crc(plan.splits))):
            rows = batch.as_array()
            bad = rows[(rows["verdict"] != Verdict.GOOD) & (rows["verdict"] != Verdict.STALE)]
            good = message_rows(rows)
            if bad_at is None and len(bad):
                bad_at = int(bad["physical_offset"][0])
            if bad_at is not None and len(good) and good["physical_offset"][-1] > bad_at:
                raise UnsupportedError(
                    f"the commit log is damaged at {bad_at}: nothing shows which {kind} were delivered there; "
                    "run rmqtool salvage first"
                )
            yield batch, good
            if on_progress is not None and len(rows):
                on_progress(min(total, int(rows["physical_offset"][-1]) - begin), total)


def demand_in_queue(batch: Batch, rows: NDArray[Any], topic: str, ends: Mapping[int, int], what: str) -> None:
    """Refuse a queue that ends before the log's last message: that one may have been delivered all the same.

    Args:
        ends: by queue id: queue offset after the last message.
        what: what is to be rebuilt.

    Raises:
        UnsupportedError: it does.
    """
    numbers = [number for number, raw in enumerate(batch.topics) if raw == topic.encode()]
    of_topic = rows[np.isin(rows["topic_number"], numbers)]
    for queue_id in np.unique(of_topic["queue_id"]).tolist():
        newest = of_topic["queue_offset"][of_topic["queue_id"] == queue_id].max()
        if newest >= ends.get(queue_id, 0):
            raise UnsupportedError(
                f"messages of {topic} are missing in its consume queue: run rmqtool recover first, then rebuild {what}"
            )


def _keys(batch: Batch, rows: NDArray[Any], topics: set[str]) -> Iterator[TimerKey]:
    """The keys of those of the messages that were delivered by the timer."""
    names = {number: decode_java_utf8(raw) for number, raw in enumerate(batch.topics)}
    numbers = [number for number, name in names.items() if name in topics and name != TIMER_TOPIC]
    if not numbers or not len(rows) or not batch.may_hold(_MARK):
        return
    chosen = rows[np.isin(rows["topic_number"], numbers)]
    lengths = chosen["properties_length"].tolist()
    positions = (chosen["size"] - chosen["properties_length"]).tolist()
    texts = batch.read_many(chosen["physical_offset"].tolist(), positions, lengths)
    for number, raw in zip(chosen["topic_number"].tolist(), texts, strict=True):
        if _MARK not in raw:
            continue
        properties = decode_properties(raw)
        due_ms = timer_due_ms(properties)
        if due_ms is not None:
            yield TimerKey(names[number], properties.get(UNIQUE_KEY, ""), due_ms)
