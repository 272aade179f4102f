"""Dispatches blocks of a log that is being written: the block is scanned as any log is, and its rows are dispatched.

The end of a log that no queue leads to yet, whose dispatch a stop left undone, is dispatched likewise.

Broker: `DefaultMessageStore.ReputMessageService#doReput`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.dispatch.derived_writer import QUEUES, DerivedSizes, DerivedWriter, QueueEnds, queue_directory
from rmqtool.engine.dispatch.extension_writer import ExtensionEnd
from rmqtool.engine.dispatch.index_writer import IndexWriter
from rmqtool.engine.dispatch.queue_entries import DispatchSettings, batch_bytes
from rmqtool.engine.dispatch.queue_writer import QueueEnd, queue_end
from rmqtool.engine.queues.file_queue import FileQueue
from rmqtool.engine.reading.reader import Reader
from rmqtool.engine.rules.topic_names import is_deleted
from rmqtool.errors import RefusedError, RmqtoolError, WriteError
from rmqtool.formats import system_flag
from rmqtool.formats.commitlog import MAGIC_BLANK
from rmqtool.formats.consumequeue import BATCH_UNIT_SIZE
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.scan import walk
from rmqtool.scan.blocks import Window
from rmqtool.scan.columns import Row
from rmqtool.scan.judge import TopicTable
from rmqtool.scan.log import is_compiled_faster, reader_for
from rmqtool.scan.row_columns import message_rows
from rmqtool.scan.rules import Verdict
from rmqtool.scan.split import Split
from rmqtool.scan.walk import PlainReader, Walk
from rmqtool.store.config.config_json import whole_topics
from rmqtool.store.config.config_kinds import TOPICS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Segment, Store
from rmqtool.store.sink import FileSink, TrackingSink
from rmqtool.store.source import BytesSource, read_range


class LogDispatcher:
    """The ends of all queues and of the index, open for appending.

    Attributes:
        derived: writes them.
        existing: reads the queues that are there already; each is opened where it ends when a record first reaches it.
        last_store_timestamp_ms, last_physical_offset: of the last record that a queue was given; 0 before the first.
    """

    def __init__(
        self,
        sink: FileSink,
        settings: DispatchSettings,
        config: WriterConfig,
        index: IndexWriter | None,
        existing: Reader | None,
    ) -> None:
        sizes = DerivedSizes(
            config.consumequeue_file_size,
            config.batch_file_size // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE,
            config.extension_file_size if config.extension else None,
        )
        self.derived = DerivedWriter(TrackingSink(sink), sizes, settings, index, self._ends)
        self._config = config
        self._rules = settings.rules
        self.existing = existing
        self._dispatched_bytes = 0
        self._topics = TopicTable()
        self._judges: walk.RecordReader = PlainReader()
        self._is_ready_for_much = False
        self.last_store_timestamp_ms = 0
        self.last_physical_offset = 0

    @property
    def index_timestamp_ms(self) -> int | None:
        """Last store time in the latest index file that became full; None before."""
        return self.derived.index.full_timestamp_ms if self.derived.index is not None else None

    def dispatch(self, physical_offset: int, block: bytearray, *, with_index: bool = True) -> None:
        """Dispatch a run of whole records that lies at a physical offset.

        Args:
            with_index: False where the broker ends before it comes to the index.

        Raises:
            WriteError: the sink does not take it.
            RmqtoolError: the block is not a run of good records.
        """
        self.expect(self._dispatched_bytes + len(block))
        self._dispatched_bytes += len(block)
        source = BytesSource("block", block)
        # Topics and reader go from block to block: a reader leaves the first record of each topic to the slow judge.
        block_walk = walk.Walk(
            Split(source, 0, len(block), physical_offset),
            self._judges,
            self._config.delays_ms,
            block_size=len(block),
            topics=self._topics,
            at_hand=Window.over(source, block),
        )
        covered = 0
        for batch in block_walk.batches():
            rows = message_rows(batch.as_array())
            if rows.size:
                covered += int(rows["size"].sum())
                entries = self.derived.dispatching(rows, batch.topics, batch_bytes(batch))
                self.derived.put_entries(entries if with_index else replace(entries, index=None))
                # A queue tells the checkpoint of what it was given; prepared and rolled back records are in none.
                kinds = rows["sys_flag"] & system_flag.TRANSACTION_MASK
                given = rows[(kinds == 0) | (kinds == system_flag.TRANSACTION_COMMIT)]
                if given.size:
                    self.last_store_timestamp_ms = int(given["store_timestamp_ms"][-1])
                    self.last_physical_offset = int(given["physical_offset"][-1])
        if covered != len(block):
            raise RmqtoolError(f"a block at {physical_offset} holds damaged records: only a part of it was dispatched")

    def expect(self, log_bytes: int) -> None:
        """Get ready for so many bytes of the log in all."""
        if not self._is_ready_for_much and is_compiled_faster(log_bytes):
            self._judges = reader_for(log_bytes)
            self._is_ready_for_much = True

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """The next queue offset of a queue as its files say."""
        name, store = (topic, queue_id), self.existing.store if self.existing is not None else None
        if self.existing is None or store is None or not (name in store.queues or name in store.batch_queues):
            return 0
        return self.existing.queue(topic, queue_id).max_queue_offset

    def _ends(self, topic: str, queue_id: int, _is_batch: bool) -> QueueEnds:
        if self.existing is None:
            return QueueEnds(QueueEnd())
        name, store = (topic, queue_id), self.existing.store
        extension = store.extensions.get(name)
        if not (name in store.queues or name in store.batch_queues):
            # The extension of a queue that is loaded without files of its own continues after its last file
            # (`ConsumeQueue#recover`). Without the directory a broker makes the queue when it needs it, and loads
            # nothing.
            if extension is None or f"consumequeue/{topic}/{queue_id}" not in store.directories:
                return QueueEnds(QueueEnd(), ExtensionEnd())
            last = extension.segments[-1]
            end = last.start + self._config.extension_file_size
            return QueueEnds(QueueEnd(), ExtensionEnd(last.start, end, last.path))
        queue = self.existing.queue(topic, queue_id)
        assert queue.loaded is not None, "queues in RocksDB are not read"
        own_end = queue_end(queue.loaded, self._rules)
        if extension is None:
            return QueueEnds(own_end, ExtensionEnd())
        # After the unit that the queue's last unit refers to (`ConsumeQueueExt#truncateByMaxAddress`).
        unit_end = queue.extension_end() if isinstance(queue, FileQueue) else None
        if unit_end is None:
            path = extension.segments[-1].path
            raise RefusedError(f"{path}: no unit of the queue points here; run rmqtool recover first")
        last = [segment for segment in extension.segments if segment.start <= unit_end][-1]
        return QueueEnds(own_end, ExtensionEnd(last.start, unit_end, last.path))


def waits_for_dispatch(store: Store, begin: int, end: int) -> bool:
    """True if a record between two physical offsets belongs into a queue and may have no unit there.

    Prepared and rolled back ones belong into none, nor do those of deleted topics, which the whole configuration does
    not have; and no directory can have the name of every topic. A tombstone has its unit since the repair that made
    it, but none that points to it.
    """
    whole = whole_topics(read_config(store.view, TOPICS))
    for _, rows, topics in _records(store, begin, end):
        for row in rows:
            topic = topics[row.topic_number]
            if not system_flag.takes_queue_entry(row.sys_flag) or row.prepared_transaction_offset == TOMBSTONE:
                continue
            try:
                has_directory = bool(queue_directory(QUEUES, topic, row.queue_id))
            except WriteError:
                has_directory = False
            if has_directory and not is_deleted(decode_java_utf8(topic), whole):
                return True
    return False


def dispatch_from(store: Store, dispatcher: LogDispatcher, begin: int, end: int) -> None:
    """Dispatch the records between two physical offsets, block by block.

    Raises:
        UnreadableError: a file cannot be read.
        WriteError: the queues or the index do not take it.
    """
    for segment, rows, _ in _records(store, begin, end):
        start, behind = rows[0].physical_offset, rows[-1].physical_offset + rows[-1].size
        with closing(store.view.open(segment.path)) as source:
            block = read_range(source, start - segment.start, behind - start)
        dispatcher.dispatch(start, bytearray(block))


def _records(store: Store, begin: int, end: int) -> Iterator[tuple[Segment, list[Row], Sequence[bytes]]]:
    """Adjacent records with their topics, up to the first range that is not a record."""
    for segment in store.commitlog:
        first, last = max(begin, segment.start), min(end, segment.end)
        if first >= last:
            continue
        with closing(store.view.open(segment.path)) as source:
            split = Split(source, first - segment.start, last - segment.start, segment.start)
            for batch in Walk(split, PlainReader()).batches():
                rows = batch.as_rows()
                good = [row for row in rows if row.verdict == Verdict.GOOD and row.magic != MAGIC_BLANK]
                if good:
                    yield segment, good, batch.topics
                if any(row.verdict != Verdict.GOOD for row in rows):
                    return
