"""One file of a log as blocks of rows with digests, made while it is walked, without what lies after the log's end.

Memory: the rows of a block, at most two megabytes, and those of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from rmqtool.compare.rows import (
    BAD,
    BLANK,
    ROW,
    Array,
    Block,
    LogTotals,
    QueueNumbers,
    TopicTotal,
    block_of,
    low_bits,
    sum_of,
)
from rmqtool.formats import commitlog
from rmqtool.scan.digest import Digests, batch_digests
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import Batch, Walk

_DENSE_MAX: Final = 1 << 20
"""Pairs of topic and queue id up to which a table over all of them is cheaper than sorting."""


class FileBlocks:
    """The blocks of one file.

    Args:
        numbers: gives the rows their queue numbers.

    Attributes:
        totals: of the file, once all blocks were taken.
    """

    def __init__(
        self, walk: Walk, numbers: QueueNumbers, block_size: int, *, by_content: bool, record_crc: bool
    ) -> None:
        self._walk = walk
        self._numbers = numbers
        self._block_size = block_size
        self._by_content = by_content
        self._record_crc = record_crc
        self._parts: list[Array] = []
        self.totals = LogTotals(begin=walk.split.physical_offset)

    def blocks(self) -> Iterator[Block]:
        """Walk the file. Bad ranges after the last record are no part of the log any more, if no file follows."""
        held: list[Array] = []
        for batch in self._walk.batches():
            rows = batch.as_array()
            # A batch is of one kind: good records, or one bad range, or all of it after the log's end.
            if rows[0]["verdict"] == Verdict.STALE or not rows[0]["size"]:
                continue
            digests = batch_digests(batch, rows, by_content=self._by_content, record_crc=self._record_crc)
            kept_rows = self._rows(batch, rows, digests)
            if rows[0]["verdict"] != Verdict.GOOD:
                held.append(kept_rows)
                self.totals.unreadable_bytes += unreadable_bytes(rows)
                continue
            for waiting in held:
                yield from self._take(waiting)
            held.clear()
            self.totals.add_topics(topic_totals(rows, batch.topics, digests.identity + digests.content))
            yield from self._take(kept_rows)
        for waiting in held:
            if self._walk.split.more_follows:
                yield from self._take(waiting)
            else:
                self.totals.tail_bytes += int(waiting["size"].sum(dtype=np.int64))
        yield from self._cut()

    def _rows(self, batch: Batch, rows: Array, digests: Digests) -> Array:
        digest_rows = np.zeros(len(rows), ROW)
        digest_rows["identity"] = digests.identity
        digest_rows["content"] = low_bits(digests.content)
        digest_rows["whole"] = digests.whole
        for name in ("physical_offset", "queue_offset", "size"):
            digest_rows[name] = rows[name]
        good = rows["verdict"] == Verdict.GOOD
        messages = good & (rows["magic"] != commitlog.MAGIC_BLANK)
        digest_rows["queue"] = np.where(good, BLANK, BAD - rows["verdict"])
        digest_rows["queue"][messages] = self._queue_numbers(batch.topics, rows[messages])
        return digest_rows

    def _queue_numbers(self, topics: Sequence[bytes], rows: Array) -> Array:
        if not len(rows):
            return np.zeros(0, np.int32)
        topic_numbers, queue_ids = rows["topic_number"].astype(np.int64), rows["queue_id"].astype(np.int64)
        lowest, span = int(queue_ids.min()), int(np.ptp(queue_ids)) + 1
        keys = topic_numbers * span + (queue_ids - lowest)
        if len(topics) * span <= _DENSE_MAX:
            present = np.zeros(len(topics) * span, np.bool_)
            present[keys] = True
            distinct = np.flatnonzero(present)
            places = np.zeros(present.size, np.int32)
            places[distinct] = np.arange(distinct.size)
            at = places[keys]
        else:
            distinct, at = np.unique(keys, return_inverse=True)
        named = ((topics[key // span], key % span + lowest) for key in distinct.tolist())
        queue_numbers: Array = self._numbers.translation(named)[at]
        return queue_numbers

    def _take(self, rows: Array) -> Iterator[Block]:
        """Add rows to the block at hand; blocks that are complete by that."""
        bad = rows["queue"] <= BAD
        if bad.any():
            self.totals.bad_ranges += int(bad.sum())
            self.totals.bad_bytes += int(rows["size"][bad].sum(dtype=np.int64))
        self.totals.end = int(rows[-1]["physical_offset"] + rows[-1]["size"])
        numbers = rows["physical_offset"] // self._block_size
        if self._parts and numbers[0] != self._parts[-1][-1]["physical_offset"] // self._block_size:
            yield from self._cut()
        starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(rows)]
        for number, (start, end) in enumerate(pairwise(starts)):
            if number:
                yield from self._cut()
            self._parts.append(rows[start:end])

    def _cut(self) -> Iterator[Block]:
        if self._parts:
            rows = self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts)
            self._parts = []
            yield block_of(rows, sum_of(rows["whole"]))


def topic_totals(rows: Array, topics: Sequence[bytes], digests: Array | None) -> dict[bytes, TopicTotal]:
    """Totals of the messages among the rows of a scan; without digests theirs is not known."""
    messages = (rows["verdict"] == Verdict.GOOD) & (rows["magic"] != commitlog.MAGIC_BLANK)
    numbers = rows["topic_number"][messages]
    counts = np.bincount(numbers, minlength=1)
    sizes = np.bincount(numbers, rows["size"][messages], minlength=1)
    sums = np.zeros(counts.size, np.uint64)
    if digests is not None:
        np.add.at(sums, numbers, digests[messages])
    return {
        topics[number]: TopicTotal(
            int(counts[number]), int(sizes[number]), None if digests is None else int(sums[number])
        )
        for number in np.flatnonzero(counts).tolist()
    }


def unreadable_bytes(rows: Array) -> int:
    """Bytes of ranges that the disk did not give."""
    return int(rows["size"][rows["verdict"] == Verdict.UNREADABLE_RANGE].sum(dtype=np.int64))
