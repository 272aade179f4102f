"""What stands in a store: its good records with their bytes, and the place of each message in its queues.

A salvage is held to it: whatever was good before has to be there afterwards, byte for byte, at its place in the log and
in each of its queues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from rmqtool.engine.dispatch.queue_entries import batch_bytes, queue_entries
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.formats.consumequeue import BATCH_UNIT, UNIT
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.repair.derived.builder import dispatch_settings
from rmqtool.repair.derived.result import BuildOptions
from rmqtool.scan.log import LogFile, RecordTable, ScanOptions
from rmqtool.scan.row_columns import message_rows
from rmqtool.scan.rules import Verdict
from rmqtool.store.directory import Store
from rmqtool.store.source import read_range


class Standing(NamedTuple):
    """One message's place in one queue; `queue_offset` of a batch is that of its first message."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int


@dataclass
class Content:
    """The good records of a log by physical offset, and where they stand; tombstones and bridges are told apart."""

    records: dict[int, bytes] = field(default_factory=dict)
    standings: set[Standing] = field(default_factory=set)
    tombstones: set[Standing] = field(default_factory=set)

    @property
    def claims(self) -> Counter[tuple[str, int, int]]:
        """How many records say that they stand at one place."""
        return Counter(each[:3] for each in (*self.standings, *self.tombstones))


def content_of(store: Store, rules: BrokerRules, build: BuildOptions | None = None) -> Content:
    """What the judge finds good; behind the log's end nothing counts."""
    build = build or BuildOptions()
    settings = dispatch_settings(store, rules, build)
    found = Content()
    files = [LogFile(partial(store.view.open, each.path), each.start) for each in store.commitlog]
    with RecordTable.of(files, ScanOptions(build.delays_ms, compiled=False), finds_crc=True) as table:
        for batch in table.batches():
            rows = batch.as_array()
            stale = np.flatnonzero(rows["verdict"] == Verdict.STALE)
            good = message_rows(rows[: int(stale[0])] if stale.size else rows)
            texts = batch_bytes(batch)
            marked = set(good["physical_offset"][good["prepared_transaction_offset"] == TOMBSTONE].tolist())
            for at, size in zip(good["physical_offset"].tolist(), good["size"].tolist(), strict=True):
                if at not in marked:
                    found.records[at] = texts.at(at, size)
            for entries in queue_entries(good, batch.topics, texts, settings):
                topic = entries.topic.decode("utf-8", "surrogateescape")
                columns = (entries.queue_offsets, entries.physical_offsets, entries.record_sizes)
                for offset, place, size in zip(*(column.tolist() for column in columns), strict=True):
                    one = Standing(topic, entries.queue_id, offset, place, size)
                    (found.tombstones if place in marked else found.standings).add(one)
            if stale.size:
                break
    return found


def units_of(store: Store) -> Iterator[Standing]:
    """All units of all queues, filler and dead ones too."""
    for (topic, queue_id), files in (*store.queues.items(), *store.batch_queues.items()):
        is_batch = (topic, queue_id) in store.batch_queues and files is store.batch_queues[topic, queue_id]
        dtype = (BATCH_UNIT if is_batch else UNIT).dtype
        for segment in files.segments:
            source = store.view.open(segment.path)
            try:
                raw = read_range(source, 0, segment.size // dtype.itemsize * dtype.itemsize)
            finally:
                source.close()
            units = np.frombuffer(raw, dtype)
            offsets = (
                units["base_queue_offset"]
                if is_batch
                else segment.start // dtype.itemsize + np.arange(units.size, dtype=np.int64)
            )
            columns = (offsets, units["physical_offset"], units["record_size"])
            for offset, place, size in zip(*(column.tolist() for column in columns), strict=True):
                if size:
                    yield Standing(topic, queue_id, offset, place, size)


def gone(before: Content, after: Content, excused: Iterable[int] = ()) -> list[int]:
    """Physical offsets of good records that are no longer there as they were."""
    excuses = set(excused)
    return [at for at, raw in before.records.items() if at not in excuses and after.records.get(at) != raw]


def astray(before: Content, store: Store, excused: Iterable[int] = ()) -> list[Standing]:
    """Messages that were good before, and that their queue does not have at their old place."""
    units, excuses = set(units_of(store)), set(excused)
    return [each for each in before.standings if each not in units and each.physical_offset not in excuses]
