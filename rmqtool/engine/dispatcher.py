"""Dispatches blocks of the log to every queue and to the index, as the broker's dispatcher does behind its log.

Broker: `DefaultMessageStore.ReputMessageService#doReput` and its dispatchers (`CommitLogDispatcherBuildConsumeQueue`,
`CommitLogDispatcherBuildIndex`).
"""

from __future__ import annotations

import os
from typing import Final

import numpy as np

from rmqtool.engine.batch_queue_writer import BatchQueueWriter
from rmqtool.engine.dispatch import (
    DispatchSettings,
    QueueEntries,
    RecordBytes,
    Rows,
    message_rows,
    queue_entries,
)
from rmqtool.engine.extension_writer import ExtensionEnd, ExtensionWriter
from rmqtool.engine.index_keys import index_entries
from rmqtool.engine.index_writer import IndexWriter
from rmqtool.engine.queue_writer import QueueEnd, QueueWriter, queue_end
from rmqtool.engine.reader import Reader
from rmqtool.engine.writer_config import WriterConfig
from rmqtool.errors import RmqtoolError
from rmqtool.formats.consumequeue import BATCH_UNIT_SIZE
from rmqtool.scan.log import COMPILED_FROM_BYTES, reader_for
from rmqtool.scan.piece import Piece
from rmqtool.scan.walk import Walk
from rmqtool.store.sink import FileSink
from rmqtool.store.source import BytesSource

CONSUMEQUEUE: Final = "consumequeue"
EXTENSION: Final = "consumequeue_ext"
BATCH_CONSUMEQUEUE: Final = "batchconsumequeue"
_Queue = tuple[str, int]


class Dispatcher:
    """The ends of all queues and of the index, open for appending.

    Attributes:
        last_store_timestamp_ms, last_physical_offset: of the last record that was dispatched; 0 before the first.
    """

    def __init__(
        self,
        sink: FileSink,
        settings: DispatchSettings,
        config: WriterConfig,
        index: IndexWriter | None,
        existing: Reader | None,
    ) -> None:
        """`existing` reads the queues that are there already; they are opened when a record first reaches them."""
        self._sink = sink
        self._settings = settings
        self._config = config
        self._existing = existing
        self.index = index
        self._queues: dict[_Queue, QueueWriter] = {}
        self._batch_queues: dict[_Queue, BatchQueueWriter] = {}
        self._extensions: dict[_Queue, ExtensionWriter] = {}
        self._touched: set[str] = set()
        self._dispatched_bytes = 0
        self.last_store_timestamp_ms = 0
        self.last_physical_offset = 0

    def dispatch(self, physical_offset: int, block: bytes) -> None:
        """Dispatch a run of whole records that lies at a physical offset.

        Raises:
            WriteError: the sink does not take it.
            RmqtoolError: the block is not a run of good records.
        """
        self._dispatched_bytes += len(block)
        make_reader = reader_for(
            self._dispatched_bytes, None if self._dispatched_bytes >= COMPILED_FROM_BYTES else False
        )
        piece = Piece(BytesSource("block", block), 0, len(block), physical_offset)
        walk = Walk(piece, make_reader(), self._config.delays_ms, block_size=len(block))
        texts = RecordBytes(np.frombuffer(block, np.uint8), physical_offset)
        covered = 0
        for batch in walk.batches():
            rows = message_rows(batch.as_array())
            covered += int(rows["size"].sum())
            self._dispatch_rows(rows, batch.topics, texts)
        if covered != len(block):
            raise RmqtoolError(
                f"a block at {physical_offset} holds more than good records: nothing behind them was dispatched"
            )

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """The next queue offset of a queue as its files say."""
        if self._existing is None:
            return 0
        name = (topic, queue_id)
        if name in self._existing.store.queues or name in self._existing.store.batch_queues:
            return self._existing.queue(topic, queue_id).max_queue_offset
        return 0

    def sync(self) -> None:
        """Return once everything that was dispatched is on the disk."""
        if self.index is not None:
            self.index.flush()
            self._touch(self.index.current.path if self.index.current else None)
            self._touched.update(self.index.full_paths)
            self.index.full_paths.clear()
        for path in sorted(self._touched):
            self._sink.sync(path)
        self._touched.clear()

    def finish(self, *, clean: bool) -> None:
        """Leave queues and index as a broker does that ends cleanly, or is killed."""
        if self.index is not None:
            self.index.finish(clean=clean)
            self._touch(self.index.current.path if self.index.current else None)

    def _dispatch_rows(self, rows: Rows, topics: list[bytes], texts: RecordBytes) -> None:
        if not rows.size:
            return
        for entries in queue_entries(rows, topics, texts, self._settings):
            self._put(entries)
        if self.index is not None:
            self.index.put(index_entries(rows, topics, texts, self._settings.rules))
        self.last_store_timestamp_ms = int(rows["store_timestamp_ms"][-1])
        self.last_physical_offset = int(rows["physical_offset"][-1])

    def _put(self, entries: QueueEntries) -> None:
        name = (os.fsdecode(entries.topic), entries.queue_id)
        if entries.is_batch:
            batch_writer = self._batch_queues.get(name) or self._open_batch_queue(name)
            batch_writer.put(entries)
            self._touch(batch_writer.last_path)
            return
        writer = self._queues.get(name) or self._open_queue(name)
        tags_codes = None
        if self._config.extension:
            extension = self._extensions.get(name) or self._open_extension(name)
            tags_codes = extension.put(entries.tags_codes, entries.store_timestamps_ms)
            self._touch(extension.last_path)
        writer.put(entries, tags_codes)
        self._touch(writer.last_path)

    def _touch(self, path: str | None) -> None:
        if path is not None:
            self._touched.add(path)

    def _open_queue(self, name: _Queue) -> QueueWriter:
        end = self._existing_end(name)
        directory = f"{CONSUMEQUEUE}/{name[0]}/{name[1]}"
        writer = QueueWriter(self._sink, directory, self._config.consumequeue_file_size, self._settings.rules, end)
        return self._queues.setdefault(name, writer)

    def _open_batch_queue(self, name: _Queue) -> BatchQueueWriter:
        end = self._existing_end(name)
        directory = f"{BATCH_CONSUMEQUEUE}/{name[0]}/{name[1]}"
        file_size = self._config.batch_file_size // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE
        return self._batch_queues.setdefault(name, BatchQueueWriter(self._sink, directory, file_size, end))

    def _open_extension(self, name: _Queue) -> ExtensionWriter:
        end: ExtensionEnd | None = None
        if self._existing is not None and name in self._existing.store.extensions:
            end = self._existing.extension_end(*name)
        directory = f"{EXTENSION}/{name[0]}/{name[1]}"
        return self._extensions.setdefault(
            name, ExtensionWriter(self._sink, directory, self._config.extension_file_size, end)
        )

    def _existing_end(self, name: _Queue) -> QueueEnd | None:
        if self._existing is None:
            return None
        store = self._existing.store
        if name not in store.queues and name not in store.batch_queues:
            return None
        return queue_end(self._existing.queue(*name).loaded, self._settings.rules)
