"""Fields of the rows and tables: their meaning, their source, and their description for people.

Values, JSON, CSV, Arrow columns, Spark's schema and its comments all follow this description. A field whose source a
maker of rows does not know is an error there, never null.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple

from rmqtool.formats import commitlog, properties, system_flag
from rmqtool.formats.consumequeue import FILLER_UNIT


class Type(Enum):
    """Of the values of a field; numbers with their bits in Arrow."""

    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    BOOL = "bool"
    TEXT = "text"
    TEXTS = "list of texts"
    MAP = "map of texts"
    BYTES = "bytes"
    """Where a row is JSON: text."""
    TIME = "time"


class RowFact(Enum):
    """Facts of a row that are not from a record: where it comes from, and how it was judged."""

    STORE = "store"
    FILE = "file"
    FILE_POSITION = "file position"
    TYPE = "type"
    VERDICT = "verdict"
    FINDING = "finding"


class Number(NamedTuple):
    """A number of the scan, in its column of this name."""

    column: str


class Time(NamedTuple):
    """Milliseconds as a time."""

    column: str


class Code(NamedTuple):
    """A value that depends on a number of the scan with few different values."""

    column: str
    value_of: Callable[[int], Any]


class Constant(NamedTuple):
    """A value that is equal for every message that a scan calls good."""

    value: Any


class Topic(NamedTuple):
    """The name of the topic, by its number in the scan."""


class Host(NamedTuple):
    """An address: its position in the record, the flag that makes it IPv6, and the flag by which it lies later."""

    position: int
    v6_bit: int
    moved_by: int = 0


class MessageId(NamedTuple):
    """The broker's id: store host, and the physical offset that the record says of itself."""

    host: Host


class Property(NamedTuple):
    """The text of a property; the scan has its position and length in columns that begin with a name."""

    key: str
    column: str


class Words(NamedTuple):
    """The words of a property's text; see `Property`."""

    key: str
    column: str


class Properties(NamedTuple):
    """All properties by name."""


class PropertyBlock(NamedTuple):
    """The stored bytes of the properties."""


class Body(NamedTuple):
    """The body, or a fact about it: one of `bodies.BODY_FIELDS` and `bodies.DECODED_FIELDS`."""

    part: str


class Meaning(NamedTuple):
    """What a message is to those who send and receive it: one of the columns of the profile `business`."""

    part: str


class BodyContent(NamedTuple):
    """The body, decompressed."""


Source = (
    RowFact | Number | Time | Code | Constant | Topic | Host | MessageId | Property | Words
    | Properties | PropertyBlock | Body | BodyContent | Meaning
)  # fmt: skip
"""Where the values of a field of the messages come from."""


class Given(NamedTuple):
    """A column of units or index entries: of their bytes by its name there, or one that tells where they lie."""

    column: str


class Computed(NamedTuple):
    """What a function of numpy arrays makes of such columns."""

    columns: tuple[str, ...]
    value_of: Callable[..., Any]


UnitSource = Given | Time | Computed
"""Where the values of a field of the tables `consumequeue` and `index` come from."""
STORE_HOST: Final = Host(commitlog.STORE_HOST_AT, system_flag.STORE_HOST_V6, system_flag.BORN_HOST_V6)


class UnfilledFieldError(Exception):
    """A maker of rows does not know how to fill a field."""

    def __init__(self, name: str, rows: str) -> None:
        super().__init__(f"field {name!r}: {rows} do not fill it")


@dataclass(frozen=True)
class RowField:
    """A field of a row, or a column of a table.

    Attributes:
        nullable: a row that has the field may say null.
        rows: types of the rows that have it, in the others it is null; None: all of them.
        width: of its column where a person chooses it; text without one takes what the terminal leaves.
    """

    name: str
    type: Type
    comment: str
    nullable: bool = False
    rows: frozenset[str] | None = None
    width: int | None = None

    def is_in(self, row_type: str) -> bool:
        return self.rows is None or row_type in self.rows


@dataclass(frozen=True, kw_only=True)
class MessageField(RowField):
    """A field of a message, whose values come from its source."""

    source: Source


@dataclass(frozen=True, kw_only=True)
class UnitField(RowField):
    """A field of a unit or an index entry, whose values come from its source."""

    source: UnitSource


MESSAGE_TYPES: Final = frozenset({"message", "stale"})


def _message(
    name: str, kind: Type, source: Source, comment: str, *, nullable: bool = False, width: int | None = None,
    rows: frozenset[str] | None = MESSAGE_TYPES,
) -> MessageField:  # fmt: skip
    return MessageField(name, kind, comment, nullable, rows, width, source=source)


_range: Final = partial(_message, rows=None)


MESSAGE_ROW: Final = (
    _range(
        "type", Type.TEXT, RowFact.TYPE,
        "message, blank (end of a file), bad or stale (after the end of the log)", width=7,
    ),
    _range("physical_offset", Type.INT64, Number("physical_offset"), "position in the commit log, in bytes", width=14),
    _range("size", Type.INT64, Number("size"), "bytes in the file"),
    _message(
        "magic", Type.TEXT, Code("magic", commitlog.MAGIC_NAMES.__getitem__),
        "format of the record: v1 or v2", width=5,
    ),
    _message("body_crc", Type.INT32, Number("body_crc"), "CRC-32 of the stored body"),
    # The scan calls a record bad whose CRC is not right.
    _message("body_crc_ok", Type.BOOL, Constant(value=True), "whether the stored body has this CRC-32"),
    _message("queue_id", Type.INT32, Number("queue_id"), "number of the queue in its topic"),
    _message("flag", Type.INT32, Number("flag"), "flag of the producer"),
    _message("queue_offset", Type.INT64, Number("queue_offset"), "position in the queue, in messages"),
    _message("sys_flag", Type.INT32, Number("sys_flag"), "bits of MessageSysFlag"),
    _message(
        "transaction", Type.TEXT, Code("sys_flag", system_flag.transaction),
        "none, prepared, commit or rollback", width=11,
    ),
    _message(
        "compression", Type.TEXT, Code("sys_flag", system_flag.compression),
        "of the stored body: null, zlib, lz4, zstd or unknown", nullable=True, width=11,
    ),
    _message(
        "born_timestamp_ms", Type.INT64, Number("born_timestamp_ms"),
        "when the producer made the message, in milliseconds since 1970 (UTC)",
    ),
    _message(
        "born_host", Type.TEXT, Host(commitlog.BORN_HOST_AT, system_flag.BORN_HOST_V6),
        "address of the producer, ip:port", width=21,
    ),
    _message(
        "store_timestamp_ms", Type.INT64, Number("store_timestamp_ms"),
        "when the broker stored the message, in milliseconds since 1970 (UTC)",
    ),
    _message("store_host", Type.TEXT, STORE_HOST, "address of the broker, ip:port", width=21),
    _message("reconsume_times", Type.INT32, Number("reconsume_times"), "how often consumers sent the message back"),
    _message(
        "prepared_transaction_offset", Type.INT64, Number("prepared_transaction_offset"),
        "physical offset of the prepared message of a transaction", width=27,
    ),
    _message("body_length", Type.INT32, Number("body_length"), "stored bytes of the body"),
    _message("topic", Type.TEXT, Topic(), "topic"),
    _message("properties", Type.MAP, Properties(), "properties by name"),
    _message("tags", Type.TEXT, Property(properties.TAGS, "tags"), "tags", nullable=True),
    _message("keys", Type.TEXTS, Words(properties.KEYS, "keys"), "keys by which the message is indexed"),
    _message(
        "unique_key", Type.TEXT, Property(properties.UNIQUE_KEY, "unique_key"), "the producer's id of the message",
        nullable=True, width=32,
    ),
    _message("message_id", Type.TEXT, MessageId(STORE_HOST), "the broker's id of the message", width=32),
    _range("finding", Type.TEXT, RowFact.FINDING, "id of the damage; null if there is none", nullable=True),
)  # fmt: skip
"""The fields of a message's row, in order, without those that are asked for."""
BODY_ROW: Final = (
    _message(
        "body", Type.BYTES, Body("body"), "stored bytes of the body; a compressed body stays compressed", nullable=True
    ),
    _message("body_encoding", Type.TEXT, Body("body_encoding"), "how the body is shown", width=13),
    _message("body_truncated", Type.BOOL, Body("body_truncated"), "whether the body is cut"),
    _message("body_error", Type.TEXT, Body("body_error"), "why the body is not shown", nullable=True, width=20),
)  # fmt: skip
"""Fields of a row where bodies are asked for."""
DECODED_ROW: Final = (
    _message("decoded", Type.TEXT, Body("decoded"), "what the decoder made of the body", nullable=True),
    _message("decoder", Type.TEXT, Body("decoder"), "the decoder that read the body", nullable=True),
    _message("decoder_error", Type.TEXT, Body("decoder_error"), "why the body is not decoded", nullable=True),
)
"""Fields of a row, after those of the body, where bodies are decoded."""
PROPERTY_BLOCK: Final = _message("properties_raw", Type.BYTES, PropertyBlock(), "stored bytes of the properties")
"""The last field of a row where the stored bytes are requested."""
MESSAGE_FIELDS: Final = {field.name: field for field in (*MESSAGE_ROW, *BODY_ROW, *DECODED_ROW, PROPERTY_BLOCK)}
"""All that the row of a message may have, by name."""


def _column(
    name: str, kind: Type, comment: str, source: UnitSource | None = None, *, nullable: bool = False,
    rows: frozenset[str] | None = None,
) -> UnitField:  # fmt: skip
    """A field of a unit or an index entry: without a source, the column of its name."""
    return UnitField(name, kind, comment, nullable, rows, source=source or Given(name))


_STORE: Final = _column("store", Type.TEXT, "the store, as it was named")
_FILE: Final = _column("file", Type.TEXT, "path of the file in the store")
_FILE_POSITION: Final = _column("file_position", Type.INT64, "bytes from the start of the file", nullable=True)
_TOPIC: Final = _column("topic", Type.TEXT, "topic", nullable=True)
_QUEUE_ID: Final = _column("queue_id", Type.INT32, "number of the queue in its topic", nullable=True)
_SIZE: Final = _column("size", Type.INT64, "bytes in the file")
_FINDING: Final = _column("finding", Type.TEXT, "id of the damage; null if there is none", nullable=True)
_TIME_COMMENT: Final = "_timestamp_ms as a time; null before 1970 and after 9999"


def _told(field: RowField, source: RowFact) -> MessageField:
    """A column of the messages that shows where a row comes from."""
    return MessageField(field.name, field.type, field.comment, field.nullable, source=source)


_IN_MESSAGES: Final = {
    field.name: field
    for field in (
        _told(_STORE, RowFact.STORE),
        _told(_FILE, RowFact.FILE),
        _told(_FILE_POSITION, RowFact.FILE_POSITION),
        _range("verdict", Type.TEXT, RowFact.VERDICT, "good, or what is wrong"),
        _message("store_time", Type.TIME, Time("store_timestamp_ms"), f"store{_TIME_COMMENT}", nullable=True),
        _message("born_time", Type.TIME, Time("born_timestamp_ms"), f"born{_TIME_COMMENT}", nullable=True),
        _message(
            "body_decoded", Type.BYTES, BodyContent(),
            "the body, decompressed; null if it is not what compression says, or longer than 16 MiB", nullable=True,
        ),
        *MESSAGE_ROW, BODY_ROW[0], PROPERTY_BLOCK,
        _message(
            "delivery", Type.TEXT, Meaning("delivery"),
            "normal, half, op, delayed, timer, retry, dead-letter, trace, pop or system",
        ),
        _message("is_system", Type.BOOL, Meaning("is_system"), "whether the topic is the broker's own"),
        _message(
            "real_topic", Type.TEXT, Meaning("real_topic"),
            "the topic that the message was sent to; of a record that waits or comes again its properties say it",
        ),
        _message(
            "real_queue_id", Type.INT32, Meaning("real_queue_id"),
            "the queue that the message was sent to; null where nothing in the record says it", nullable=True,
        ),
        _message(
            "identity", Type.TEXT, Meaning("identity"),
            "equal for records of the same message: the producer's id, else the broker's",
        ),
    )
}  # fmt: skip
_HEADER_COLUMNS: Final = (
    *("store", "file", "file_position", "verdict", "type", "topic", "queue_id", "queue_offset", "physical_offset"),
    *("size", "store_timestamp_ms", "store_time", "magic", "body_crc", "body_crc_ok", "flag", "sys_flag"),
    *("transaction", "compression", "born_timestamp_ms", "born_time", "born_host", "store_host", "reconsume_times"),
    *("prepared_transaction_offset", "body_length", "message_id", "finding"),
)
_PROPERTY_COLUMNS: Final = ("tags", "keys", "unique_key", "properties")
_STORED_COLUMNS: Final = ("properties_raw", "body")
MEANING_COLUMNS: Final = ("delivery", "is_system", "real_topic", "real_queue_id", "identity")
_BUSINESS_COLUMNS: Final = (
    *("store", "topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp_ms", "store_time", "born_time"),
    *(
        "born_host",
        "transaction",
        "reconsume_times",
        "tags",
        "keys",
        "properties",
        "identity",
        "body_decoded",
        "finding",
    ),
)
MESSAGE_PROFILES: Final = {
    "headers": _HEADER_COLUMNS,
    "properties": _HEADER_COLUMNS + _PROPERTY_COLUMNS,
    "full": _HEADER_COLUMNS + _PROPERTY_COLUMNS + _STORED_COLUMNS,
    "business": _BUSINESS_COLUMNS,
}
"""Columns of the table `messages` by profile: the fixed fields; the properties too; the stored bytes too; what says
most to those who send and receive messages."""
COSTLY_COLUMNS: Final = ("body_decoded",)
"""Columns that no profile has, because they cost more than all others: they are read only if they are named."""
MESSAGE_TABLE: Final = tuple(
    _IN_MESSAGES[name] for name in (*MESSAGE_PROFILES["full"], *MEANING_COLUMNS, *COSTLY_COLUMNS)
)
assert {*MESSAGE_TABLE} == {*_IN_MESSAGES.values()}, "a field of the messages is in no profile"

_UNITS: Final = frozenset({"unit", "batch-unit"})
QUEUE_TABLE: Final = (
    _STORE,
    _FILE,
    _FILE_POSITION,
    _column("type", Type.TEXT, "unit, batch-unit, bad, or of a database queue-end, queue-checkpoint or odd-row"),
    _TOPIC,
    _QUEUE_ID,
    _column("end", Type.TEXT, "of a stored end of a queue: min or max", rows=frozenset({"queue-end"})),
    _column("queue_offset", Type.INT64, "position in the queue, in messages", rows=_UNITS | {"queue-end"}),
    _column(
        "physical_offset", Type.INT64, "position in the commit log, in bytes",
        rows=_UNITS | {"queue-end", "queue-checkpoint"},
    ),
    _column("record_size", Type.INT32, "bytes of the record in the commit log", rows=_UNITS),
    _column("tags_code", Type.INT64, "hash of the tags, or the position of an extension", rows=_UNITS),
    _column(
        "filler", Type.BOOL, "whether the unit only fills a gap",
        Computed(
            ("physical_offset", "record_size", "tags_code"),
            lambda *unit: (unit[0] == FILLER_UNIT[0]) & (unit[1] == FILLER_UNIT[1]) & (unit[2] == FILLER_UNIT[2]),
        ),
        rows=frozenset({"unit"}),
    ),
    _column(
        "extension_position", Type.INT64, "position in the extension files", nullable=True, rows=frozenset({"unit"})
    ),
    _column(
        "store_timestamp_ms", Type.INT64, "when the broker stored the message, in milliseconds since 1970 (UTC)",
        nullable=True, rows=_UNITS,
    ),
    _column("store_time", Type.TIME, f"store{_TIME_COMMENT}", Time("store_timestamp_ms"), nullable=True, rows=_UNITS),
    _column("batch_size", Type.INT16, "messages in the batch", rows=frozenset({"batch-unit"})),
    _column("compacted_offset", Type.INT32, "brokers write -1", rows=frozenset({"batch-unit"})),
    _SIZE,
    _FINDING,
)  # fmt: skip
"""Columns of the table `consumequeue`; rows of a database have no position in a file."""
_ENTRIES: Final = frozenset({"entry"})
INDEX_TABLE: Final = (
    _STORE,
    _FILE,
    _column("file_position", Type.INT64, "bytes from the start of the file"),
    _column("type", Type.TEXT, "entry or bad"),
    _column("number", Type.INT32, "of the entry in its file, from 1", rows=_ENTRIES),
    _column("slot", Type.INT32, "slot of the entry's chain", rows=_ENTRIES),
    _column("key_hash", Type.INT32, "hash of topic and key", rows=_ENTRIES),
    _column("physical_offset", Type.INT64, "position in the commit log, in bytes", rows=_ENTRIES),
    _column(
        "time_delta_seconds", Type.INT32, "store time after that of the file's first entry, in seconds", rows=_ENTRIES
    ),
    _column(
        "store_timestamp_ms", Type.INT64,
        "store time out of header and entry, in milliseconds since 1970 (UTC), exact to a second", rows=_ENTRIES,
    ),
    _column("store_time", Type.TIME, f"store{_TIME_COMMENT}", Time("store_timestamp_ms"), nullable=True, rows=_ENTRIES),
    _column(
        "previous_entry", Type.INT32, "number of the entry before in the chain; 0 if there is none", rows=_ENTRIES
    ),
    _SIZE,
    _FINDING,
)  # fmt: skip
"""Columns of the table `index`."""
FINDING_TABLE: Final = (
    _STORE,
    RowField("id", Type.TEXT, "id of the finding"),
    RowField("severity", Type.TEXT, "error, warning or note"),
    _FILE,
    _FILE_POSITION,
    RowField("physical_offset", Type.INT64, "position in the commit log, in bytes", nullable=True),
    RowField("length", Type.INT64, "bytes that the finding is about", nullable=True),
    _TOPIC,
    _QUEUE_ID,
    RowField("queue_offset", Type.INT64, "position in the queue, in messages", nullable=True),
    RowField("count", Type.INT64, "how many cases the row stands for"),
    RowField("message", Type.TEXT, "the finding in words"),
    RowField("expected", Type.TEXT, "what should be there", nullable=True),
    RowField("found", Type.TEXT, "what is there", nullable=True),
    RowField("candidate", Type.TEXT, "what may have happened to the bytes, as far as they tell", nullable=True),
    RowField("repair", Type.TEXT, "command that repairs it, without the store's path", nullable=True),
    RowField("upstream", Type.TEXTS, "issues of RocketMQ about it, as owner/repository#number"),
)
"""Columns of the table `findings`: those of `verify`'s JSON."""
TABLES: Final = {
    "messages": MESSAGE_TABLE, "business_messages": MESSAGE_TABLE,
    "consumequeue": QUEUE_TABLE, "index": INDEX_TABLE, "findings": FINDING_TABLE,
}  # fmt: skip
