"""Looks at consume queues in RocksDB alone: which units count, and whether the stored ends fit them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import finding
from rmqtool.formats.consumequeue import UNIT_SIZE
from rmqtool.formats.queue_name import QueueKey, QueueName, queue_key, topic_text
from rmqtool.formats.rocksdb.queue import UNIT
from rmqtool.store.databases.queue_database import QueueDatabase, StoredEnds
from rmqtool.store.databases.rocksdb import RocksFailure
from rmqtool.verify.survey.queue_map import Array, Open, QueueMap, RunsBuilder, UnitFile

READ_ROWS: Final = 1 << 18
MAPS_MAX: Final = 4096
"""Queues that stay in memory once they were looked at."""
NO_FILE_END: Final = 1 << 62
"""Units in the one file that a queue of a database would have."""


@dataclass(frozen=True)
class DatabaseQueueMap(QueueMap):
    """A queue of a database; its places are queue offsets."""

    database: QueueDatabase | None = None

    @property
    def unit_size(self) -> int:
        return UNIT_SIZE

    @property
    def unit_type(self) -> np.dtype[Any]:
        return UNIT.dtype

    def position(self, place: int) -> tuple[str, int | None]:  # noqa: ARG002 - as every queue
        """The database's directory: a unit lies in any of its files."""
        return self.directory, None

    def read(self, open_file: Open, begin: int, end: int) -> tuple[Array, Array]:  # noqa: ARG002 - as every queue
        """Places and units of [begin, end); those that the database lacks are left out."""
        assert self.database is not None
        rows = self.database.between((self.topic, self.queue_id), begin, end)
        units = np.empty(len(rows), UNIT.dtype)
        for column in UNIT.dtype.names or ():
            units[column] = rows[column]
        return rows["queue_offset"].astype(np.int64), units


def database_queue(database: QueueDatabase, name: QueueName) -> DatabaseQueueMap:
    """The units of a queue that count: those up to its stored maximum."""
    maximum = database.ends.get(name, StoredEnds()).maximum
    end = maximum.queue_offset + 1 if maximum is not None else 0
    runs = RunsBuilder()
    count = database.number_of(name, end)
    for first in range(0, count, READ_ROWS):
        rows = database.rows(name, first, min(READ_ROWS, count - first))
        places = rows["queue_offset"].astype(np.int64)
        offsets = rows["physical_offset"].astype(np.int64)
        breaks = np.flatnonzero(places[1:] != places[:-1] + 1) + 1
        for low, high in zip([0, *breaks.tolist()], [*breaks.tolist(), len(rows)], strict=True):
            runs.take(int(places[low]), offsets[low:high])
    file = UnitFile(database.directory, 0, max(0, end))
    return DatabaseQueueMap(
        *name, False, database.directory, (file,), NO_FILE_END, runs.finish(), max(0, end), database=database
    )


class DatabaseQueues(Mapping[QueueKey, QueueMap]):
    """The queues of a database; each is read on access."""

    def __init__(self, database: QueueDatabase) -> None:
        self._database = database
        self._map_of = lru_cache(MAPS_MAX)(partial(database_queue, database))

    def __reduce__(self) -> tuple[Any, ...]:
        return DatabaseQueues, (self._database,)

    def __getitem__(self, key: QueueKey) -> QueueMap:
        name = topic_text(key[0]), key[1]
        if name not in self._database.names:
            raise KeyError(key)
        return self._map_of(name)

    def __iter__(self) -> Iterator[QueueKey]:
        return (queue_key(*name) for name in sorted(self._database.names))

    def __len__(self) -> int:
        return len(self._database.names)


def database_findings(database: QueueDatabase, log_minimum: int) -> Iterator[Finding]:
    """Findings about a database alone."""
    say = partial(finding, file=database.directory)
    if database.why_not_opened is not None:
        yield say("rocksdb.not-loadable", message=database.why_not_opened)
    elif database.failure not in (None, RocksFailure.NO_LIBRARY):
        yield say("rocksdb.unreadable", message=database.reason)
    if database.odd_row_count:
        yield say(
            "rocksdb.odd-row", message=f"{database.odd_row_count} rows, the first: {database.odd_rows[0]}",
            count=database.odd_row_count,
        )  # fmt: skip
    if database.failure is None:
        for name in sorted(database.names):
            yield from _of_queue(database, name, log_minimum)
        newest = max((ends.maximum.physical_offset for ends in database.ends.values() if ends.maximum), default=-1)
        if newest >= (database.dispatched or 0):
            state = "is missing" if database.dispatched is None else f"is {database.dispatched}"
            text = f"CHECKPOINT_TOPIC {state}, the newest unit points to {newest}"
            yield say("rocksdb.dispatched-behind", message=text, physical_offset=newest)


def _of_queue(database: QueueDatabase, name: QueueName, log_minimum: int) -> Iterator[Finding]:
    say = partial(finding, file=database.directory, topic=name[0], queue_id=name[1])
    units, ends = database.units.get(name), database.ends.get(name, StoredEnds())
    maximum, minimum = ends.maximum, ends.minimum
    # A broker that writes files too sets a queue's ends so where the files have messages that the database lacks.
    begins_next = maximum is not None and minimum is not None and minimum.queue_offset == maximum.queue_offset + 1
    if units is None:
        if maximum is not None and not begins_next and maximum.physical_offset >= log_minimum:
            yield say(
                "rocksdb.wrong-end", message="a last unit is stored, but no unit", queue_offset=maximum.queue_offset
            )
        return
    if maximum is None:
        text = f"{units.unit_count} units, but no last one is stored: consumers get none of them"
        yield say("rocksdb.missing-end", message=text, count=units.unit_count, queue_offset=units.last)
        return
    counting = database.number_of(name, maximum.queue_offset + 1)
    last = database.rows(name, counting - 1, 1 if counting else 0)
    if begins_next:
        pass
    elif not len(last) or last[0]["queue_offset"] != maximum.queue_offset:
        text = f"the last unit is stored as {maximum.queue_offset}, where there is none"
        yield say("rocksdb.wrong-end", message=text, queue_offset=maximum.queue_offset)
    elif last[0]["physical_offset"] != maximum.physical_offset:
        text = f"the last unit points to {last[0]['physical_offset']}, its stored end to {maximum.physical_offset}"
        yield say("rocksdb.wrong-end", message=text, queue_offset=maximum.queue_offset)
    if counting < units.unit_count:
        count = units.unit_count - counting
        text = f"{count} units after the queue's end at {maximum.queue_offset}"
        yield say("rocksdb.stale-unit", message=text, count=count, queue_offset=maximum.queue_offset + 1)
    if minimum is not None and minimum.physical_offset >= log_minimum:
        hidden = database.between(name, 0, min(minimum.queue_offset, maximum.queue_offset + 1))
        count = int((hidden["physical_offset"] >= log_minimum).sum())
        if count:
            text = f"the first unit is stored as {minimum.queue_offset}, which hides {count} units of the log before it"
            yield say("rocksdb.wrong-end", message=text, count=count, queue_offset=minimum.queue_offset)


def log_end_findings(database: QueueDatabase | None, log_end: int) -> Iterator[Finding]:
    """Findings about records that a database knows after the log's end."""
    if database is not None and database.dispatched is not None and database.dispatched > log_end:
        text = f"CHECKPOINT_TOPIC is {database.dispatched}, the commit log ends at {log_end}"
        yield finding("rocksdb.ahead-of-log", database.directory, text, physical_offset=database.dispatched)
