"""Answers of a broker over a store: pulls, queries by key, messages by place, offsets by time.

What is answered is what a broker of the given version would answer right after load, if that changed nothing; what load
would change is for the room `forecast` to say.
"""

from __future__ import annotations

from rmqtool.engine.queues.kinds import QueueSource, open_queue, queue_names
from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.queues.unit import Boundary
from rmqtool.engine.reading.pull import GetMessageResult, PullLimits, parse_tag_filter, pull
from rmqtool.engine.reading.query import DEFAULT_COUNT, QueryResult, query
from rmqtool.engine.reading.stored_message import StoredMessage, message_at
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError, UnsupportedError, UsageError
from rmqtool.formats.message_id import parse_offset_message_id
from rmqtool.formats.queue_name import QueueName
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.store.config.config_json import TOPICS, topics
from rmqtool.store.config.read_config import read_config
from rmqtool.store.databases.rocksdb import RocksFailure
from rmqtool.store.directory import Store
from rmqtool.store.dledger_files import demand_plain_log
from rmqtool.store.source import Closable

DEFAULT_LIMITS = PullLimits()


class Reader(Closable):
    """Reads a store as a broker does; a context manager, for it keeps files open."""

    def __init__(
        self, store: Store, rules: BrokerRules, *, is_slave: bool, log_end: int | None, quickly: bool = False
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
        """The topic and messages that the index has for a producer's id, whichever topic that is; None for none.

        Raises:
            UnsupportedError, UnreadableError: see `query_message`.
        """
        known = (*self.topics(), *topics(read_config(self.store.view, TOPICS)))
        for topic in dict.fromkeys(known):
            result = self.query_message(topic, unique_key)
            if any(result.carries_key):
                return topic, result
        return None

    def queue(self, topic: str, queue_id: int) -> Queue:
        """A loaded queue; an empty one where there is none, as the broker makes it on being asked.

        Raises:
            UnsupportedError: the queues are in RocksDB, and the library that reads it is missing.
            UnreadableError: a file of the queue, or the database, cannot be read.
        """
        name = (topic, queue_id)
        if name not in self._queues:
            self._demand_queues()
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
            UnsupportedError: see `queue`.
            UnreadableError: a file cannot be read.
        """
        tag_filter = parse_tag_filter(tag_expression)
        queue = self.queue(topic, queue_id)
        return pull(queue, self.log, self.rules, queue_offset, max_count, tag_filter, limits, self._corrected)

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
            UnreadableError: a file cannot be read.
        """
        if by_tag and not self.rules.index_tags:
            raise UsageError(f"brokers of version {self.rules.version} do not index tags")
        entries = self.store.index_files
        slot_count = self.store.index_slot_count
        if entries and not slot_count:
            if any(entry.size for entry in entries):
                raise UnsupportedError("the number of hash slots of the index cannot be inferred; pass --index-slots N")
            entries = ()
        return query(
            entries, slot_count or 1, self._files, self.log, topic, key, max_count, begin_ms, end_ms, by_tag=by_tag
        )

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """What lies at a physical offset; None where nothing can be read (`DefaultMessageStore#lookMessageByOffset`).

        Raises:
            UnreadableError: the disk does not give it.
        """
        return message_at(self.log, physical_offset)

    def message_by_id(self, message_id: str) -> StoredMessage | None:
        """What lies where an offset message id points; None where nothing can be read.

        Raises:
            UsageError: the text is no such id.
            UnreadableError: the disk does not give it.
        """
        try:
            parsed_id = parse_offset_message_id(message_id)
        except ValueError as error:
            raise UsageError(str(error)) from error
        return self.message_at(parsed_id.physical_offset)

    def offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """The queue offset of a time (`DefaultMessageStore#getOffsetInQueueByTime`).

        Raises:
            UnsupportedError: see `queue`.
            UnreadableError: a file cannot be read.
        """
        return self.queue(topic, queue_id).offset_by_time(self.log, timestamp_ms, boundary)

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def _demand_queues(self) -> None:
        database = self.store.queue_database
        if database is not None and database.failure is RocksFailure.NO_LIBRARY:
            raise UnsupportedError(f"the consume queues are in RocksDB; {database.reason}")
        if database is not None and database.failure is not None:
            raise UnreadableError(f"{database.directory}: the consume queues in RocksDB: {database.reason}")

    def _corrected(self, asked: int, suggested: int) -> int:
        return asked if self._is_slave else suggested


def open_reader(
    store: Store, rules: BrokerRules, *, is_slave: bool = False, log_end: int | None = None, quickly: bool = False
) -> Reader:
    """A reader over a surveyed store.

    Args:
        rules: the broker version that is to answer.
        is_slave: a slave leaves the next offset to the consumer where the one asked for is out of range.
        log_end: physical offset at which the log ends for reading; None reads whatever the files hold.
        quickly: see `open_queue`.

    Raises:
        UnsupportedError: the log is kept by DLedger.
    """
    demand_plain_log(store)
    return Reader(store, rules, is_slave=is_slave, log_end=log_end, quickly=quickly)
