"""Messages that pop consumers received, and that a broker delivers again unless they acknowledge them.

They stand in revive topics, in the timer, and from 5.4 on in a RocksDB, whose values alone are believed; its keys say
when a row is due.

Broker: `PopReviveService#consumeReviveMessage`, `#mergeAndRevive`, `#reviveMsgFromCk`, `PopConsumerService#revive`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from rmqtool.engine.reading.reader import Reader, open_reader
from rmqtool.engine.reading.record import Record
from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import finding
from rmqtool.formats.pop import (
    ACKNOWLEDGEMENT,
    BATCH_ACKNOWLEDGEMENT,
    CHECK_POINT,
    FIELD_DOCS,
    REVIVE_GROUP,
    REVIVE_TOPIC,
    TAGS,
)
from rmqtool.formats.properties import REAL_QUEUE_ID, REAL_TOPIC, TIMER_DELIVER_MS
from rmqtool.formats.queue_name import QueueName
from rmqtool.formats.rocksdb.pop import POP_FAMILY, PopKeyRow, parse_pop_key, pop_key
from rmqtool.quantities import JAVA_INT_MAX, JAVA_LONG_MAX
from rmqtool.sides.queue_scan import queue_units, readable_record
from rmqtool.sides.unread import DatabaseCheck, read_by_after
from rmqtool.store.config.config_json import consumer_offsets
from rmqtool.store.config.config_kinds import CONSUMER_OFFSETS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.databases.rocksdb import RocksFailure, RocksFamily, RocksReading
from rmqtool.store.databases.rocksdb_files import has_to_open
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.relaxed_json import JsonError, parse_relaxed_json
from rmqtool.store.view import Entry, StoreView

DIRECTORY: Final = "kvStore"
"""Of the database."""
BODY_MAX: Final = 1 << 20
"""Bytes of a body that are read; a broker writes some hundreds."""
_SHORT: Final = {name: short for short, name, _, _ in FIELD_DOCS}
_BITS: Final = 32
_COUNT_MAX: Final = 127
_NUMBER_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = 18
_WAIT_MS: Final = 2000
_FINDINGS_MAX: Final = 100


class PopKey(NamedTuple):
    """Fields that a check point and its acknowledgements share."""

    topic: str
    consumer_group: str
    queue_id: int
    start: int
    pop_timestamp_ms: int
    broker_name: str


class PopBody(NamedTuple):
    """The decoded body of a check point or acknowledgement.

    Attributes:
        offsets: queue offsets of the messages of a check point, or of those that are acknowledged.
        acknowledged: those of a check point that it says itself.
        revive_timestamp_ms: of a check point: the time from which the broker delivers again.
    """

    key: PopKey
    offsets: tuple[int, ...]
    acknowledged: frozenset[int] = frozenset()
    revive_timestamp_ms: int = 0


def decode_pop_body(tag: str, raw: bytes) -> PopBody:
    """The body of a record with one of the tags of a revive topic.

    Raises:
        ValueError: it is no such body; a broker that reads it stops there.
    """
    value = parse_relaxed_json(raw.decode())
    # Brokers also read the long names in acknowledgements.
    names = {} if tag == CHECK_POINT else _SHORT
    fields = {names.get(name, name): content for name, content in value.items()} if isinstance(value, dict) else {}
    topic, group, broker = (text if isinstance(text := fields.get(name), str) else "" for name in ("t", "c", "bn"))
    start, popped = _number(fields.get("so", 0), "so"), _number(fields.get("pt", 0), "pt")
    if not topic or not group:
        raise ValueError("no topic or no consumer group")
    key = PopKey(topic, group, _number(fields.get("q", 0), "q"), start, popped, broker)
    if tag == ACKNOWLEDGEMENT:
        return PopBody(key, (_number(fields.get("ao", 0), "ao"),))
    if tag == BATCH_ACKNOWLEDGEMENT:
        return PopBody(key, tuple(_numbers(fields.get("aol"), "aol")))
    count, bits = _number(fields.get("n", 0), "n"), _number(fields.get("bm", 0), "bm")
    differences = _numbers(fields.get("d"), "d") or list(range(min(count, _COUNT_MAX)))
    if not 0 <= count <= min(_COUNT_MAX, len(differences)):
        raise ValueError(f"{count} messages with {len(differences)} queue offsets")
    offsets = tuple(_java_long(start + difference) for difference in differences[:count])
    acknowledged = frozenset(offset for bit, offset in enumerate(offsets) if bit < _BITS and bits >> bit & 1)
    return PopBody(key, offsets, acknowledged, _java_long(popped + _number(fields.get("it", 0), "it")))


def _java_long(value: int) -> int:
    """Wrap a sum to a Java long."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _number(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -_NUMBER_MAX <= value <= _NUMBER_MAX:
        raise ValueError(f"{name} is not a number")
    return value


def _numbers(values: object, name: str) -> list[int]:
    """A list of numbers, which may be one number alone."""
    return [_number(value, name) for value in (values if isinstance(values, list) else [values] if values else [])]


class PopRow(NamedTuple):
    """A message that a consumer received, as the database has it.

    Attributes:
        topic: of the queue that it was received from, which may be a retry topic.
        revive_timestamp_ms: from when on the broker delivers it again.
    """

    topic: str
    queue_id: int
    queue_offset: int
    consumer_group: str
    pop_timestamp_ms: int
    revive_timestamp_ms: int


@dataclass
class PopDatabase:
    """A database that is read by `rows`, after which `failure` says why not to its end.

    Attributes:
        odd_row_count: rows that a broker cannot decode, or would deliver again and again; `odd_row` is the first.
    """

    view: StoreView
    entries: Sequence[Entry]
    odd_row_count: int = 0
    odd_row: str = ""
    failure: RocksFailure | None = None
    reason: str = ""

    def rows(self) -> Iterator[PopRow]:
        """All rows, by the time of the next delivery."""
        reading = RocksReading(self.view, self.entries)
        with closing(reading.batches([RocksFamily(POP_FAMILY)])) as batches:
            for batch in batches:
                row = parse_pop_row(batch.prefix, batch.values)
                if row is not None:
                    yield row
                    continue
                self.odd_row_count += 1
                self.odd_row = self.odd_row or f"key {batch.prefix[:60].hex()}"
        self.failure, self.reason = reading.failure, reading.reason


def parse_pop_row(key: bytes, value: bytes) -> PopRow | None:
    """A row as a broker decodes it; None where it does not, or where it could not find the row by its value again."""
    try:
        fields = parse_relaxed_json(value.decode())
    except (UnicodeDecodeError, JsonError):
        return None
    if parse_pop_key(key) is None or not isinstance(fields, dict):
        return None
    group, topic = fields.get("groupId"), fields.get("topicId")
    if not isinstance(group, str) or not isinstance(topic, str):
        return None
    numbers = []
    for name in ("queueId", "offset", "popTime", "invisibleTime"):
        number = fields.get(name, 0)
        limit = JAVA_INT_MAX if name == "queueId" else JAVA_LONG_MAX
        if not isinstance(number, int) or isinstance(number, bool) or not -limit - 1 <= number <= limit:
            return None
        numbers.append(number)
    queue_id, queue_offset, popped, invisible = numbers
    revive_ms = _java_long(popped + invisible)
    names = group.encode("utf-8", "replace"), topic.encode("utf-8", "replace")
    if pop_key(PopKeyRow(revive_ms, *names, queue_id, queue_offset)) != key:
        return None
    return PopRow(topic, queue_id, queue_offset, group, popped, revive_ms)


class PopState(StrEnum):
    """Handling of a message that a consumer received."""

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
        """True if a broker waits for acknowledgements no longer: later records of its queue show that they are in."""
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
    """
    log, stored = PopLog(), consumer_offsets(read_config(reader.store.view, CONSUMER_OFFSETS))
    for topic, queue_id in reader.queues():
        if not topic.startswith(REVIVE_TOPIC):
            continue
        queue = reader.queue(topic, queue_id)
        # The stored offset is that of the last check point that the broker has handled.
        begin = stored.get((topic, REVIVE_GROUP), {}).get(queue_id, -1) + 1
        for unit in queue_units(queue, begin, queue.max_queue_offset):
            record = readable_record(reader, unit.physical_offset)
            if record is not None and record.topic == topic:
                log.add(topic, queue_id, unit.queue_offset, record)
    for record in timers:
        topic, number = record.properties.get(REAL_TOPIC, ""), record.properties.get(REAL_QUEUE_ID, "")
        if topic.startswith(REVIVE_TOPIC) and number.isascii() and number.isdigit() and len(number) < 10:
            log.add(topic, int(number), None, record)
    return log


def popped_messages(reader: Reader, log: PopLog) -> Iterator[PoppedMessage]:
    """The messages of all check points, by the time at which a broker delivers them again."""
    queues, stored = set(reader.queues()), consumer_offsets(read_config(reader.store.view, CONSUMER_OFFSETS))
    for point in sorted(log.check_points.values(), key=lambda point: point.body.revive_timestamp_ms):
        key = point.body.key
        consumed = stored.get((key.topic, key.consumer_group), {}).get(key.queue_id)
        for queue_offset in point.body.offsets:
            record, state = _unacknowledged(reader, queues, key, queue_offset)
            if state is PopState.IN_FLIGHT and (point.revive_topic, point.revive_queue_id) in log.blocked_queues:
                state = PopState.BLOCKED
            state = PopState.ACKNOWLEDGED if queue_offset in point.acknowledged else state
            yield PoppedMessage(key, point.body.revive_timestamp_ms, point, queue_offset, state, record, consumed)


def database_messages(reader: Reader, rows: Iterable[PopRow]) -> Iterator[PoppedMessage]:
    """The messages that a broker has in RocksDB until they are acknowledged, by the time of the next delivery."""
    queues, stored = set(reader.queues()), consumer_offsets(read_config(reader.store.view, CONSUMER_OFFSETS))
    for row in rows:
        key = PopKey(row.topic, row.consumer_group, row.queue_id, row.queue_offset, row.pop_timestamp_ms, "")
        record, state = _unacknowledged(reader, queues, key, row.queue_offset)
        consumed = stored.get((key.topic, key.consumer_group), {}).get(key.queue_id)
        yield PoppedMessage(key, row.revive_timestamp_ms, None, row.queue_offset, state, record, consumed)


def _unacknowledged(
    reader: Reader, queues: Collection[QueueName], key: PopKey, queue_offset: int
) -> tuple[Record | None, PopState]:
    """A message that was not acknowledged, and the broker's handling of it."""
    if (key.topic, key.queue_id) not in queues:
        return None, PopState.UNREADABLE
    queue = reader.queue(key.topic, key.queue_id)
    if queue_offset < queue.min_queue_offset:
        return None, PopState.EXPIRED
    unit = next(queue_units(queue, queue_offset, queue_offset + 1), None)
    record = readable_record(reader, unit.physical_offset) if unit is not None else None
    return record, PopState.UNREADABLE if record is None else PopState.IN_FLIGHT


class PopCheck(DatabaseCheck):
    """One check of the messages that pop consumers hold: obstacles for a broker, and expired ones."""

    directory = DIRECTORY
    kind = FileKind.POP_ROCKSDB

    def findings(self, *, is_whole: bool) -> Iterator[Finding]:
        """Findings about the records from where a broker continues, and about the rows of the database.

        Args:
            is_whole: whether all of the log was scanned.
        """
        entries = self.store.files.get(FileKind.POP_ROCKSDB, ())
        database = PopDatabase(self.store.view, entries) if has_to_open(self.store.view, entries) else None
        if not self.rules.pop:
            self.failure = "brokers of this version have no pop consumers" if database else ""
            return
        if not is_whole:
            self.failure = "what pop consumers have in RocksDB is compared with a whole log only" if database else ""
            return
        try:
            with open_reader(self.store, self.rules) as reader:
                if self.rules.timer and any(topic.startswith(REVIVE_TOPIC) for topic, _ in reader.queues()):
                    log = read_pop_log(reader, ())  # what waits in the timer comes to these topics later
                    for record in log.bad_records[:_FINDINGS_MAX]:
                        text = "no check point and no acknowledgement"
                        yield finding(
                            "pop.bad-record", f"consumequeue/{record.topic}/{record.queue_id}", text,
                            topic=record.topic, queue_id=record.queue_id, queue_offset=record.queue_offset,
                            physical_offset=record.place.physical_offset,
                        )  # fmt: skip
                    popped = popped_messages(reader, log)
                    yield from _expired(one for one in popped if one.check_point and log.is_due(one.check_point))
                if database is not None:
                    yield from _expired(database_messages(reader, database.rows()))
                    if database.odd_row_count:
                        text = f"{database.odd_row_count} rows, the first: {database.odd_row}"
                        yield finding("pop.odd-row", DIRECTORY, text, count=database.odd_row_count)
                    if database.failure is RocksFailure.DOES_NOT_OPEN:
                        yield finding("pop.not-loadable", DIRECTORY, database.reason)
        except UnsupportedError as error:  # queues that are not read, which has a finding of its own
            self.failure = str(error) if database is not None else ""
        except UnreadableError as error:
            yield finding("store.unreadable", f"consumequeue/{REVIVE_TOPIC}", str(error))
        if database is not None and database.failure is not None:
            self.failure = f"what pop consumers have in RocksDB: {database.reason}"
            self.read_by = read_by_after(database.failure)


def _expired(messages: Iterable[PoppedMessage]) -> Iterator[Finding]:
    expired = (message.key for message in messages if message.state is PopState.EXPIRED)
    for (topic, queue_id), count in Counter((key.topic, key.queue_id) for key in expired).items():
        path, text = f"consumequeue/{topic}/{queue_id}", "no consumer acknowledged them"
        yield finding("pop.expired-message", path, text, topic=topic, queue_id=queue_id, count=count)
