"""Queries of several kinds of side state: the units of a queue, and whether the log shows a delivery."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.queues.unit import QueueUnit
from rmqtool.engine.reading.reader import Reader
from rmqtool.engine.reading.record import Record
from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.formats.properties import decode_properties
from rmqtool.scan.log import open_log
from rmqtool.scan.row_columns import message_rows
from rmqtool.scan.rules import Verdict
from rmqtool.scan.runner import OnProgress
from rmqtool.scan.walk import Batch
from rmqtool.store.directory import Store


def queue_units(queue: Queue, start: int, end: int) -> Iterator[QueueUnit]:
    """The units of queue offsets [start, end), file after file; queues without files give all at once.

    What starts below the queue starts at its minimum, as in a broker, and where files are missing the next one follows.

    Raises:
        UnreadableError: a queue without files ends before its end, as where a unit is missing in RocksDB.
    """
    at, end = max(start, queue.min_queue_offset), min(end, queue.max_queue_offset)
    while at < end:
        after = at
        for unit in queue.units_from(at) or ():
            if unit.queue_offset >= end:
                return
            yield unit
            after = unit.queue_offset + max(1, unit.message_count)
        following = queue.next_file_queue_offset(at)
        if following <= at:
            if after < end:
                raise UnreadableError(f"{queue.topic}/{queue.queue_id}: no unit at queue offset {after}")
            return
        at = (
            following
            if queue.loaded is None
            else max(following, queue.loaded.next_start(following * queue.unit_size) // queue.unit_size)
        )


def record_at(reader: Reader, physical_offset: int) -> Record | None:
    """The record at a physical offset; None where no message is there."""
    message = reader.message_at(physical_offset)
    return message.record if message is not None else None


def readable_record(reader: Reader, physical_offset: int) -> Record | None:
    """The record at a physical offset; None also where the disk does not give it."""
    with suppress(UnreadableError):
        return record_at(reader, physical_offset)
    return None


def intact_messages(
    store: Store, kind: str, start: int = 0, on_progress: OnProgress | None = None
) -> Iterator[tuple[Batch, NDArray[Any]]]:
    """Batches of the log with the rows of their good messages, from the file that holds a physical offset on.

    Args:
        kind: what a person reads of the messages that are looked for.

    Raises:
        UnsupportedError: the log is damaged, so that nobody knows what was delivered.
    """
    bad_at = None
    segments = [segment for segment in store.commitlog if segment.end > start] or store.commitlog
    with open_log(store.view.open, segments, finds_crc=True) as table:
        begin, total = table.splits[0].physical_offset, sum(split.source.size for split in table.splits)
        for batch in table.batches():
            rows = batch.as_array()
            bad = rows[(rows["verdict"] != Verdict.GOOD) & (rows["verdict"] != Verdict.STALE)]
            good = message_rows(rows)
            if bad_at is None and len(bad):
                bad_at = int(bad["physical_offset"][0])
            if bad_at is not None and len(good) and good["physical_offset"][-1] > bad_at:
                raise UnsupportedError(
                    f"the commit log is damaged at {bad_at}: nothing shows which {kind} were delivered there; "
                    "run rmqtool salvage first"
                )
            yield batch, good
            if on_progress is not None and len(rows):
                on_progress(min(total, int(rows["physical_offset"][-1]) - begin), total)


def demand_in_queue(batch: Batch, rows: NDArray[Any], topic: str, ends: Mapping[int, int], what: str) -> None:
    """Refuse a queue that ends before the log's last message: that one may have been delivered all the same.

    Args:
        ends: by queue id: queue offset after the last message.
        what: what is to be rebuilt.

    Raises:
        UnsupportedError: it does.
    """
    numbers = [number for number, raw in enumerate(batch.topics) if raw == topic.encode()]
    of_topic = rows[np.isin(rows["topic_number"], numbers)]
    for queue_id in np.unique(of_topic["queue_id"]).tolist():
        newest = of_topic["queue_offset"][of_topic["queue_id"] == queue_id].max()
        if newest >= ends.get(queue_id, 0):
            raise UnsupportedError(
                f"messages of {topic} are missing in its consume queue: run rmqtool recover first, then rebuild {what}"
            )


def properties_with(batch: Batch, rows: NDArray[Any], mark: bytes) -> Iterator[tuple[int, Mapping[str, str]]]:
    """The rows whose properties have a mark in them: their number among the rows, and the properties."""
    lengths = rows["properties_length"]
    places = rows["physical_offset"].tolist()
    for number, raw in enumerate(batch.read_many(places, (rows["size"] - lengths).tolist(), lengths.tolist())):
        if mark in raw:
            yield number, decode_properties(raw)
