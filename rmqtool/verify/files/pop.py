"""Checks what pop consumers hold, in revive topics and in RocksDB: what stops a broker there, and what has expired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rmqtool.engine.reading.reader import Reader, open_reader
from rmqtool.engine.reading.unread_files import ReadBy, UnreadFiles, has_to_open, read_by_after
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.timers.pop import PopState, database_messages, popped_messages, read_pop_log
from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.formats.pop import REVIVE_TOPIC
from rmqtool.store.databases.pop_database import DIRECTORY, PopDatabase
from rmqtool.store.databases.rocksdb import RocksFailure
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.verify.catalog.finding import Finding
from rmqtool.verify.catalog.registry import finding

_FINDINGS_MAX: Final = 100


@dataclass
class PopCheck:
    """One check of what pop consumers hold.

    Attributes:
        failure: why the database was not read to its end, as a sentence; empty where it was, or there is none.
        read_by: what would read it then.
    """

    store: Store
    rules: BrokerRules
    failure: str = ""
    read_by: ReadBy = ReadBy.BROKER

    @property
    def left_out(self) -> tuple[UnreadFiles, ...]:
        """The database where it was not read to its end."""
        unread = UnreadFiles(DIRECTORY, FileKind.POP_ROCKSDB.value, self.failure, self.read_by)
        return (unread,) if self.failure else ()

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
                    yield from _of_topics(reader)
                if database is not None:
                    yield from _of_database(reader, database)
        except UnsupportedError as error:  # queues that are not read, which has a finding of its own
            self.failure = str(error) if database is not None else ""
        except UnreadableError as error:
            yield finding("store.unreadable", f"consumequeue/{REVIVE_TOPIC}", str(error))
        if database is not None and database.failure is not None:
            self.failure = f"what pop consumers have in RocksDB: {database.reason}"
            self.read_by = read_by_after(database.failure)


def _of_topics(reader: Reader) -> Iterator[Finding]:
    # What waits in the timer comes to these topics once its time is over.
    log = read_pop_log(reader, ())
    for record in log.bad_records[:_FINDINGS_MAX]:
        place: dict[str, Any] = {"queue_offset": record.queue_offset}
        place["physical_offset"] = record.place.physical_offset
        yield _at("pop.bad-record", "no check point and no acknowledgement", record.topic, record.queue_id, place)
    expired = Counter(
        (message.key.topic, message.key.queue_id)
        for message in popped_messages(reader, log)
        if message.state is PopState.EXPIRED and message.check_point and log.is_due(message.check_point)
    )
    yield from _expired(expired)


def _of_database(reader: Reader, database: PopDatabase) -> Iterator[Finding]:
    expired = Counter(
        (message.key.topic, message.key.queue_id)
        for message in database_messages(reader, database.rows())
        if message.state is PopState.EXPIRED
    )
    yield from _expired(expired)
    if database.odd_row_count:
        text = f"{database.odd_row_count} rows, the first: {database.odd_row}"
        yield finding("pop.odd-row", DIRECTORY, text, count=database.odd_row_count)
    if database.failure is RocksFailure.DOES_NOT_OPEN:
        yield finding("pop.not-loadable", DIRECTORY, database.reason)


def _expired(counts: Counter[tuple[str, int]]) -> Iterator[Finding]:
    for (topic, queue_id), count in counts.items():
        yield _at("pop.expired-message", "no consumer acknowledged them", topic, queue_id, {"count": count})


def _at(kind: str, text: str, topic: str, queue_id: int, more: dict[str, Any]) -> Finding:
    return finding(kind, f"consumequeue/{topic}/{queue_id}", text, topic=topic, queue_id=queue_id, **more)
