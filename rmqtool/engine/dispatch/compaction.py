"""Compacted topics: which messages of the commit log a broker puts into their own log and queue, and how.

Broker: `CompactionLog#asyncPutMessage`, `CompactionLog.CompactionAppendMessageCallback`,
`SparseConsumeQueue#putEndPositionInfo`.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np

from rmqtool.formats.commitlog import BLANK_SIZE_MIN, MAGIC_BLANK, PHYSICAL_OFFSET_AT
from rmqtool.formats.consumequeue import BATCH_UNIT, BATCH_UNIT_SIZE
from rmqtool.formats.queue_name import QueueName, topic_bytes
from rmqtool.scan.log import ScanOptions, carries_record_crc, plan_segments, scan_log
from rmqtool.scan.row_columns import message_rows
from rmqtool.store.directory import Segment, Settings, Store
from rmqtool.store.file_kinds import segment_name

LOG_DIRECTORY: Final = "compaction/compactionLog"
QUEUE_DIRECTORY: Final = "compaction/compactionCq"
_UNIT: Final = Struct(BATCH_UNIT.struct_code)
_END_UNIT: Final = _UNIT.pack(-1, 0, 0, 0, 0, 0, -1, 0)
_BLANK: Final = Struct(">ii")
FILES_MIN: Final = 5
"""Queue files that a log file is as long as, at least."""
_COLUMNS: Final = ("queue_offset", "size", "body_length", "tags_code", "store_timestamp_ms")
_LOG_SETTING: Final = 100 << 20
_QUEUE_SETTING: Final = 10 << 20


class CompactedMessage(NamedTuple):
    """A message as a compacted topic's log has it; `raw` is its record."""

    queue_offset: int
    size: int
    key: bytes
    has_body: bool
    tags_code: int
    store_timestamp_ms: int
    raw: bytes


class FileSizes(NamedTuple):
    """Bytes of the files of all compacted topics."""

    log: int
    queue: int


def configured_sizes(settings: Settings) -> FileSizes | None:
    """Sizes by `compactionMappedFileSize` and `compactionCqMappedFileSize`; None where neither is given."""
    if not (settings.compaction_log_file_size or settings.compaction_queue_file_size):
        return None
    return broker_sizes(settings)


def broker_sizes(settings: Settings = Settings()) -> FileSizes:  # noqa: B008 - it is frozen
    """What a broker with these settings writes; its default for what they do not name."""
    queue = (settings.compaction_queue_file_size or _QUEUE_SETTING) // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE
    count, rest = divmod(settings.compaction_log_file_size or _LOG_SETTING, max(queue, 1))
    if count < FILES_MIN:
        return FileSizes(FILES_MIN * queue, queue)
    return FileSizes((count if 0 < rest < queue // 2 else count + 1) * queue, queue)


def keyed_messages(
    store: Store, names: AbstractSet[str], *, with_raw: bool, compacted: Segment | None = None
) -> Iterator[tuple[QueueName, CompactedMessage]]:
    """Good messages of topics that have keys, in the order of the log.

    Args:
        with_raw: whether the records are needed.
        compacted: read this file of a compacted log; None: the commit log.
    """
    chosen = {topic_bytes(name): name for name in names}
    with closing(plan_segments(store.view.open, store.commitlog if compacted is None else [compacted])) as plan:
        # A record's own CRC does not hold where a compacted log has given it another place.
        record_crc = compacted is None and carries_record_crc(plan.splits)
        for batch in scan_log(plan, ScanOptions(record_crc=record_crc)):
            numbers = [number for number, raw in enumerate(batch.topics) if raw in chosen]
            if not numbers or not len(batch.rows):
                continue
            rows = message_rows(batch.as_array())
            rows = rows[np.isin(rows["topic_number"], numbers) & (rows["keys_length"] > 0)]
            places = rows["physical_offset"].tolist()
            keys = batch.read_many(places, rows["keys_position"].tolist(), rows["keys_length"].tolist())
            raws = batch.read_many(places, [0] * len(rows), rows["size"].tolist()) if with_raw else [b""] * len(rows)
            for row, key, raw in zip(rows, keys, raws, strict=True):
                if key.strip():
                    yield _named(row, chosen[batch.topics[row["topic_number"]]]), _message(row, key, raw)


def _named(row: Any, topic: str) -> QueueName:
    return topic, int(row["queue_id"])


def _message(row: Any, key: bytes, raw: bytes) -> CompactedMessage:
    queue_offset, size, body_length, tags_code, store_timestamp_ms = (int(row[name]) for name in _COLUMNS)
    return CompactedMessage(queue_offset, size, key, body_length > 0, tags_code, store_timestamp_ms, raw)


class CompactionWriter:
    """Writes log and queue of a compacted topic's queue as a broker's dispatch does, file after file."""

    def __init__(self, folder: Path, name: QueueName, sizes: FileSizes) -> None:
        self._folders = [folder / root / name[0] / str(name[1]) for root in (LOG_DIRECTORY, QUEUE_DIRECTORY)]
        self._sizes = sizes
        self._files: list[BinaryIO] = []
        self._start = -sizes.log

    def append(self, message: CompactedMessage) -> bool:
        """Append a message; False where no file has room for it."""
        size = len(message.raw)
        if size + BLANK_SIZE_MIN > self._sizes.log:
            return False
        if not self._files or not self._has_room(size):
            self._roll()
        log, queue = self._files
        place = self._start + log.tell()
        log.write(message.raw[:PHYSICAL_OFFSET_AT] + place.to_bytes(8) + message.raw[PHYSICAL_OFFSET_AT + 8 :])
        queue.write(
            _UNIT.pack(place, size, message.tags_code, message.store_timestamp_ms, message.queue_offset, 1, -1, 0)
        )
        return True

    def close(self) -> None:
        """Give the last files their full lengths."""
        for file, size in zip(self._files, self._sizes, strict=False):
            file.truncate(size)
            file.close()
        self._files = []

    def _has_room(self, size: int) -> bool:
        log, queue = self._files
        return (
            queue.tell() + BATCH_UNIT_SIZE < self._sizes.queue and log.tell() + size + BLANK_SIZE_MIN <= self._sizes.log
        )

    def _roll(self) -> None:
        if self._files:
            log, queue = self._files
            log.write(_BLANK.pack(self._sizes.log - log.tell(), MAGIC_BLANK))
            queue.write(_END_UNIT)
            self.close()
        self._start += self._sizes.log
        for folder in self._folders:
            folder.mkdir(parents=True, exist_ok=True)
            self._files.append((folder / segment_name(self._start)).open("wb"))
