"""Consume queue entries of log records, computed for thousands of rows at once.

Broker: `DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue`, `ConsumeQueue#multiDispatchLmqQueue`,
`BatchConsumeQueue#putMessagePositionInfoWrapper`. Only rows of good messages are dispatched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.queues.stored_units import StoredUnits
from rmqtool.engine.rules.broker_rules import BrokerRules, MultiDispatch
from rmqtool.engine.rules.topic_names import LMQ_PREFIX, is_kept_out
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.properties import INNER_BASE, INNER_COUNT, MULTI_DISPATCH, MULTI_QUEUE_OFFSET, decode_properties
from rmqtool.formats.queue_name import QueueName, TypedQueueKey
from rmqtool.memory import THREAD_BYTES, memory_budget
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.scan import columns
from rmqtool.scan.plain_rows import RowColumnsBuilder
from rmqtool.scan.row_columns import RowColumns, by_name, dispatched_rows
from rmqtool.scan.walk import Batch
from rmqtool.store.directory import Store

Rows = NDArray[Any]
"""A structured array of `scan.columns.row_dtype`."""
AnyRows = Rows | RowColumns
Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,30}", re.ASCII)
_NONE: Final = MultiDispatch.NONE
_SHORT_MAX: Final = (1 << 15) - 1


@dataclass(frozen=True)
class DispatchSettings:
    """Settings that decide about dispatch, besides the records.

    Attributes:
        multi_dispatch: the broker's `enableMultiDispatch`; a record with offsets in further queues was written with it.
        lmq: the broker's `enableLmq`: light queues have queue id 0 whatever the record's is.
        batch_topics: topics of type BatchCQ, which have batch queues instead of plain ones.
        entered: the units that a store has. Where one leads to a record that names its queue, the record belongs there,
            though this version keeps the record's topic out: an earlier one has entered it. None: none counts.
    """

    rules: BrokerRules
    multi_dispatch: bool = True
    lmq: bool = True
    batch_topics: frozenset[bytes] = frozenset()
    entered: StoredUnits | None = field(default=None, compare=False, repr=False)

    def with_entered(self, store: Store) -> DispatchSettings:
        """A copy with the units of a store that has light queues."""
        names = store.queue_database.names if store.queue_database is not None else store.queues
        has_light = any(topic.startswith(LMQ_PREFIX) for topic, _ in names)
        return replace(self, entered=StoredUnits(store)) if has_light and self.rules.dispatch_keeps_out else self


@dataclass(frozen=True)
class RowBytes:
    """The bytes that rows lie in.

    Attributes:
        buffer: bytes of the log; a record may also lie outside, or in part.
        physical_offset: of the buffer's first byte.
        read: gives (physical offset, length) bytes of the log that are not in the buffer.
    """

    buffer: NDArray[np.uint8]
    physical_offset: int
    read: Callable[[int, int], bytes | bytearray | memoryview] | None = None

    def at(self, physical_offset: int, length: int) -> bytes:
        """Bytes of the log, from the buffer if they lie in it."""
        start = physical_offset - self.physical_offset
        if start >= 0 and start + length <= self.buffer.size:
            return self.buffer[start : start + length].tobytes()
        assert self.read is not None, "a record lies outside the buffer, and nothing reads it"
        return bytes(self.read(physical_offset, length))

    def properties(self, row: Any) -> bytes:
        """The property block of a row's record, which is its end."""
        length = int(row["properties_length"])
        return self.at(int(row["physical_offset"]) + int(row["size"]) - length, length)


NO_TEXTS: Final = RowBytes(np.empty(0, np.uint8), 0)
"""For rows whose entries are told by the rows alone."""


def batch_bytes(batch: Batch) -> RowBytes:
    """The bytes of a batch of the scan, valid as long as its rows are."""
    window, base = batch.window, batch.split.physical_offset
    return RowBytes(
        np.frombuffer(window.storage, np.uint8, window.end - window.start),
        base + window.start,
        lambda physical_offset, length: bytes(window.bytes_at(physical_offset - base, length)),
    )


class QueueEntries(NamedTuple):
    """Entries of one queue, in log order: one number per entry in each array.

    Topics that are one string to a broker are one topic, whatever bytes are no UTF-8 in them.
    `own` is False where the record belongs to another topic and only names this queue; `batch_sizes` are the messages
    in a record, and count in batch queues only.
    """

    topic: bytes
    queue_id: int
    is_batch: bool
    queue_offsets: Int64s
    physical_offsets: Int64s
    record_sizes: Int32s
    tags_codes: Int64s
    store_timestamps_ms: Int64s
    batch_sizes: Int32s
    own: NDArray[np.bool_]

    def some(self, chosen: NDArray[np.bool_]) -> QueueEntries:
        """A part of the entries."""
        columns: Sequence[Any] = self[3:]
        return QueueEntries(*self[:3], *(column[chosen] for column in columns))


def queue_entries(
    rows: AnyRows, topics: Sequence[bytes], texts: RowBytes, settings: DispatchSettings, *, by_bytes: bool = False
) -> list[QueueEntries]:
    """The entries of all queues that the rows reach, each queue once.

    Args:
        topics: names by the rows' topic numbers.
        by_bytes: keep topics apart whose bytes differ, though they are one string to a broker: one may be damaged.
    """
    rows = dispatched_rows(rows)
    if not rows.size:
        return []
    column = by_name(rows)
    numbers = column["topic_number"]
    if not by_bytes:
        topics, numbers = _topics_of_strings(topics, numbers)
    batch_numbers: set[int] = set()
    if settings.rules.batch_queues and settings.batch_topics:
        batch_numbers = {number for number, name in enumerate(topics) if name in settings.batch_topics}
    all_of = _expanded(rows, numbers, topics, texts, settings, batch_numbers)
    order, bounds = _grouped(all_of.numbers, all_of.queue_ids)
    row_numbers = all_of.rows[order]
    in_order: Sequence[Any] = (
        all_of.queue_offsets[order],
        *(column[name][row_numbers] for name in ("physical_offset", "size", "tags_code", "store_timestamp_ms")),
        all_of.batch_sizes[row_numbers],
        all_of.own[order],
    )
    groups = []
    for start, end in pairwise(bounds):
        number, queue_id = int(all_of.numbers[order[start]]), int(all_of.queue_ids[order[start]])
        part = [values[start:end] for values in in_order]
        groups.append(QueueEntries(all_of.names[number], queue_id, number in batch_numbers, *part))
    return groups


def _topics_of_strings(topics: Sequence[bytes], numbers: Int32s) -> tuple[Sequence[bytes], Int32s]:
    """Topics and the numbers of rows, where topics that are one string to a broker have one number."""
    with suppress(UnicodeDecodeError):
        b"\0".join(topics).decode("utf-8")
        return topics, numbers
    first: dict[bytes, int] = {}
    strings = [decode_java_utf8(topic).encode("utf-8") for topic in topics]
    shared = np.array([first.setdefault(name, number) for number, name in enumerate(strings)], np.int32)
    return strings, shared[numbers]


def joined_entries(parts: Sequence[QueueEntries]) -> QueueEntries:
    """Entries of one queue that were told in several parts, in the order of the log."""
    if len(parts) == 1:
        return parts[0]
    columns = zip(*(part[3:] for part in parts), strict=True)
    return QueueEntries(*parts[0][:3], *(np.concatenate(column) for column in columns))


class _Expanded(NamedTuple):
    """One number per entry, in log order; `rows` holds the entry's row, `batch_sizes` are those of the rows."""

    names: list[bytes]
    rows: NDArray[np.int64]
    numbers: Int32s
    queue_ids: Int32s
    queue_offsets: Int64s
    own: NDArray[np.bool_]
    batch_sizes: Int32s


def _expanded(
    rows: AnyRows,
    numbers: Int32s,
    topics: Sequence[bytes],
    texts: RowBytes,
    settings: DispatchSettings,
    batch_numbers: set[int],
) -> _Expanded:
    """The entries of rows with these topics: the own one of each, then those of further queues that it names."""
    column = by_name(rows)
    queue_offsets = np.array(column["queue_offset"], np.int64)
    batch_sizes = np.ones(rows.size, np.int32)
    rules = settings.rules
    names, number_of = list(topics), dict[bytes, int]()  # numbers continue after those of the rows' topics
    further: list[tuple[int, int, int, int]] = []
    """Row, topic number, queue id and queue offset of each entry in a queue that a record names beside its own."""
    for index in np.flatnonzero(column["features"]).tolist():
        row = rows[index]
        features, topic_number = int(row["features"]), int(numbers[index])
        if topic_number in batch_numbers:
            if features & columns.INNER_BATCH_NUMBERS:  # `CommitLog#setBatchSizeIfNeeded`
                values = decode_properties(texts.properties(row))
                base, count = values[INNER_BASE], values[INNER_COUNT]
                # A broker takes a record with other numbers for the end of the log; as one message it can be found.
                if _is_integer(base, JAVA_LONG_MAX) and _is_integer(count, _SHORT_MAX):
                    queue_offsets[index], batch_sizes[index] = int(base), int(count)
            continue
        if not (features & columns.MULTI_DISPATCH and settings.multi_dispatch and rules.multi_dispatch is not _NONE):
            continue
        is_kept_back = is_kept_out(topics[topic_number].decode("latin-1"), rules.dispatch_keeps_out)
        if is_kept_back and settings.entered is None:
            continue
        values = decode_properties(texts.properties(row))
        for name, queue_offset in named_queues(values[MULTI_DISPATCH], values[MULTI_QUEUE_OFFSET]):
            queue_id = 0 if settings.lmq and name.startswith(LMQ_PREFIX) else int(row["queue_id"])
            if is_kept_back:  # only where the queue has the record's unit
                if settings.entered is None or queue_offset < 0:
                    continue
                place = settings.entered.physical_offsets(f"consumequeue/{name}/{queue_id}", queue_offset, 1)
                if int(place[0]) != int(row["physical_offset"]):
                    continue
            if not number_of:
                for known_number, known in enumerate(names):
                    number_of.setdefault(known, known_number)
            topic = name.encode("utf-8", "replace")
            number = number_of.setdefault(topic, len(names))
            if number == len(names):
                names.append(topic)
            further.append((index, number, queue_id, queue_offset))
    own_entries = _Expanded(
        names,
        np.arange(rows.size),
        numbers,
        column["queue_id"],
        queue_offsets,
        np.ones(rows.size, np.bool_),
        batch_sizes,
    )
    if not further:
        return own_entries
    further_rows, further_numbers, further_ids, further_offsets = zip(*further, strict=True)
    source = np.concatenate([own_entries.rows, np.array(further_rows, np.int64)])
    order = np.argsort(source, kind="stable")
    return own_entries._replace(
        rows=source[order],
        numbers=np.concatenate([own_entries.numbers, np.array(further_numbers, np.int32)])[order],
        queue_ids=np.concatenate([own_entries.queue_ids, np.array(further_ids, np.int32)])[order],
        queue_offsets=np.concatenate([queue_offsets, np.array(further_offsets, np.int64)])[order],
        own=np.concatenate([own_entries.own, np.zeros(len(further), np.bool_)])[order],
    )


def named_queues(names: str, queue_offsets: str) -> list[QueueName]:
    """The further queues that a record names, with its offset in each; none if the two lists differ in length.

    The broker's own dispatch never gets past an offset that is no number; here that one queue is left out.
    """
    if not names.strip() or not queue_offsets.strip():
        return []
    parts, numbers = _java_split(names), _java_split(queue_offsets)
    if len(parts) != len(numbers):
        return []
    return [
        (name, int(number))
        for name, number in zip(parts, numbers, strict=True)
        if "/" not in name and _is_integer(number, JAVA_LONG_MAX)
    ]


def _is_integer(text: str, largest: int) -> bool:
    return _INTEGER.fullmatch(text) is not None and abs(int(text)) <= largest


def _java_split(text: str) -> list[str]:
    """`String.split(",")`: empty parts at the end do not count."""
    parts = text.split(",")
    while parts and not parts[-1]:
        parts.pop()
    return parts


def _grouped(numbers: Int32s, queue_ids: Int32s) -> tuple[NDArray[np.intp], list[int]]:
    """An order that groups entries by queue and keeps theirs, and the bounds of the queues in it."""
    lowest, span = int(queue_ids.min()), int(queue_ids.max()) - int(queue_ids.min()) + 1
    keys = numbers.astype(np.int64) * span + (queue_ids.astype(np.int64) - lowest)
    if (int(numbers.max()) + 1) * span <= 1 << 16:
        keys = keys.astype(np.uint16)  # sorted by digits, many times faster
    order = np.argsort(keys, kind="stable")
    in_order = keys[order]
    starts = np.flatnonzero(in_order[1:] != in_order[:-1]) + 1
    return order, [0, *starts.tolist(), int(keys.size)]


# What a chunk of the log puts into its queues, gathered until there are enough rows to be worth grouping them.
# A batch of the scan holds a few thousand rows, so that each of many queues gets a few dozen of them at a time; what is
# done queue by queue is done many times as fast for tens of thousands at once.

ROWS_MAX: Final = 1 << 17
"""Rows of a full chunk; they take 8 MB, their entries about as much."""
ROW_BYTES: Final = 2048
"""Memory for a row of a full chunk that is compared, if each is of another queue; of few queues, a quarter."""


class EntryExtractor:
    """Gathers rows of one split of the log. With `settings` None their queues are not asked for."""

    def __init__(self, settings: DispatchSettings | None) -> None:
        self._settings = settings
        budget = memory_budget()
        threads = budget.threads(os.cpu_count() or 1, THREAD_BYTES)
        self._rows_max = budget.share(ROWS_MAX * ROW_BYTES, 2 * threads) // ROW_BYTES
        self._rows = RowColumnsBuilder(self._rows_max)
        self._queues: dict[TypedQueueKey, list[QueueEntries]] = {}
        self._grouped = 0
        """Rows in front that are in `_queues`."""
        self.topics: Sequence[bytes] = ()

    @property
    def row_count(self) -> int:
        return self._rows.count

    @property
    def is_full(self) -> bool:
        return self.row_count >= self._rows_max

    def take(self, rows: Rows, topics: Sequence[bytes], texts: RowBytes) -> None:
        """Take rows; nothing of them is needed afterwards.

        Args:
            topics: names by topic number, the same as of the rows before, and more.
            texts: the bytes that the rows lie in.
        """
        begin = self.row_count
        has_features = self._rows.take(rows)
        self.topics = topics
        if self._settings is not None and has_features:
            self._group(self._rows.rows(self._grouped, begin), NO_TEXTS)
            self._group(rows, texts)
            self._grouped = self.row_count

    def rows(self) -> RowColumns:
        """All rows of the chunk, one after the other; valid until the next ones are taken."""
        return self._rows.rows()

    def plain_messages(self) -> RowColumns | None:
        """The rows that have one entry each, which is all that they say; None where a row has several, or another one.

        Valid until the next rows are taken.
        """
        rows = self.rows()
        return None if rows["features"].any() else dispatched_rows(rows)

    def entries(self) -> list[QueueEntries]:
        """The entries of each queue, each queue once."""
        self._group(self._rows.rows(self._grouped), NO_TEXTS)
        self._grouped = self.row_count
        return list(map(joined_entries, self._queues.values()))

    def clear(self) -> None:
        """Forget the chunk."""
        self._queues, self._grouped, self._rows.count = {}, 0, 0

    def _group(self, rows: AnyRows, texts: RowBytes) -> None:
        assert self._settings is not None, "nobody wanted to know the queues"
        for entries in queue_entries(rows, self.topics, texts, self._settings):
            self._queues.setdefault((entries.topic, entries.queue_id, entries.is_batch), []).append(entries)
