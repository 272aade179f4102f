"""Which messages of the timer's topic still wait: those that the log does not have under their own topic as well.

Broker: `TimerMessageStore#convertMessage`: a delivered message keeps the properties that it waited with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.reading.reader import Reader
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
from rmqtool.scan.runner import OnProgress
from rmqtool.scan.walk import Batch
from rmqtool.sides.queue_scan import demand_in_queue, intact_messages, queue_units
from rmqtool.sides.timer.writer import TimerMessage

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


def _delivered(reader: Reader, queue: Queue, topics: set[str], on_progress: OnProgress | None) -> Counter[TimerKey]:
    """How often the log has messages with a delivery time under the topics that they were sent to."""
    counts: Counter[TimerKey] = Counter()
    for batch, rows in intact_messages(reader.store, "timers", on_progress=on_progress):
        demand_in_queue(batch, rows, TIMER_TOPIC, {0: queue.max_queue_offset}, "the timer")
        counts.update(_keys(batch, rows, topics))
    return counts


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
