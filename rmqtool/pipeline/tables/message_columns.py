"""Arrow record batches of the table `messages`, column by column out of the rows of a scan; nothing is done per record.

Only the columns that are asked for are made, each as its source in `report.fields` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.engine.rules.topic_names import RETRY_PREFIX, Delivery, delivery_of
from rmqtool.findings.finding import TOMBSTONE_FINDING
from rmqtool.formats import commitlog, properties
from rmqtool.formats.commitlog import MESSAGE_MAGICS
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.message_id import host_text
from rmqtool.formats.system_flag import BORN_HOST_V6, STORE_HOST_V6
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.pipeline.tables.decoded_bodies import content_batches, whole_content
from rmqtool.pipeline.tables.texts import (
    Bytes,
    Numbers,
    binary_array,
    property_maps,
    text_array,
    time_array,
    word_lists,
)
from rmqtool.report.fields import (
    MESSAGE_TABLE,
    Body,
    BodyContent,
    Code,
    Constant,
    Host,
    Meaning,
    MessageId,
    Number,
    Properties,
    Property,
    PropertyBlock,
    RowFact,
    Source,
    Time,
    Topic,
    UnfilledFieldError,
    Words,
)
from rmqtool.scan.columns import Row
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.scan.walk import Batch

_HEX: Final = np.frombuffer("".join(f"{value:02X}" for value in range(256)).encode(), np.uint8).reshape(256, 2)
_VERDICTS: Final = pa.array([verdict.name.lower().replace("_", "-") for verdict in Verdict])
_FINDINGS: Final = pa.array([FINDING_IDS.get(verdict) for verdict in Verdict], pa.string())
_FIELDS: Final = {column.name: column for column in MESSAGE_TABLE}


_WAITING: Final = (Delivery.HALF, Delivery.DELAYED, Delivery.TIMER)
_REAL_TOPIC: Final[Mapping[Delivery, tuple[str, ...]]] = {
    **dict.fromkeys(_WAITING, (properties.REAL_TOPIC,)),
    Delivery.RETRY: (properties.RETRY_TOPIC,),
    Delivery.DEAD_LETTER: (properties.DEAD_LETTER_ORIGIN, properties.RETRY_TOPIC),
}
"""The properties that name the topic to which a message was sent, the first that is there."""
_REAL_QUEUE_ID: Final[Mapping[Delivery, tuple[str, ...]]] = {
    **dict.fromkeys(_WAITING, (properties.REAL_QUEUE_ID,)),
    Delivery.RETRY: (),
    Delivery.DEAD_LETTER: (),
}
_RETRY_TOPIC: Final = properties.RETRY_TOPIC
_QUEUE_ID: Final = re.compile(r"\d{1,9}", re.ASCII)
_MEANT_BY: Final[Mapping[str, tuple[tuple[str, pa.DataType], ...]]] = {
    "delivery": (),
    "is_system": (),
    "real_topic": (("topic", pa.string()),),
    "real_queue_id": (("queue_id", pa.int32()),),
    "identity": (("unique_key", pa.string()), ("message_id", pa.string())),
}
"""Of each column of `Meaning` the columns out of which it is made."""


@dataclass(frozen=True)
class SourceFile:
    """Where rows come from: the store as it was named, and the file's path in it."""

    store: str
    path: str


@dataclass(frozen=True)
class GatheredRecords:
    """Records that do not lie side by side, of one file, with their bytes one after the other.

    Attributes:
        rows: of the records, ascending by physical offset.
        starts: of their bytes in `content`.
        file_start: physical offset of the file.
    """

    rows: Sequence[Row]
    topics: list[bytes]
    content: bytes
    starts: Numbers
    file_start: int = 0

    def of_file(self, file_start: int) -> GatheredRecords:
        """The same records, of a file that begins at a physical offset."""
        return replace(self, file_start=file_start)

    def places(self, physical_offsets: Numbers) -> Numbers:
        """Where in `content` records begin."""
        order = np.array([row.physical_offset for row in self.rows])
        return np.asarray(self.starts[np.searchsorted(order, physical_offsets)])


@dataclass
class MessageBatches:
    """Makes the record batches of one file."""

    schema: pa.Schema
    place: SourceFile
    _topics: pa.Array | None = field(default=None, repr=False)

    def batches(self, batch: Batch | GatheredRecords, rows: NDArray[Any]) -> Iterator[pa.RecordBatch]:
        """The record batches of some rows of a batch, which are all messages or all none.

        They are one, unless bodies are decompressed: then each has at most `BATCH_BYTES` of them and one more.
        """
        if self._topics is None or len(self._topics) != len(batch.topics):
            self._topics = pa.array([decode_java_utf8(name) for name in batch.topics], pa.string())
        whole = _Columns(rows, batch, self._topics, self.place)
        if "body_decoded" not in self.schema.names or not whole.are_messages:
            yield whole.record_batch(self.schema)
            return
        for first, contents in content_batches(
            whole.column(self.schema.field("body_decoded").with_name("body")), _numbers(rows["sys_flag"]), whole_content
        ):
            some = _Columns(rows[first : first + len(contents)], batch, self._topics, self.place, contents)
            yield some.record_batch(self.schema)

    def range_row(self, physical_offset: int, size: int, finding: str, *, file_position: int | None) -> pa.RecordBatch:
        """The record batch of one range of the log that could not be scanned."""
        values: dict[Source, Any] = {
            RowFact.STORE: self.place.store,
            RowFact.FILE: self.place.path,
            RowFact.FILE_POSITION: file_position,
            RowFact.VERDICT: finding.rpartition(".")[2],
            RowFact.TYPE: "bad",
            RowFact.FINDING: finding,
            Number("physical_offset"): physical_offset,
            Number("size"): size,
        }
        columns = [_FIELDS[name] for name in self.schema.names]
        row = {column.name: values[column.source] if column.is_in("bad") else None for column in columns}
        return pa.RecordBatch.from_pylist([row], self.schema)


class _Columns:
    """Rows of a batch, all messages or all none, as the columns of the table.

    Attributes:
        are_messages: sound ones; of blanks and bad ranges only the place and the verdict are known.
    """

    def __init__(
        self,
        rows: NDArray[Any],
        batch: Batch | GatheredRecords,
        topics: pa.Array,
        place: SourceFile,
        contents: pa.Array | None = None,
    ) -> None:
        """Find the bytes of the rows.

        Args:
            contents: of the bodies, where they are asked for.
        """
        self._rows, self._topics, self._place, self._contents = rows, topics, place, contents
        self._base = base = batch.file_start if isinstance(batch, GatheredRecords) else batch.split.physical_offset
        self._fast = not isinstance(batch.rows, list)
        self.are_messages = bool(
            rows.size
            and int(rows["magic"][0]) in MESSAGE_MAGICS
            and int(rows["verdict"][0]) in (Verdict.GOOD, Verdict.STALE)
        )
        if not self.are_messages:
            return
        if isinstance(batch, GatheredRecords):
            self._pool: Bytes = np.frombuffer(batch.content, np.uint8)
            self._at: Numbers = batch.places(rows["physical_offset"])
            return
        window = batch.window
        begin = int(rows["physical_offset"][0]) - base
        end = int(rows["physical_offset"][-1]) + int(rows["size"][-1]) - base
        if window.start <= begin and end <= window.end:
            self._pool = np.frombuffer(window.storage, np.uint8, window.end - window.start)
            begin = window.start
        else:  # a record that is longer than a window, alone
            self._pool = np.frombuffer(b"".join(window.chunks(begin, end)), np.uint8)
        self._at = rows["physical_offset"] - (base + begin)

    def record_batch(self, schema: pa.Schema) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self.column(column) for column in schema], schema=schema)

    def column(self, column: pa.Field) -> pa.Array:
        """The values of a field, null where rows like these do not have it."""
        rows, count, described = self._rows, len(self._rows), _FIELDS[column.name]
        if described.rows is not None and not self.are_messages:
            return pa.nulls(count, column.type)
        match described.source:
            case RowFact.STORE:
                return pa.repeat(pa.scalar(self._place.store, pa.string()), count)
            case RowFact.FILE:
                return pa.repeat(pa.scalar(self._place.path, pa.string()), count)
            case RowFact.FILE_POSITION:
                return _numbers(rows["physical_offset"] - self._base)
            case RowFact.TYPE:
                verdicts = rows["verdict"]
                if self.are_messages:
                    return _few_texts(verdicts, lambda code: "stale" if code == Verdict.STALE else "message")
                is_sound = np.isin(verdicts, (Verdict.GOOD, Verdict.STALE))
                is_blank = is_sound & (rows["magic"] == commitlog.MAGIC_BLANK)
                return pa.array(np.where(is_blank, "blank", "bad").tolist(), pa.string())
            case RowFact.VERDICT:
                return _VERDICTS.take(_numbers(rows["verdict"]))
            case RowFact.FINDING:
                findings = _FINDINGS.take(_numbers(rows["verdict"]))
                is_tombstone = rows["prepared_transaction_offset"] == TOMBSTONE
                if not self.are_messages or not is_tombstone.any():
                    return findings
                return pc.if_else(pc.and_(is_tombstone, pc.is_null(findings)), TOMBSTONE_FINDING, findings)
            case Number(name):
                return _numbers(rows[name])
            case Time(name):
                return time_array(rows[name])
            case Code(name, value_of):
                return _few_texts(np.ascontiguousarray(rows[name]), value_of)
            case Constant(value):
                return pa.repeat(pa.scalar(value, column.type), count)
            case Topic():
                return self._topics.take(_numbers(rows["topic_number"]))
            case Host() as host:
                return self._hosts(host)
            case MessageId(host):
                return self._message_ids(host)
            case Property(_, name):
                starts = self._at + rows[f"{name}_position"]
                return text_array(self._pool, starts, rows[f"{name}_length"], fast=self._fast)
            case Words(_, name):
                starts = self._at + rows[f"{name}_position"]
                return word_lists(self._pool, starts, rows[f"{name}_length"], fast=self._fast)
            case Properties():
                return property_maps(self._pool, self._properties_at, rows["properties_length"], fast=self._fast)
            case PropertyBlock():
                return binary_array(self._pool, self._properties_at, rows["properties_length"], fast=self._fast)
            case Body("body"):
                v6_hosts = self._has(BORN_HOST_V6).astype(np.int64) + self._has(STORE_HOST_V6)
                starts = self._at + commitlog.HEAD_SIZE + v6_hosts * commitlog.V6_EXTRA
                return binary_array(self._pool, starts, rows["body_length"], fast=self._fast)
            case BodyContent():
                return self._contents
            case Meaning(part):
                return self._meaning(part)
            case Body():
                raise UnfilledFieldError(column.name, "Arrow columns")
            case source:
                assert_never(source)

    def _meaning(self, part: str) -> pa.Array:
        """A column of `Meaning`: most follows from the topic; only of records that wait or come again the properties
        are read.
        """
        column_of = {name: self.column(pa.field(name, kind)) for name, kind in _MEANT_BY[part]}
        if part == "identity":
            return pc.coalesce(*column_of.values())
        numbers = self._rows["topic_number"]
        deliveries = [delivery_of(topic) for topic in self._topics.to_pylist()]
        if part == "delivery":
            return pa.array(deliveries, pa.string()).take(_numbers(numbers))
        if part == "is_system":
            own = [one not in (Delivery.NORMAL, Delivery.RETRY, Delivery.DEAD_LETTER) for one in deliveries]
            return pa.array(own, pa.bool_()).take(_numbers(numbers))
        values, named = column_of.popitem()[1], _REAL_TOPIC if part == "real_topic" else _REAL_QUEUE_ID
        keys = [named.get(one) for one in deliveries]
        is_told = np.array([one is not None for one in keys])[numbers]
        if not is_told.any():
            return values
        at = np.flatnonzero(is_told)
        lengths = self._rows["properties_length"][at]
        maps = property_maps(self._pool, self._properties_at[at], lengths, fast=self._fast).to_pylist()
        told: list[Any] = []
        for number, pairs in zip(numbers[at].tolist(), maps, strict=True):
            named = dict(pairs)
            text = next((named[key] for key in keys[number] or () if key in named), None)
            if text is not None and text.startswith(RETRY_PREFIX):  # a retry that waits for its time
                text = named.get(_RETRY_TOPIC, text)
            told.append(text)
        if part == "real_queue_id":
            told = [int(text) if text is not None and _QUEUE_ID.fullmatch(text) else None for text in told]
            return pc.replace_with_mask(values, pa.array(is_told), pa.array(told, values.type))
        own = values.take(pa.array(at)).to_pylist()
        texts = [text or topic for text, topic in zip(told, own, strict=True)]
        return pc.replace_with_mask(values, pa.array(is_told), pa.array(texts, values.type))

    def _hosts(self, host: Host) -> pa.Array:
        at, is_v6 = self._host_at(host), self._has(host.v6_bit)
        if not is_v6.any():
            return _host_texts(self._pool, at, commitlog.V4_HOST_SIZE)
        if is_v6.all():
            return _host_texts(self._pool, at, commitlog.V6_HOST_SIZE)
        parts = [
            _host_texts(self._pool, at[~is_v6], commitlog.V4_HOST_SIZE),
            _host_texts(self._pool, at[is_v6], commitlog.V6_HOST_SIZE),
        ]
        order = np.empty(len(at), np.int64)
        order[np.concatenate([np.flatnonzero(~is_v6), np.flatnonzero(is_v6)])] = np.arange(len(at))
        return pa.concat_arrays(parts).take(pa.array(order))

    def _message_ids(self, host: Host) -> pa.Array:
        """Hex of the store host and of the record's own offset, which is its actual one."""
        count = len(self._rows)
        is_v6, at = self._has(host.v6_bit), self._host_at(host)
        own = np.ascontiguousarray(self._rows["own_offset"].astype(">i8")).view(np.uint8).reshape(count, 8)
        widths = np.where(is_v6, commitlog.V6_HOST_SIZE, commitlog.V4_HOST_SIZE) + 8
        id_bytes = np.zeros((count, commitlog.V6_HOST_SIZE + 8), np.uint8)
        for chosen, width in ((~is_v6, commitlog.V4_HOST_SIZE), (is_v6, commitlog.V6_HOST_SIZE)):
            if chosen.any():
                id_bytes[chosen, :width] = _fixed(self._pool, at[chosen], width)
                id_bytes[chosen, width : width + 8] = own[chosen]
        texts = _HEX[id_bytes].reshape(-1)
        starts = np.arange(count) * (2 * id_bytes.shape[1])
        return text_array(texts, starts, 2 * widths, fast=self._fast)

    @cached_property
    def _properties_at(self) -> Numbers:
        return np.asarray(self._at + self._rows["size"] - self._rows["properties_length"])

    def _host_at(self, host: Host) -> Numbers:
        return np.asarray(self._at + host.position + self._has(host.moved_by) * commitlog.V6_EXTRA)

    def _has(self, bit: int) -> NDArray[np.bool_]:
        return np.asarray(self._rows["sys_flag"] & bit != 0)


def _numbers(values: Numbers) -> pa.Array:
    return pa.array(np.array(values))  # a copy, for the scan uses its rows again


def _few_texts(codes: Numbers, text_of: Callable[[Any], str | None]) -> pa.Array:
    """Texts by a number of which there are few different ones."""
    if (codes == codes[0]).all():
        return pa.repeat(pa.scalar(text_of(codes[0].item()), pa.string()), len(codes))
    different, numbers = np.unique(codes, return_inverse=True)
    return pa.array([text_of(code) for code in different.tolist()], pa.string()).take(pa.array(numbers))


def _fixed(pool: Bytes, starts: Numbers, width: int) -> Bytes:
    """Ranges of one width, as rows."""
    return np.asarray(pool[np.asarray(starts)[:, None] + np.arange(width)])


def _host_texts(pool: Bytes, starts: Numbers, width: int) -> pa.Array:
    raw = _fixed(pool, starts, width)
    if width == commitlog.V4_HOST_SIZE:
        codes = np.ascontiguousarray(raw).view(">i8").reshape(-1)
        return _few_texts(codes, lambda code: host_text(code.to_bytes(width, "big", signed=True)))
    # numpy leaves out zeros at the end
    codes = np.ascontiguousarray(raw).view(f"S{width}").reshape(-1)
    return _few_texts(codes, lambda code: host_text(code.ljust(width, b"\0")))


def groups(rows: NDArray[Any]) -> Sequence[NDArray[Any]]:
    """Rows in groups that lie one after the other and are all messages or all none."""
    messages = np.isin(rows["verdict"], (Verdict.GOOD, Verdict.STALE)) & np.isin(rows["magic"], list(MESSAGE_MAGICS))
    return np.split(rows, np.flatnonzero(messages[1:] != messages[:-1]) + 1)
