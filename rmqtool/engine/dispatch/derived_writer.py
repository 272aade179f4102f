"""Writes all that is derived from the log, from rows of records: queues, extensions, batch queues and the index.

Broker: `DefaultMessageStore#doDispatch`. A queue is opened when its first record comes, at the end that the caller
knows of, so that a new store, a store that is continued and one that is made again go the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Final, cast

from rmqtool.engine.dispatch.extension_writer import ExtensionEnd, ExtensionWriter
from rmqtool.engine.dispatch.index_entries import IndexEntries, index_entries
from rmqtool.engine.dispatch.index_writer import IndexWriter
from rmqtool.engine.dispatch.queue_entries import (
    AnyRows,
    DispatchSettings,
    QueueEntries,
    RowBytes,
    Rows,
    joined_entries,
    queue_entries,
)
from rmqtool.engine.dispatch.queue_writer import BatchQueueWriter, QueueEnd, QueueWriter
from rmqtool.errors import WriteError
from rmqtool.formats.consumequeue import BATCH_UNIT_SIZE, DEFAULT_FILE_UNITS, UNIT_SIZE
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.queue_name import QueueKey, QueueName, TypedQueueKey
from rmqtool.store.file_kinds import segment_name
from rmqtool.store.sink import TrackingSink, check_path

HELD_ROWS_MAX: Final = 1 << 18
"""Rows whose queue entries are held back: with thousands of queues a batch has but a few for each."""
QUEUES, EXTENSIONS, BATCH_QUEUES = "consumequeue", "consumequeue_ext", "batchconsumequeue"


@dataclass(frozen=True)
class DerivedSizes:
    """Bytes of full files. `extension` is None where the store has no extensions (`enableConsumeQueueExt`)."""

    queue: int = DEFAULT_FILE_UNITS * UNIT_SIZE
    batch: int = DEFAULT_FILE_UNITS * BATCH_UNIT_SIZE
    extension: int | None = None


@dataclass(frozen=True)
class QueueEnds:
    """Where a queue and its extension continue."""

    queue: QueueEnd
    extension: ExtensionEnd = field(default_factory=ExtensionEnd)


@dataclass(frozen=True)
class DerivedEntries:
    """Entries of some log rows for queues and index; `index` is None where none is written."""

    queues: list[QueueEntries]
    index: IndexEntries | None
    row_count: int


@dataclass(frozen=True)
class EntrySelector:
    """Finds the entries of log rows for queues and index; stateless, so any thread or machine may use it."""

    settings: DispatchSettings
    with_queues: bool = True
    with_index: bool = True

    def __call__(
        self, rows: AnyRows, topics: Sequence[bytes], texts: RowBytes, index: IndexEntries | None = None
    ) -> DerivedEntries:
        """Entries of the rows; `index` where it is known already."""
        queues = queue_entries(rows, topics, texts, self.settings) if self.with_queues else []
        if self.with_index and index is None:
            index = index_entries(cast("Rows", rows), topics, texts, self.settings.rules)
        return DerivedEntries(queues, index, rows.size)


QueueEndOf = Callable[[str, int, bool], QueueEnds]
"""The ends of a queue by (topic, queue id, whether it is a batch queue)."""


@dataclass(frozen=True)
class _Queue:
    writer: QueueWriter
    extension: ExtensionWriter | None


@dataclass(eq=False)
class DerivedWriter:
    """The derived files of one store; none is opened before it is written.

    What writes raises WriteError where the sink does not take it.

    Attributes:
        index: None where no index is to be written (`messageIndexEnable`).
        ends: those of the queues that are there; by default there is none yet.
        with_queues: False writes the index only.
        wants: tells by (topic, queue id) which queues are written; None writes all.
        make_queue, make_batch: make the writer of a plain or a batch queue, with the arguments of their classes.
        dispatching: what `put_entries` is given comes from it.
        refused: why nothing is written for a queue, by (topic, queue id): its name leads out of the store.
    """

    _sink: TrackingSink
    _sizes: DerivedSizes
    _settings: DispatchSettings
    index: IndexWriter | None
    ends: QueueEndOf = lambda *_: QueueEnds(QueueEnd())
    _: KW_ONLY
    with_queues: InitVar[bool] = True
    wants: Callable[[str, int], bool] | None = None
    make_queue: Callable[..., QueueWriter] = QueueWriter
    make_batch: Callable[..., BatchQueueWriter] = BatchQueueWriter
    refused: dict[QueueName, str] = field(default_factory=dict)
    _queues: dict[QueueKey, _Queue] = field(default_factory=dict)
    _batch_queues: dict[QueueKey, BatchQueueWriter] = field(default_factory=dict)
    _held: dict[TypedQueueKey, list[QueueEntries]] = field(default_factory=dict)
    _held_rows: int = 0

    def __post_init__(self, with_queues: bool) -> None:
        self.dispatching = EntrySelector(self._settings, with_queues, self.index is not None)

    def queues(self) -> Iterator[tuple[str, int, QueueWriter | BatchQueueWriter]]:
        """The queues that were opened, as (topic, queue id, writer)."""
        for (topic, queue_id), queue in self._queues.items():
            yield decode_java_utf8(topic), queue_id, queue.writer
        for (topic, queue_id), batch in self._batch_queues.items():
            yield decode_java_utf8(topic), queue_id, batch

    def put(self, rows: Rows, topics: Sequence[bytes], texts: RowBytes) -> None:
        """Dispatch rows of the log, which follow those of the call before. Nothing need be written before `flush`."""
        self.put_entries(self.dispatching(rows, topics, texts))

    def put_entries(self, entries: DerivedEntries) -> None:
        """Enter the entries from `dispatching`, in the order of the log, as `put` does."""
        for group in entries.queues:
            if self.wants is not None and not self.wants(decode_java_utf8(group.topic), group.queue_id):
                continue
            self._held.setdefault((group.topic, group.queue_id, group.is_batch), []).append(group)
        self._held_rows += entries.row_count
        if self._held_rows >= HELD_ROWS_MAX:
            self._flush_queues()
        if self.index is not None and entries.index is not None:
            self.index.put(entries.index)

    def flush(self) -> None:
        """Write everything that was put, the index's current file whole."""
        self._flush_queues()
        if self.index is not None:
            self.index.flush()

    def sync(self) -> None:
        """Return once everything that was put is on the disk."""
        self.flush()
        self._sink.sync_written()

    def finish(self, *, clean: bool) -> None:
        """Leave the files as a broker does that ends cleanly, or is killed."""
        self._flush_queues()
        if self.index is not None:
            self.index.finish(clean=clean)

    def _flush_queues(self) -> None:
        held, self._held, self._held_rows = self._held, {}, 0
        for parts in held.values():
            self._put_queue(joined_entries(parts))

    def _put_queue(self, entries: QueueEntries) -> None:
        key = (entries.topic, entries.queue_id)
        if entries.is_batch:
            batch = self._batch_queues.get(key) or self._open_batch(key)
            if batch is not None:
                batch.put(entries)
            return
        queue = self._queues.get(key) or self._open(key)
        if queue is None:
            return
        if queue.extension is None:
            queue.writer.put(entries)
            return
        # Only a record's own queue gets a unit in the extension; it gets one even if the queue ignores the record.
        own = entries.own & queue.writer.shows(entries)
        tags_codes = entries.tags_codes.copy()
        tags_codes[own] = queue.extension.put(entries.tags_codes[own], entries.store_timestamps_ms[own])
        queue.writer.put(entries, tags_codes)

    def _open(self, key: QueueKey) -> _Queue | None:
        directory = self._directory(QUEUES, key)
        if directory is None:
            return None
        ends = self.ends(decode_java_utf8(key[0]), key[1], False)
        extension = None
        if self._sizes.extension is not None:
            place = EXTENSIONS + directory.removeprefix(QUEUES)
            extension = ExtensionWriter(self._sink, place, self._sizes.extension, ends.extension)
        writer = self.make_queue(self._sink, directory, self._sizes.queue, self._settings.rules, ends.queue)
        self._queues[key] = _Queue(writer, extension)
        return self._queues[key]

    def _open_batch(self, key: QueueKey) -> BatchQueueWriter | None:
        directory = self._directory(BATCH_QUEUES, key)
        if directory is None:
            return None
        end = self.ends(decode_java_utf8(key[0]), key[1], True).queue
        self._batch_queues[key] = self.make_batch(self._sink, directory, self._sizes.batch, end)
        return self._batch_queues[key]

    def _directory(self, root: str, key: QueueKey) -> str | None:
        """Path of a queue; None where its name cannot be that of a directory."""
        try:
            return queue_directory(root, *key)
        except WriteError as error:
            self.refused[decode_java_utf8(key[0]), key[1]] = str(error)
        return None


def queue_directory(root: str, raw_topic: bytes, queue_id: int) -> str:
    """Path of a queue.

    Raises:
        WriteError: its name is none that a directory can have.
    """
    topic = decode_java_utf8(raw_topic)
    directory = f"{root}/{topic}/{queue_id}"
    if len(check_path(f"{directory}/{segment_name(0)}")) != 4:
        raise WriteError(f"{topic[:80]!r}: a topic with a slash in it")
    return directory
