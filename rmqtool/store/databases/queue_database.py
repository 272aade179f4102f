"""The consume queues of a RocksDB database: which there are, their ends, and their units in order of queue offsets.

The rows are read once, in the order of their keys, into an unnamed temporary file; memory is that of the queues' names.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache, cached_property
from struct import Struct
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from rmqtool.formats.queue_name import QueueName, queue_name
from rmqtool.formats.rocksdb.queue import (
    DISPATCHED,
    DISPATCHED_KEY,
    OFFSET,
    OFFSET_FAMILY,
    UNIT,
    UNIT_FAMILY,
    UNIT_SIZE,
    offset_key,
    parse_offset_key,
    parse_queue_prefix,
)
from rmqtool.store.databases.rocksdb import RocksFailure, RocksFamily, RocksReading, RowBatch, unknown_family
from rmqtool.store.source import reason
from rmqtool.store.view import Entry, StoreView

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NUMBER_SIZE: Final = 8
ROW_SIZE: Final = _NUMBER_SIZE + UNIT_SIZE
FAMILIES: Final = (RocksFamily(UNIT_FAMILY, _NUMBER_SIZE, UNIT_SIZE), RocksFamily(OFFSET_FAMILY))
ODD_ROWS_MAX: Final = 100
"""Rows without a meaning that are named; the rest is counted."""
SHORT_UNITS_MAX: Final = 1 << 16
"""Units of too few bytes that are kept; where there are more, not everything was read."""
_OFFSET: Final = Struct(OFFSET.struct_code)
_DISPATCHED: Final = Struct(DISPATCHED.struct_code)


class QueueRows(NamedTuple):
    """Where the units of a queue lie among all rows, and its lowest and highest queue offset."""

    first_row: int
    unit_count: int
    first: int
    last: int


class StoredEnd(NamedTuple):
    """A queue's first or last unit by the offset family."""

    physical_offset: int
    queue_offset: int


@dataclass
class StoredEnds:
    """Both of them, where there are keys for them."""

    minimum: StoredEnd | None = None
    maximum: StoredEnd | None = None


@cache
def row_type() -> np.dtype[Any]:
    """A row: the end of the key and the value, as they lie in the database."""
    import numpy as np

    return np.dtype([("queue_offset", ">i8"), *((name, UNIT.dtype[name]) for name in UNIT.dtype.names or ())])


@dataclass
class QueueDatabase:
    """A database that was read. Taking rows raises OSError where the temporary file does not take them.

    Attributes:
        directory: where it lies in the store.
        dispatched: end of the last record that was dispatched; None without that key.
        odd_rows: rows that mean nothing to a broker, as sentences; `odd_row_count` of them in all.
        has_unreadable_end: whether a key of the offset family names a topic longer than the key.
        is_dispatched_short: whether there is a key for `dispatched` with less than a number.
        short_ends: queues with a stored end of too few bytes, and whether that is the maximum.
        short_units: by queue and queue offset, where the records of units of too few bytes start; None where even
            that has too few bytes. A broker halves over them, and throws where it wants more of them than they have.
        failure: why not everything was read; None where it was.
        why_not_opened: why a broker does not open it, as a sentence; None where it does, or where that is not known.
    """

    view: StoreView
    directory: str
    entries: tuple[Entry, ...]
    units: dict[QueueName, QueueRows] = field(default_factory=dict)
    ends: dict[QueueName, StoredEnds] = field(default_factory=dict)
    dispatched: int | None = None
    families: tuple[str, ...] = ()
    odd_rows: list[str] = field(default_factory=list)
    odd_row_count: int = 0
    has_unreadable_end: bool = False
    is_dispatched_short: bool = False
    short_ends: set[tuple[QueueName, bool]] = field(default_factory=set)
    short_units: dict[QueueName, dict[int, int | None]] = field(default_factory=dict)
    failure: RocksFailure | None = None
    reason: str = ""
    _rows: IO[bytes] = field(default_factory=tempfile.TemporaryFile, repr=False)

    def __post_init__(self) -> None:
        weakref.finalize(self, self._rows.close)

    def __reduce__(self) -> tuple[Any, ...]:
        """Elsewhere, it is read again."""
        return read_queue_database, (self.view, self.entries)

    @property
    def is_read(self) -> bool:
        """True if the content is known: all rows were read, or a broker does not open it either."""
        return self.failure in (None, RocksFailure.DOES_NOT_OPEN)

    @property
    def why_not_opened(self) -> str | None:
        """Broker: `ConsumeQueueRocksDBStorage#postLoad`."""
        if self.failure is RocksFailure.DOES_NOT_OPEN:
            return self.reason
        return unknown_family(self.families, [family.name for family in FAMILIES])

    @cached_property
    def names(self) -> frozenset[QueueName]:
        """Every queue that has a unit or an end; asked for once all is read."""
        return frozenset((*self.units, *self.ends))

    def rows(self, name: QueueName, first: int, count: int) -> NDArray[Any]:
        """Units of a queue by their number among its units, fewer where they end."""
        queue = self.units.get(name, QueueRows(0, 0, 0, -1))
        first = max(0, first)
        count = max(0, min(count, queue.unit_count - first))
        return self.all_rows(queue.first_row + first, count)

    def all_rows(self, first: int, count: int) -> NDArray[Any]:
        """Units of all queues, one queue after the other, by their number."""
        import numpy as np

        return np.frombuffer(os.pread(self._rows.fileno(), count * ROW_SIZE, first * ROW_SIZE), row_type())

    def number_of(self, name: QueueName, queue_offset: int) -> int:
        """The number, among a queue's units, of the first one that is not before a queue offset."""
        queue = self.units.get(name)
        if queue is None or queue_offset <= queue.first:
            return 0
        if queue_offset > queue.last:
            return queue.unit_count
        if queue.last - queue.first == queue.unit_count - 1:
            return queue_offset - queue.first
        low, high = 0, queue.unit_count
        while low < high:
            middle = (low + high) // 2
            if int(self.rows(name, middle, 1)[0]["queue_offset"]) < queue_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def between(self, name: QueueName, begin: int, end: int) -> NDArray[Any]:
        """Units of a queue whose queue offsets are in [begin, end)."""
        first = self.number_of(name, begin)
        return self.rows(name, first, self.number_of(name, end) - first)

    def finish(self) -> None:
        """Make all rows readable that were taken."""
        self._rows.flush()

    def take(self, batch: RowBatch) -> None:
        """Take rows in the order of their keys; `finish` comes after the last ones."""
        if batch.family == UNIT_FAMILY and batch.row_count:
            self._take_units(batch)
        elif batch.family == OFFSET_FAMILY and not batch.row_count:
            self._take_end(batch.prefix, batch.values)
        else:
            self._note_odd(f"{batch.family}: a key of {len(batch.prefix)} and a value of {len(batch.values)} bytes")
            self._take_short(batch.prefix, batch.values)

    def _take_units(self, batch: RowBatch) -> None:
        import numpy as np

        parsed = parse_queue_prefix(batch.prefix)
        if parsed is None:
            self._note_odd(f"{UNIT_FAMILY}: keys that begin with {batch.prefix[:40].hex()}", batch.row_count)
            return
        rows = np.empty(batch.row_count, row_type())
        rows["queue_offset"] = np.frombuffer(batch.suffixes, ">i8")
        values = np.frombuffer(batch.values, UNIT.dtype)
        for column in UNIT.dtype.names or ():
            rows[column] = values[column]
        name = queue_name(*parsed)
        end = self._rows.seek(0, os.SEEK_END) // ROW_SIZE
        known = self.units.get(name, QueueRows(end, 0, -1, -1))
        kept = rows[rows["queue_offset"] >= 0]
        places = np.concatenate([[known.last], kept["queue_offset"]])
        if known.first_row + known.unit_count != end or not (places[1:] > places[:-1]).all():
            kept = kept[:0]  # keys out of order, which no library writes
        if len(kept) < len(rows):
            self._note_odd(f"{name[0]}/{name[1]}: queue offsets below 0 or out of order", len(rows) - len(kept))
        if not len(kept):
            return
        self._rows.write(kept.tobytes())
        first, last = int(places[1]) if not known.unit_count else known.first, int(places[-1])
        self.units[name] = QueueRows(known.first_row, known.unit_count + len(kept), first, last)

    def _take_short(self, key: bytes, value: bytes) -> None:
        parsed = parse_queue_prefix(key[:-_NUMBER_SIZE])
        if parsed is None or len(value) >= UNIT_SIZE:
            return
        if sum(map(len, self.short_units.values())) >= SHORT_UNITS_MAX:
            self.failure, self.reason = RocksFailure.UNREADABLE, f"more than {SHORT_UNITS_MAX} units of too few bytes"
            return
        physical_offset = int.from_bytes(value[:_NUMBER_SIZE], "big", signed=True)
        short = self.short_units.setdefault(queue_name(*parsed), {})
        short[int.from_bytes(key[-_NUMBER_SIZE:], "big")] = physical_offset if len(value) >= _NUMBER_SIZE else None

    def _take_end(self, key: bytes, value: bytes) -> None:
        parsed = parse_offset_key(key)
        if key == DISPATCHED_KEY and len(value) >= _DISPATCHED.size:  # what follows is never looked at
            (self.dispatched,) = _DISPATCHED.unpack_from(value)
        elif parsed is None or key == DISPATCHED_KEY or len(value) < _OFFSET.size:
            self._note_odd(f"{OFFSET_FAMILY}: key {key[:40].hex()} with a value of {len(value)} bytes")
            self.is_dispatched_short |= key == DISPATCHED_KEY
            if parsed is not None and key != DISPATCHED_KEY:
                self.short_ends.add((queue_name(parsed.topic, parsed.queue_id), parsed.is_maximum))
            room = len(key) - len(offset_key(b"", 0, is_maximum=True))
            self.has_unreadable_end |= room > 0 and not 0 <= int.from_bytes(key[:4], "big", signed=True) <= room
        else:
            ends = self.ends.setdefault(queue_name(parsed.topic, parsed.queue_id), StoredEnds())
            end = StoredEnd(*_OFFSET.unpack_from(value))
            if parsed.is_maximum:
                ends.maximum = end
            else:
                ends.minimum = end

    def _note_odd(self, text: str, count: int = 1) -> None:
        self.odd_row_count += count
        if len(self.odd_rows) < ODD_ROWS_MAX:
            self.odd_rows.append(text)


def databases_in(entries: Iterable[Entry]) -> list[tuple[Entry, ...]]:
    """The files of each database: one, but for a store that both layouts of a broker wrote."""
    by_directory: dict[str, list[Entry]] = {}
    for entry in entries:
        by_directory.setdefault(entry.path.partition("/")[0], []).append(entry)
    return [tuple(files) for _, files in sorted(by_directory.items())]


def read_queue_database(view: StoreView, entries: Sequence[Entry]) -> QueueDatabase:
    """Read the database that files make up; of two directories the one that a broker would take for a database."""
    directories = sorted({entry.path.rpartition("/")[0] for entry in entries})
    current = [entry.path.rpartition("/")[0] for entry in entries if entry.name == "CURRENT"]
    directory = (current or directories or ["consumequeue"])[0]
    own = tuple(entry for entry in entries if entry.path.rpartition("/")[0] == directory)
    database = QueueDatabase(view, directory, own)
    if not own:
        return database  # a broker that finds no file makes an empty database
    reading = RocksReading(view, own)
    try:
        with closing(reading.batches(FAMILIES)) as batches:
            for batch in batches:
                database.take(batch)
        database.finish()
    except OSError as error:
        reading.failure, reading.reason = RocksFailure.CRASH, f"temporary file: {reason(error)}"
    database.families = reading.families
    if reading.failure is not None:
        database.failure, database.reason = reading.failure, reading.reason
    return database
