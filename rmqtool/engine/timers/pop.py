"""What pop consumers hold: messages that they received, and that a broker delivers again unless they acknowledge them.

Broker: `PopReviveService#consumeReviveMessage`, `#mergeAndRevive`, `#reviveMsgFromCk`, `PopConsumerService#revive`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from rmqtool.engine.reading.reader import Reader
from rmqtool.engine.reading.record import Record
from rmqtool.engine.timers.pop_body import PopBody, PopKey, decode_pop_body
from rmqtool.engine.timers.waiting import queue_units
from rmqtool.errors import UnreadableError
from rmqtool.formats.pop import CHECK_POINT, REVIVE_GROUP, REVIVE_TOPIC, TAGS
from rmqtool.formats.properties import REAL_QUEUE_ID, REAL_TOPIC, TIMER_DELIVER_MS
from rmqtool.formats.queue_name import QueueName
from rmqtool.store.config.config_json import CONSUMER_OFFSETS, consumer_offsets
from rmqtool.store.config.read_config import read_config
from rmqtool.store.databases.pop_database import PopRow

_DIGITS_MAX: Final = 18
_WAIT_MS: Final = 2000
BODY_MAX: Final = 1 << 20
"""Bytes of a body that are read; a broker writes some hundreds."""


class PopState(StrEnum):
    """What a broker does with a message that a consumer received."""

    IN_FLIGHT = "in-flight"
    BLOCKED = "blocked"
    ACKNOWLEDGED = "acknowledged"
    EXPIRED = "expired"
    UNREADABLE = "unreadable"


@dataclass
class CheckPoint:
    """Messages that a consumer received together.

    Attributes:
        queue_offset: of the record in the revive topic; None while it waits in the timer.
        acknowledged: queue offsets.
    """

    body: PopBody
    record: Record
    revive_topic: str
    revive_queue_id: int
    queue_offset: int | None
    acknowledged: set[int]


@dataclass
class PopLog:
    """Check points that a broker has still to handle, with their acknowledgements.

    Attributes:
        bad_records: those that it cannot read.
        blocked_queues: revive topics and queue ids in which it stops at such a record.
    """

    check_points: dict[tuple[str, int, PopKey], CheckPoint] = field(default_factory=dict)
    bad_records: list[Record] = field(default_factory=list)
    blocked_queues: set[QueueName] = field(default_factory=set)
    _broker_name: str = ""
    _ends_ms: dict[QueueName, int] = field(default_factory=dict)

    def add(self, topic: str, queue_id: int, queue_offset: int | None, record: Record) -> None:
        """The next record of a revive queue; an acknowledgement that comes before its check point counts nothing."""
        tag = record.tags
        if tag not in TAGS:
            return
        time = record.properties.get(TIMER_DELIVER_MS, "")
        if queue_offset is not None and time.isascii() and time.isdigit() and len(time) <= _DIGITS_MAX:
            self._ends_ms[topic, queue_id] = max(int(time), self._ends_ms.get((topic, queue_id), 0))
        try:
            if not record.body_crc_ok:
                return  # no broker delivers it
            body = decode_pop_body(tag, record.body(BODY_MAX))
        except ValueError:
            self.bad_records.append(record)
            if queue_offset is not None:
                self.blocked_queues.add((topic, queue_id))
            return
        name = (topic, queue_id, body.key)
        if tag == CHECK_POINT:
            self._broker_name = body.key.broker_name
            self.check_points[name] = CheckPoint(body, record, topic, queue_id, queue_offset, set(body.acknowledged))
            return
        if not body.key.broker_name:
            name = (topic, queue_id, body.key._replace(broker_name=self._broker_name))
        if name in self.check_points:
            self.check_points[name].acknowledged.update(body.offsets)

    def is_due(self, point: CheckPoint) -> bool:
        """Whether a broker waits for acknowledgements no longer: later records of its queue show that they are in."""
        end_ms = self._ends_ms.get((point.revive_topic, point.revive_queue_id), 0)
        return end_ms - point.body.revive_timestamp_ms > _WAIT_MS


class PoppedMessage(NamedTuple):
    """A message that a consumer received.

    Attributes:
        revive_timestamp_ms: from when on a broker delivers it again.
        check_point: None where RocksDB has it.
        record: None where the message is gone or cannot be read.
        consumer_offset: from which queue offset on the group receives messages; None where it is not known.
    """

    key: PopKey
    revive_timestamp_ms: int
    check_point: CheckPoint | None
    queue_offset: int
    state: PopState
    record: Record | None
    consumer_offset: int | None


def read_pop_log(reader: Reader, timers: Iterable[Record]) -> PopLog:
    """Read the revive topics from where a broker continues.

    Args:
        timers: messages that wait in the timer, by their time: a broker puts check points and acknowledgements there.

    Raises:
        UnreadableError: a file cannot be read.
    """
    log, stored = PopLog(), consumer_offsets(read_config(reader.store.view, CONSUMER_OFFSETS))
    for topic, queue_id in reader.queues():
        if not topic.startswith(REVIVE_TOPIC):
            continue
        queue = reader.queue(topic, queue_id)
        # The stored offset is that of the last check point that the broker has handled.
        begin = stored.get((topic, REVIVE_GROUP), {}).get(queue_id, -1) + 1
        for unit in queue_units(queue, max(begin, queue.min_queue_offset), queue.max_queue_offset):
            record = _record(reader, unit.physical_offset)
            if record is not None and record.topic == topic:
                log.add(topic, queue_id, unit.queue_offset, record)
    for record in timers:
        topic, number = record.properties.get(REAL_TOPIC, ""), record.properties.get(REAL_QUEUE_ID, "")
        if topic.startswith(REVIVE_TOPIC) and number.isascii() and number.isdigit() and len(number) < 10:
            log.add(topic, int(number), None, record)
    return log


def popped_messages(reader: Reader, log: PopLog) -> Iterator[PoppedMessage]:
    """The messages of all check points, by the time at which a broker delivers them again.

    Raises:
        UnreadableError: a file cannot be read.
    """
    known, stored = set(reader.queues()), consumer_offsets(read_config(reader.store.view, CONSUMER_OFFSETS))
    for point in sorted(log.check_points.values(), key=lambda point: point.body.revive_timestamp_ms):
        key = point.body.key
        consumed = stored.get((key.topic, key.consumer_group), {}).get(key.queue_id)
        for queue_offset in point.body.offsets:
            record, state = _held(reader, known, key, queue_offset)
            if state is PopState.IN_FLIGHT and (point.revive_topic, point.revive_queue_id) in log.blocked_queues:
                state = PopState.BLOCKED
            state = PopState.ACKNOWLEDGED if queue_offset in point.acknowledged else state
            yield PoppedMessage(key, point.body.revive_timestamp_ms, point, queue_offset, state, record, consumed)


def database_messages(reader: Reader, rows: Iterable[PopRow]) -> Iterator[PoppedMessage]:
    """The messages that a broker has in RocksDB until they are acknowledged, by the time of the next delivery.

    Raises:
        UnreadableError: a file cannot be read.
    """
    known, stored = set(reader.queues()), consumer_offsets(read_config(reader.store.view, CONSUMER_OFFSETS))
    for row in rows:
        key = PopKey(row.topic, row.consumer_group, row.queue_id, row.queue_offset, row.pop_timestamp_ms, "")
        record, state = _held(reader, known, key, row.queue_offset)
        consumed = stored.get((key.topic, key.consumer_group), {}).get(key.queue_id)
        yield PoppedMessage(key, row.revive_timestamp_ms, None, row.queue_offset, state, record, consumed)


def _held(
    reader: Reader, known: Collection[QueueName], key: PopKey, queue_offset: int
) -> tuple[Record | None, PopState]:
    """A message that was not acknowledged, and what a broker does with it."""
    record, state = None, PopState.UNREADABLE
    if (key.topic, key.queue_id) in known:
        record = _message(reader, key, queue_offset)
        is_expired = queue_offset < reader.queue(key.topic, key.queue_id).min_queue_offset
        state = PopState.EXPIRED if is_expired else state
    return record, PopState.IN_FLIGHT if record is not None else state


def _message(reader: Reader, key: PopKey, queue_offset: int) -> Record | None:
    queue = reader.queue(key.topic, key.queue_id)
    if not queue.min_queue_offset <= queue_offset < queue.max_queue_offset:
        return None
    unit = next(queue_units(queue, queue_offset, queue_offset + 1), None)
    return _record(reader, unit.physical_offset) if unit is not None else None


def _record(reader: Reader, physical_offset: int) -> Record | None:
    with suppress(UnreadableError):
        message = reader.message_at(physical_offset)
        return message.record if message is not None else None
    return None
