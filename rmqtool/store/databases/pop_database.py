"""The database `kvStore/`: messages that pop consumers received and have not acknowledged, row by row.

Broker: `PopConsumerRocksdbStore#scanExpiredRecords`, which decodes the values only; the keys say when a row is due.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rmqtool.formats.rocksdb.pop import POP_FAMILY, PopKeyRow, parse_pop_key, pop_key
from rmqtool.quantities import JAVA_INT_MAX, JAVA_LONG_MAX
from rmqtool.store.databases.rocksdb import RocksFailure, RocksFamily, RocksReading
from rmqtool.store.relaxed_json import JsonError, parse_relaxed_json
from rmqtool.store.view import Entry, StoreView

DIRECTORY: Final = "kvStore"


class PopRow(NamedTuple):
    """A message that a consumer received.

    Attributes:
        topic: of the queue that it was received from, which may be a retry topic.
        revive_timestamp_ms: from when on the broker delivers it again.
    """

    topic: str
    queue_id: int
    queue_offset: int
    consumer_group: str
    pop_timestamp_ms: int
    revive_timestamp_ms: int


@dataclass
class PopDatabase:
    """A database that is read by `rows`, after which `failure` says why not to its end.

    Attributes:
        odd_row_count: rows that a broker cannot decode, or would deliver again and again; `odd_row` is the first.
    """

    view: StoreView
    entries: Sequence[Entry]
    odd_row_count: int = 0
    odd_row: str = ""
    failure: RocksFailure | None = None
    reason: str = ""

    def rows(self) -> Iterator[PopRow]:
        """All rows, by the time of the next delivery."""
        reading = RocksReading(self.view, self.entries)
        with closing(reading.batches([RocksFamily(POP_FAMILY)])) as batches:
            for batch in batches:
                row = parse_pop_row(batch.prefix, batch.values)
                if row is not None:
                    yield row
                    continue
                self.odd_row_count += 1
                self.odd_row = self.odd_row or f"key {batch.prefix[:60].hex()}"
        self.failure, self.reason = reading.failure, reading.reason


def parse_pop_row(key: bytes, value: bytes) -> PopRow | None:
    """A row as a broker decodes it; None where it does not, or where it could not find the row by its value again."""
    parsed = parse_pop_key(key)
    try:
        fields = parse_relaxed_json(value.decode())
    except (UnicodeDecodeError, JsonError):
        return None
    if parsed is None or not isinstance(fields, dict):
        return None
    group, topic = fields.get("groupId"), fields.get("topicId")
    if not isinstance(group, str) or not isinstance(topic, str):
        return None
    popped, invisible = _number(fields, "popTime"), _number(fields, "invisibleTime")
    queue_id, queue_offset = _number(fields, "queueId", JAVA_INT_MAX), _number(fields, "offset")
    if popped is None or invisible is None or queue_id is None or queue_offset is None:
        return None
    revive_ms = (popped + invisible + JAVA_LONG_MAX + 1) % (2 * JAVA_LONG_MAX + 2) - JAVA_LONG_MAX - 1
    names = group.encode("utf-8", "replace"), topic.encode("utf-8", "replace")
    if pop_key(PopKeyRow(revive_ms, *names, queue_id, queue_offset)) != key:
        return None
    return PopRow(topic, queue_id, queue_offset, group, popped, revive_ms)


def _number(fields: dict[Any, Any], name: str, limit: int = JAVA_LONG_MAX) -> int | None:
    value = fields.get(name, 0)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and -limit - 1 <= value <= limit else None
