"""Answers of a broker over a store: pulls, queries by key, messages by place, offsets by time.

What is answered is what a broker of the given version would answer right after load, if that changed nothing; what load
would change is for the room `forecast` to say.

Broker: `DefaultMessageStore#getMessage`, `#isTheBatchFull`, `#nextOffsetCorrection`, `#queryMessage`,
`FilterAPI#buildSubscriptionData`, `ExpressionMessageFilter#isMatchedByConsumeQueue`, `IndexService#queryOffset`,
`IndexFile#selectPhyOffset`, `#isTimeMatched`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Final

from rmqtool.engine.queues.kinds import QueueSource, open_queue, queue_names
from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.queues.unit import Boundary, QueueUnit
from rmqtool.engine.reading.stored_message import StoredMessage, message_at, message_of_unit
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError, UnsupportedError, UsageError
from rmqtool.formats import index
from rmqtool.formats.java_text import java_hash
from rmqtool.formats.message_id import parse_offset_message_id
from rmqtool.formats.queue_name import QueueName
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.store.config.config_json import topics
from rmqtool.store.config.config_kinds import TOPICS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.databases.rocksdb import RocksFailure
from rmqtool.store.directory import Store
from rmqtool.store.dledger_files import demand_plain_log
from rmqtool.store.index_file import IndexFile
from rmqtool.store.source import Closable

DEFAULT_COUNT: Final = 32
COUNT_MAX: Final = 64
"""`maxMsgsNumBatch`: more messages are never looked up by a key at once."""
MEMORY_RATIO = 0.4


def _asked_codes(expression: str | None) -> frozenset[int] | None:
    """Tags codes that an expression lets through: None for all of nothing or `*`, else those of tags between `||`."""
    if not expression or expression == "*":
        return None
    tags = frozenset(tag for part in expression.split("||") if (tag := part.strip()))
    if not tags:
        raise UsageError(f"no tag in the expression {expression!r}")
    return frozenset(map(java_hash, tags))


def _is_let_through(unit: QueueUnit, asked_codes: frozenset[int] | None) -> bool:
    """True if the broker delivers the unit's message; other tags of the same hash pass too.

    A code that stands in an extension that cannot be read lets its message through.
    """
    code = unit.tags_code
    if asked_codes is None or code is None:
        return True
    low = code & 0xFFFFFFFF
    return (low - (1 << 32) if low & 0x80000000 else low) in asked_codes


class GetMessageStatus(Enum):
    """Result of a pull (`GetMessageStatus`)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@dataclass(frozen=True)
class PullLimits:
    """Limits that end a pull early; the defaults are the broker's."""

    broker_memory_bytes: int | None = None
    """Memory of the broker's machine: messages further back than `MEMORY_RATIO` of it are on disk. None:
    all in memory.
    """
    count_in_memory: int = 32
    bytes_in_memory: int = 262_144
    count_on_disk: int = 8
    bytes_on_disk: int = 65_536
    unit_bytes_examined: int = 16_000
    queue_files: int = 1
    """Queue files that one pull looks into while it has found nothing, where the version can look into several."""


@dataclass(frozen=True)
class GetMessageResult:
    """The answer to a pull."""

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: tuple[StoredMessage, ...]


@dataclass(frozen=True)
class QueryResult:
    """The answer to a query by key."""

    messages: tuple[StoredMessage, ...]
    """Messages that the broker returns, by physical offset; the index knows hashes only, so any may be
    another message.
    """
    carries_key: tuple[bool, ...]
    """For each message, whether its record really has the key (or tag)."""
    indexed_physical_offsets: tuple[int, ...]
    """Offsets from the index, sorted; they may be repeated, and may point to discarded records."""
    never_ends: bool
    """A chain goes in a circle without a hit: the broker would look forever."""


DEFAULT_LIMITS = PullLimits()


class Reader(Closable):
    """Reads a store as a broker does; a context manager, for it keeps files open.

    Every answer raises UnreadableError where a file of the queue, the index or the log cannot be read, and one that
    needs queues in RocksDB raises UnsupportedError where the library that reads them is missing.
    """

    def __init__(
        self, store: Store, rules: BrokerRules, *, is_slave: bool, log_end: int | None = None, quickly: bool = False
    ) -> None:
        self.store = store
        self._quickly = quickly
        self.rules = rules
        self._is_slave = is_slave
        self._files = OpenFiles(store.view)
        self.log = Log(store, rules, self._files, log_end)
        self._queues: dict[QueueName, Queue] = {}

    def queues(self) -> tuple[QueueName, ...]:
        """Topic and queue id of every queue of the store, sorted."""
        return queue_names(self.store)

    def topics(self) -> tuple[str, ...]:
        """Topics that have queues, sorted."""
        return tuple(sorted({topic for topic, _ in self.queues()}))

    def message_by_unique_key(self, unique_key: str) -> tuple[str, QueryResult] | None:
        """The topic and messages that the index has for a producer's id, whichever topic that is; None for none."""
        known = (*self.topics(), *topics(read_config(self.store.view, TOPICS)))
        for topic in dict.fromkeys(known):
            result = self.query_message(topic, unique_key)
            if any(result.carries_key):
                return topic, result
        return None

    def queue(self, topic: str, queue_id: int) -> Queue:
        """A loaded queue; an empty one where there is none, as the broker makes it on being asked."""
        name = (topic, queue_id)
        if name not in self._queues:
            database = self.store.queue_database
            if database is not None and database.failure is RocksFailure.NO_LIBRARY:
                raise UnsupportedError(f"the consume queues are in RocksDB; {database.reason}")
            if database is not None and database.failure is not None:
                raise UnreadableError(f"{database.directory}: the consume queues in RocksDB: {database.reason}")
            source = QueueSource(self.store, self.rules, self._files, self.log.minimum)
            self._queues[name] = open_queue(source, name, quickly=self._quickly)
        return self._queues[name]

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int = DEFAULT_COUNT,
        tag_expression: str | None = None,
        limits: PullLimits = DEFAULT_LIMITS,
    ) -> GetMessageResult:
        """Pull messages from a queue offset on (`DefaultMessageStore#getMessage`).

        Args:
            max_count: messages wanted; the broker's own limits may make them fewer.
            tag_expression: `*`, None, or tags between `||`.

        Raises:
            UsageError: the expression names no tag.
        """
        asked_codes = _asked_codes(tag_expression)
        queue = self.queue(topic, queue_id)
        minimum, maximum = queue.min_queue_offset, queue.max_queue_offset
        outside = self._outside(queue_offset, minimum, maximum)
        if outside is not None:
            return GetMessageResult(*outside, minimum, maximum, ())
        batch = _Batch(self.log, limits, max_count)
        status = GetMessageStatus.NO_MATCHED_MESSAGE
        following = queue_offset
        examined_max = max(limits.unit_bytes_examined, max_count * queue.unit_size)
        for _ in range(limits.queue_files if self.rules.extra_files_per_pull else 1):
            if batch.bytes > 0 or following >= maximum:
                break
            units = queue.units_from(following, max_count)
            if units is None:
                status = GetMessageStatus.OFFSET_FOUND_NULL
                following = self._corrected(following, queue.next_file_queue_offset(following))
                break
            skip_below: int | None = None
            for unit in units:
                if following >= maximum or (unit.queue_offset - queue_offset) * queue.unit_size >= examined_max:
                    break
                skipped = skip_below is not None and unit.physical_offset < skip_below
                if (self.rules.limits_before_skipping or not skipped) and batch.is_full_for(unit):
                    break
                following = unit.queue_offset + unit.message_count
                if skipped:
                    continue
                if not _is_let_through(unit, asked_codes):
                    if batch.bytes == 0:
                        status = GetMessageStatus.NO_MATCHED_MESSAGE
                    continue
                message = message_of_unit(self.log, unit)
                if message is None:
                    if batch.bytes == 0:
                        status = GetMessageStatus.MESSAGE_WAS_REMOVING
                    skip_below = self.log.next_file_start(unit.physical_offset)
                    continue
                batch.add(message, unit)
                status = GetMessageStatus.FOUND
                skip_below = None
        return GetMessageResult(status, following, minimum, maximum, tuple(batch.messages))

    def _outside(self, queue_offset: int, minimum: int, maximum: int) -> tuple[GetMessageStatus, int] | None:
        """Status and next offset for a pull outside the queue; None inside it."""
        if maximum == 0:
            return GetMessageStatus.NO_MESSAGE_IN_QUEUE, self._corrected(queue_offset, 0)
        if queue_offset < minimum:
            return GetMessageStatus.OFFSET_TOO_SMALL, self._corrected(queue_offset, minimum)
        if queue_offset == maximum:
            return GetMessageStatus.OFFSET_OVERFLOW_ONE, queue_offset
        if queue_offset > maximum:
            restarts = self.rules.overflow_restarts_at_zero and minimum == 0
            return GetMessageStatus.OFFSET_OVERFLOW_BADLY, self._corrected(queue_offset, 0 if restarts else maximum)
        return None

    def _corrected(self, asked: int, suggested: int) -> int:
        """The next offset of a consumer (`#nextOffsetCorrection`)."""
        return asked if self._is_slave else suggested

    def query_message(
        self,
        topic: str,
        key: str,
        max_count: int = DEFAULT_COUNT,
        begin_ms: int = 0,
        end_ms: int = JAVA_LONG_MAX,
        *,
        by_tag: bool = False,
    ) -> QueryResult:
        """Messages by key, unique key or (where the version indexes them) whole tag string, oldest first.

        Raises:
            UsageError: the version does not index tags.
            UnsupportedError: the number of hash slots is neither given nor to be inferred.
        """
        if by_tag and not self.rules.index_tags:
            raise UsageError(f"brokers of version {self.rules.version} do not index tags")
        entries = self.store.index_files
        slot_count = self.store.index_slot_count
        if entries and not slot_count:
            if any(entry.size for entry in entries):
                raise UnsupportedError("the number of hash slots of the index cannot be inferred; pass --index-slots N")
            entries = ()
        text = index.tag_text(topic, key) if by_tag else index.key_text(topic, key)
        key_hash, count = index.key_hash(text), min(max_count, COUNT_MAX)
        hits: list[int] = []
        never_ends = False
        for entry in reversed(entries):
            file = IndexFile(partial(self._files.read, entry.path), slot_count or 1)
            first_ms, last_ms = file.header.begin_timestamp_ms, file.header.end_timestamp_ms
            is_inside = begin_ms < first_ms and end_ms > last_ms
            if is_inside or first_ms <= begin_ms <= last_ms or first_ms <= end_ms <= last_ms:
                file_hits, never_ends = _chain_hits(file, key_hash, count - len(hits), begin_ms, end_ms)
                hits += file_hits
            if first_ms < begin_ms or len(hits) >= count or never_ends:
                break
        hits.sort()
        messages = [] if never_ends else [message_at(self.log, at, first_file_for_zero=False) for at in hits]
        # The broker decodes the first one to learn its time, and passes it over where it cannot.
        if messages and (messages[0] is None or messages[0].record is None or not messages[0].record.is_decodable):
            messages[0] = None
        served = tuple(message for message in messages if message is not None)
        carries_key = (
            (record := message.record) is not None
            and record.topic == topic
            and (record.tags == key if by_tag else key in record.keys or key == record.unique_key)
            for message in served
        )
        return QueryResult(served, tuple(carries_key), tuple(hits), never_ends)

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """What is at a physical offset, None where nothing can be read (`DefaultMessageStore#lookMessageByOffset`)."""
        return message_at(self.log, physical_offset)

    def message_by_id(self, message_id: str) -> StoredMessage | None:
        """The bytes at an offset message id; None where nothing can be read.

        Raises:
            UsageError: the text is no such id.
        """
        try:
            parsed_id = parse_offset_message_id(message_id)
        except ValueError as error:
            raise UsageError(str(error)) from error
        return self.message_at(parsed_id.physical_offset)

    def offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """The queue offset of a time (`DefaultMessageStore#getOffsetInQueueByTime`)."""
        return self.queue(topic, queue_id).offset_by_time(self.log, timestamp_ms, boundary)

    def close(self) -> None:
        """Close the files."""
        self._files.close()


@dataclass
class _Batch:
    """Messages of a pull, with the check for room for one more unit."""

    _log: Log
    _limits: PullLimits
    _max_count: int
    messages: list[StoredMessage] = field(default_factory=list)
    bytes: int = 0
    _count: int = 0

    def add(self, message: StoredMessage, unit: QueueUnit) -> None:
        self.messages.append(message)
        self.bytes += unit.record_size
        self._count += unit.message_count

    def is_full_for(self, unit: QueueUnit) -> bool:
        if self.bytes == 0 or self._count == 0:
            return False
        total = self.bytes + unit.record_size
        if self._count + unit.message_count > self._max_count:
            return True
        bytes_max = self._log.rules.pull_bytes_max
        if bytes_max is not None and total > bytes_max:
            return True
        limits, memory = self._limits, self._limits.broker_memory_bytes
        if memory is not None and self._log.end - unit.physical_offset > memory * MEMORY_RATIO:
            return total > limits.bytes_on_disk or self._count > limits.count_on_disk - 1
        return total > limits.bytes_in_memory or self._count > limits.count_in_memory - 1


def _chain_hits(file: IndexFile, sought_hash: int, count: int, begin_ms: int, end_ms: int) -> tuple[list[int], bool]:
    """Physical offsets of up to `count` entries of a hash, newest first, and True if the broker loops forever.

    A circle is gone round as long as it brings hits, as the broker does.
    """
    hits: list[int] = []
    following = file.header.next_entry_number
    number = file.newest_entry(sought_hash)
    if number <= 0 or number > following or following <= 1:
        return hits, False
    # A sound chain only leads to lower numbers, so every circle contains a step upwards.
    hits_at_step_up: dict[int, int] = {}
    while len(hits) < count:
        key_hash, physical_offset, seconds, previous = file.entry(number)
        if seconds < 0:
            break
        time_ms = file.header.begin_timestamp_ms + seconds * 1000
        if key_hash == sought_hash and begin_ms <= time_ms <= end_ms:
            hits.append(physical_offset)
        if previous <= 0 or previous > following or previous == number or time_ms < begin_ms:
            break
        if previous > number:
            if number in hits_at_step_up:
                # What endless rounds through these hits would bring; a circle can have millions of entries.
                circle = hits[hits_at_step_up[number] :]
                while circle and len(hits) < count:
                    hits += circle[: count - len(hits)]
                return hits, not circle
            hits_at_step_up[number] = len(hits)
        number = previous
    return hits, False


def open_reader(store: Store, rules: BrokerRules, *, is_slave: bool = False, quickly: bool = False) -> Reader:
    """A reader over a surveyed store.

    Args:
        is_slave: a slave leaves the next offset to the consumer where the one asked for is out of range.
        quickly: see `open_queue`.

    Raises:
        UnsupportedError: the log is kept by DLedger.
    """
    demand_plain_log(store)
    return Reader(store, rules, is_slave=is_slave, quickly=quickly)
