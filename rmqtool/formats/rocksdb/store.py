"""Keys and values of `rocksdbstore/`: the index, the timers and the transactions that a broker keeps in RocksDB.

Broker: `IndexRocksDBRecord`, `TimerRocksDBRecord`, `TransRocksDBRecord`, `MessageRocksDBStorage`.
"""

from collections.abc import Mapping
from struct import Struct as Packer
from typing import Final, NamedTuple

from construct import Bytes, GreedyBytes, Int32sb, Int64sb, Struct

from rmqtool.formats.layout import Format, size_before

INDEX_FAMILY: Final = "default"
TIMER_FAMILY: Final = "timer"
TRANSACTION_FAMILY: Final = "trans"
LAST_OFFSET: Final = b"lastOffsetPy"
LAST_TIME: Final = b"lastStoreTimeStamp"
SCANNED: Final = b"sys_topic_scan_offset_checkpoint"
DELIVERED: Final = b"timeline_checkpoint"
MARKS: Final = {
    INDEX_FAMILY: (LAST_OFFSET, LAST_TIME),
    TIMER_FAMILY: (SCANNED, DELIVERED),
    TRANSACTION_FAMILY: (LAST_OFFSET,),
}
"""Keys of each table that are no row but say how far it is."""
HOUR_MS: Final = 3_600_000
_SEPARATOR: Final = b"@"
_KINDS: Final = {b"K": "key", b"T": "tag", b"U": "unique-key"}


INDEX_KEY: Final = Format(
    "rocksdb-index-key",
    "RocksDB index: key",
    "IndexRocksDBRecord#getKeyBytes",
    Struct(
        "hour_ms" / Int64sb * "store time of the message, rounded down to the hour",
        "text"
        / Bytes(size_before("text", 8))
        * "`@topic@K@key@unique key@`, `@topic@T@tag@unique key@` or `@topic@U@unique key@`",
        "physical_offset" / Int64sb * "where the record starts in the commit log",
    ),
    "In the column family `default`: one row for each key, for the tag, and for the unique key. The keys "
    "`lastOffsetPy` and `lastStoreTimeStamp` say which record was indexed last.",
)
INDEX_VALUE: Final = Format(
    "rocksdb-index",
    "RocksDB index: value",
    "IndexRocksDBRecord#getValueBytes",
    Struct("store_timestamp_ms" / Int64sb * "of the record"),
)
TIMER_KEY: Final = Format(
    "rocksdb-timer-key",
    "RocksDB timer: key",
    "TimerRocksDBRecord#getKeyBytes",
    Struct(
        "due_timestamp_ms" / Int64sb * "when the message is to be delivered",
        "unique_key" / GreedyBytes * "of the message",
    ),
    "In the column family `timer`. `sys_topic_scan_offset_checkpoint` is the next queue offset of the timer's topic, "
    "`timeline_checkpoint` the time up to which all was delivered.",
)
TIMER_VALUE: Final = Format(
    "rocksdb-timer",
    "RocksDB timer: value",
    "TimerRocksDBRecord#getValueBytes",
    Struct(
        "record_size" / Int32sb * "bytes of the whole record",
        "physical_offset" / Int64sb * "where the record starts in the commit log",
    ),
)
TRANSACTION_KEY: Final = Format(
    "rocksdb-transaction-key",
    "RocksDB transactions: key",
    "TransRocksDBRecord#getKeyBytes",
    Struct(
        "physical_offset" / Int64sb * "where the half message starts in the commit log",
        "text" / GreedyBytes * "`@topic@transaction id`",
    ),
    "In the column family `trans`: half messages without an outcome. `lastOffsetPy` is the greatest one so far.",
)
TRANSACTION_VALUE: Final = Format(
    "rocksdb-transaction",
    "RocksDB transactions: value",
    "TransRocksDBRecord#getValueBytes",
    Struct(
        "check_count" / Int32sb * "how often the broker has asked the producer",
        "record_size" / Int32sb * "bytes of the whole record",
    ),
)
assert TIMER_VALUE.size == 12
assert TRANSACTION_VALUE.size == 8

_LONG: Final = Packer(">q")
_TIMER: Final = Packer(TIMER_VALUE.struct_code)
_TRANSACTION: Final = Packer(TRANSACTION_VALUE.struct_code)


class IndexRow(NamedTuple):
    """A row of the index.

    Attributes:
        text: what of the key lies between hour and offset.
        kind: key, tag or unique-key.
        key: the key or tag; that of a unique key is empty.
    """

    hour_ms: int
    text: bytes
    topic: bytes
    kind: str
    key: bytes
    unique_key: bytes
    physical_offset: int
    store_timestamp_ms: int


class TimerRow(NamedTuple):
    """A message that waits for its time, or was delivered lately."""

    due_timestamp_ms: int
    unique_key: bytes
    record_size: int
    physical_offset: int


class TransactionRow(NamedTuple):
    """A half message without an outcome."""

    physical_offset: int
    topic: bytes
    transaction_id: bytes
    check_count: int
    record_size: int


class Mark(NamedTuple):
    """Progress of a table."""

    name: str
    value: int


Row = IndexRow | TimerRow | TransactionRow | Mark
ROW_TYPES: Final[Mapping[type[Row], str]] = {
    IndexRow: "index-row",
    TimerRow: "timer-row",
    TransactionRow: "transaction-row",
    Mark: "mark",
}
"""What `dump` calls each."""


def parse_row(family: str, key: bytes, value: bytes) -> Row | None:
    """A row of a table; None where it is none."""
    if key in MARKS[family]:
        return Mark(key.decode(), *_LONG.unpack(value)) if len(value) == _LONG.size else None
    if family == TIMER_FAMILY:
        if len(key) <= _LONG.size or len(value) != _TIMER.size:
            return None
        (due,), (size, physical_offset) = _LONG.unpack(key[:8]), _TIMER.unpack(value)
        return TimerRow(due, key[8:], size, physical_offset)
    if family == TRANSACTION_FAMILY:
        nothing, _, text = key[8:].partition(_SEPARATOR)
        topic, separator, transaction_id = text.partition(_SEPARATOR)
        if len(key) < _LONG.size or nothing or not separator or len(value) != _TRANSACTION.size:
            return None
        (physical_offset,), (check_count, size) = _LONG.unpack(key[:8]), _TRANSACTION.unpack(value)
        return TransactionRow(physical_offset, topic, transaction_id, check_count, size)
    return _index_row(key, value)


def _index_row(key: bytes, value: bytes) -> IndexRow | None:
    text = key[8:-8]
    parts = text.split(_SEPARATOR)
    is_whole = len(parts) >= 5 and not parts[0] and not parts[-1] and parts[2] in _KINDS
    if len(key) < 16 or not is_whole or len(value) != _LONG.size:
        return None
    kind = _KINDS[parts[2]]
    if kind != "unique-key" and len(parts) < 6:
        return None
    # A key may have the separator in it, a unique key has not, unless it is the only one.
    own, unique_key = parts[3:-2], parts[-2]
    if kind == "unique-key":
        own, unique_key = [], _SEPARATOR.join(parts[3:-1])
    (hour,), (physical_offset,) = _LONG.unpack(key[:8]), _LONG.unpack(key[-8:])
    return IndexRow(hour, text, parts[1], kind, _SEPARATOR.join(own), unique_key, physical_offset, *_LONG.unpack(value))


def index_texts(topic: bytes, keys: tuple[bytes, ...], tag: bytes, unique_key: bytes) -> list[bytes]:
    """The texts of all rows of a message (`IndexRocksDBStore#buildIndex`)."""
    named = [(b"K", key) for key in dict.fromkeys(keys)] + ([(b"T", tag)] if tag else [])
    texts = [b"@%b@%b@%b@%b@" % (topic, kind, text, unique_key) for kind, text in named]
    return [*texts, b"@%b@U@%b@" % (topic, unique_key)]
