"""Waiting messages of the timer's topic: those that the log does not have under their own topic as well.

Broker: `TimerMessageStore#convertMessage`: a delivered message keeps the properties that it waited with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.reading.reader import Reader
from rmqtool.engine.reading.record import Record
from rmqtool.formats.java_text import decode_java_utf8, java_hash
from rmqtool.formats.properties import (
    REAL_TOPIC,
    TIMER_DELETE_KEY,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    TIMER_TOPIC,
    UNIQUE_KEY,
)
from rmqtool.scan.runner import OnProgress
from rmqtool.sides.queue_scan import demand_in_queue, intact_messages, properties_with, queue_units, record_at
from rmqtool.sides.timer.writer import TimerMessage

_TIME_DIGITS_MAX: Final = 18
_MARK: Final = TIMER_OUT_MS.encode() + b"\x01"


class TimerKey(NamedTuple):
    """Fields of a message that its delivery does not change."""

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
    """Read the timer's queue, and all of the log for delivered messages.

    Raises:
        UnsupportedError: the log is damaged, so that nobody knows what was delivered.
    """
    waiting = Waiting(queue_end=queue.max_queue_offset)
    rows: list[tuple[TimerMessage, TimerKey]] = []
    first_rolls: dict[TimerKey, int] = {}
    gone: Counter[TimerKey] = Counter()
    for unit in queue_units(queue, queue.min_queue_offset, queue.max_queue_offset):
        record = record_at(reader, unit.physical_offset)
        key_and_rolls = waiting_key(record)
        if record is None or key_and_rolls is None:
            waiting.unreadable += 1
            continue
        key, rolls = key_and_rolls
        # Where it was put into the timer again, the one before is over; that one may have left the log.
        gone[key] += rolls > first_rolls.setdefault(key, rolls)
        deletes = TIMER_DELETE_KEY in record.properties
        waiting.newest = TimerMessage(
            unit.queue_offset, unit.physical_offset, record.size, key.due_timestamp_ms, java_hash(key.topic), deletes
        )
        rows.append((waiting.newest, key))
    delivered: Counter[TimerKey] = Counter()
    topics = {key.topic for _, key in rows} - {TIMER_TOPIC}
    for batch, good in intact_messages(reader.store, "timers", on_progress=on_progress) if rows else ():
        demand_in_queue(batch, good, TIMER_TOPIC, {0: queue.max_queue_offset}, "the timer")
        names = [decode_java_utf8(raw) for raw in batch.topics]
        chosen = good[np.isin(good["topic_number"], [number for number, name in enumerate(names) if name in topics])]
        if not len(chosen) or not batch.may_hold(_MARK):
            continue
        numbers = chosen["topic_number"].tolist()
        for row, properties in properties_with(batch, chosen, _MARK):
            due_ms = timer_due_ms(properties)
            if due_ms is not None:
                delivered[TimerKey(names[numbers[row]], properties.get(UNIQUE_KEY, ""), due_ms)] += 1
    gone.update(delivered)
    waiting.delivered = sum(min(count, delivered[key]) for key, count in Counter(key for _, key in rows).items())
    for timer_message, key in rows:
        if gone[key] > 0:
            gone[key] -= 1
        else:
            waiting.messages.append(timer_message)
    return waiting


def waiting_key(record: Record | None) -> tuple[TimerKey, int] | None:
    """Key of a message in the timer's queue, and how often it was put there again as its time was too far away.

    None where it cannot wait: it is none of the queue, or has no delivery time.
    """
    if record is None or record.topic != TIMER_TOPIC:
        return None
    properties, due_ms = record.properties, timer_due_ms(record.properties)
    if due_ms is None:
        return None
    rolls = properties.get(TIMER_ROLL_TIMES, "0")
    is_number = rolls.isascii() and rolls.isdigit() and len(rolls) <= _TIME_DIGITS_MAX
    key = TimerKey(properties.get(REAL_TOPIC, ""), properties.get(UNIQUE_KEY, ""), due_ms)
    return key, int(rolls) if is_number else 0


def timer_due_ms(properties: Mapping[str, str]) -> int | None:
    """The delivery time of a message that waits; None where it has none that a broker could read."""
    text = properties.get(TIMER_OUT_MS, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _TIME_DIGITS_MAX else None
