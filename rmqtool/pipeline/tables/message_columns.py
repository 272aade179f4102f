"""Arrow record batches of the table `messages`, column by column out of the rows of a scan; nothing is done per record.

Only the columns that are asked for are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.commitlog import BORN_HOST_AT, MESSAGE_MAGICS, STORE_HOST_AT
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.message_id import host_text
from rmqtool.pipeline.tables.decoded_bodies import content_batches, whole_content
from rmqtool.pipeline.tables.texts import Bytes, Numbers, binary_array, property_maps, text_array, word_lists
from rmqtool.pipeline.tables.times import time_array
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.scan.walk import Batch

_HEX: Final = np.frombuffer("".join(f"{value:02X}" for value in range(256)).encode(), np.uint8).reshape(256, 2)
_VERDICTS: Final = pa.array([verdict.name.lower().replace("_", "-") for verdict in Verdict])
_FINDINGS: Final = pa.array([FINDING_IDS.get(verdict) for verdict in Verdict], pa.string())
_PLAIN: Final = {
    name: name
    for name in (
        *("queue_id", "queue_offset", "store_timestamp_ms", "body_crc", "flag", "sys_flag", "born_timestamp_ms"),
        *("reconsume_times", "prepared_transaction_offset", "body_length"),
    )
}
"""Columns that are those of the scan."""
_ALWAYS: Final = frozenset({"store", "file", "file_position", "verdict", "type", "physical_offset", "size", "finding"})
"""Columns that a row has that is no message."""


@dataclass(frozen=True)
class SourceFile:
    """Where rows come from: the store as it was named, and the file's path in it."""

    store: str
    path: str


@dataclass
class MessageBatches:
    """Makes the record batches of one file."""

    schema: pa.Schema
    place: SourceFile
    _topics: pa.Array | None = field(default=None, repr=False)

    def batches(self, batch: Batch, rows: NDArray[Any]) -> Iterator[pa.RecordBatch]:
        """The record batches of some rows of a batch, which are all messages or all none.

        They are one, unless bodies are decompressed: then each has at most `BATCH_BYTES` of them and one more.
        """
        messages = bool(rows.size) and int(rows["magic"][0]) in MESSAGE_MAGICS
        messages = messages and int(rows["verdict"][0]) in (Verdict.GOOD, Verdict.STALE)
        if not messages:
            yield self._batch(_Bare(rows, batch.split.physical_offset))
            return
        if self._topics is None or len(self._topics) != len(batch.topics):
            self._topics = pa.array([decode_java_utf8(name) for name in batch.topics], pa.string())
        whole = _Messages(rows, batch, self._topics)
        if "body_decoded" not in self.schema.names:
            yield self._batch(whole)
            return
        flags = _numbers(rows["sys_flag"])
        for first, contents in content_batches(whole.column(pa.field("body", pa.binary())), flags, whole_content):
            some = _Messages(rows[first : first + len(contents)], batch, self._topics)
            some.contents = contents
            yield self._batch(some)

    def range_row(self, physical_offset: int, size: int, finding: str, *, file_position: int | None) -> pa.RecordBatch:
        """The record batch of one range of the log that could not be scanned."""
        values: dict[str, Any] = {
            "store": self.place.store,
            "file": self.place.path,
            "file_position": file_position,
            "verdict": finding.rpartition(".")[2],
            "type": "bad",
            "physical_offset": physical_offset,
            "size": size,
            "finding": finding,
        }
        return pa.RecordBatch.from_pylist([{name: values.get(name) for name in self.schema.names}], self.schema)

    def _batch(self, rows: _Bare) -> pa.RecordBatch:
        arrays = []
        for column in self.schema:
            if column.name in ("store", "file"):
                text = self.place.store if column.name == "store" else self.place.path
                arrays.append(pa.repeat(pa.scalar(text, pa.string()), len(rows.rows)))
            else:
                arrays.append(rows.column(column))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


@dataclass
class _Bare:
    """Rows of which only the place and the verdict are known: blanks and bad ranges."""

    rows: NDArray[Any]
    base: int

    def column(self, column: pa.Field) -> pa.Array:
        """One column, of the field's type."""
        if column.name not in _ALWAYS:
            return pa.nulls(len(self.rows), column.type)
        makers: dict[str, Callable[[], pa.Array]] = {
            "file_position": lambda: _numbers(self.rows["physical_offset"] - self.base),
            "physical_offset": lambda: _numbers(self.rows["physical_offset"]),
            "size": lambda: _numbers(self.rows["size"]),
            "verdict": lambda: _VERDICTS.take(_numbers(self.rows["verdict"])),
            "finding": lambda: _FINDINGS.take(_numbers(self.rows["verdict"])),
            "type": lambda: pa.array([_bare_type(row) for row in self.rows], pa.string()),
        }
        return makers[column.name]()


class _Messages(_Bare):
    """Rows of good messages.

    Attributes:
        contents: of the bodies, where they are asked for.
    """

    contents: pa.Array | None = None

    def __init__(self, rows: NDArray[Any], batch: Batch, topics: pa.Array) -> None:
        super().__init__(rows, batch.split.physical_offset)
        self._topics = topics
        self._fast = not isinstance(batch.rows, list)
        window = batch.window
        begin = int(rows["physical_offset"][0]) - self.base
        end = int(rows["physical_offset"][-1]) + int(rows["size"][-1]) - self.base
        if window.start <= begin and end <= window.end:
            self._pool: Bytes = np.frombuffer(window.storage, np.uint8, window.end - window.start)
            begin = window.start
        else:  # a record that is longer than a window, alone
            self._pool = np.frombuffer(b"".join(window.chunks(begin, end)), np.uint8)
        self._at: Numbers = rows["physical_offset"] - (self.base + begin)

    def column(self, column: pa.Field) -> pa.Array:
        name = column.name
        if name in _PLAIN:
            return _numbers(self.rows[name])
        maker = getattr(self, f"_{name}", None)
        return super().column(column) if maker is None else maker()

    def _type(self) -> pa.Array:
        return self._by_code("verdict", lambda code: "stale" if code == Verdict.STALE else "message")

    def _topic(self) -> pa.Array:
        return self._topics.take(_numbers(self.rows["topic_number"]))

    def _magic(self) -> pa.Array:
        return self._by_code("magic", lambda code: commitlog.MAGIC_NAMES[code])

    def _body_crc_ok(self) -> pa.Array:
        return pa.repeat(pa.scalar(value=True), len(self.rows))  # or the scan had called it bad

    def _transaction(self) -> pa.Array:
        return self._by_code("sys_flag", system_flag.transaction)

    def _compression(self) -> pa.Array:
        return self._by_code("sys_flag", system_flag.compression)

    def _born_host(self) -> pa.Array:
        return self._hosts(self._at + BORN_HOST_AT, system_flag.BORN_HOST_V6)

    def _store_host(self) -> pa.Array:
        return self._hosts(self._store_host_at, system_flag.STORE_HOST_V6)

    def _message_id(self) -> pa.Array:
        """Hex of the store host and of the offset that the record says of itself, which is where it lies."""
        count = len(self.rows)
        is_v6 = self._has(system_flag.STORE_HOST_V6)
        own = np.ascontiguousarray(self.rows["own_offset"].astype(">i8")).view(np.uint8).reshape(count, 8)
        widths = np.where(is_v6, commitlog.V6_HOST_SIZE, commitlog.V4_HOST_SIZE) + 8
        id_bytes = np.zeros((count, commitlog.V6_HOST_SIZE + 8), np.uint8)
        for chosen, width in ((~is_v6, commitlog.V4_HOST_SIZE), (is_v6, commitlog.V6_HOST_SIZE)):
            if chosen.any():
                id_bytes[chosen, :width] = _fixed(self._pool, self._store_host_at[chosen], width)
                id_bytes[chosen, width : width + 8] = own[chosen]
        texts = _HEX[id_bytes].reshape(-1)
        starts = np.arange(count) * (2 * id_bytes.shape[1])
        return text_array(texts, starts, 2 * widths, fast=self._fast)

    def _tags(self) -> pa.Array:
        return self._text("tags")

    def _unique_key(self) -> pa.Array:
        return self._text("unique_key")

    def _keys(self) -> pa.Array:
        return word_lists(self._pool, self._at + self.rows["keys_position"], self.rows["keys_length"], fast=self._fast)

    def _properties(self) -> pa.Array:
        return property_maps(self._pool, self._properties_at, self.rows["properties_length"], fast=self._fast)

    def _properties_raw(self) -> pa.Array:
        return binary_array(self._pool, self._properties_at, self.rows["properties_length"], fast=self._fast)

    def _body(self) -> pa.Array:
        head = commitlog.HEAD_SIZE + self._born_extra + self._extra(system_flag.STORE_HOST_V6)
        return binary_array(self._pool, self._at + head, self.rows["body_length"], fast=self._fast)

    def _body_decoded(self) -> pa.Array:
        return self.contents

    def _store_time(self) -> pa.Array:
        return time_array(self.rows["store_timestamp_ms"])

    def _born_time(self) -> pa.Array:
        return time_array(self.rows["born_timestamp_ms"])

    @cached_property
    def _properties_at(self) -> Numbers:
        return np.asarray(self._at + self.rows["size"] - self.rows["properties_length"])

    @cached_property
    def _born_extra(self) -> Numbers:
        return self._extra(system_flag.BORN_HOST_V6)

    @cached_property
    def _store_host_at(self) -> Numbers:
        return np.asarray(self._at + STORE_HOST_AT + self._born_extra)

    def _has(self, bit: int) -> NDArray[np.bool_]:
        return np.asarray(self.rows["sys_flag"] & bit != 0)

    def _extra(self, bit: int) -> Numbers:
        """Bytes by which an IPv6 host moves what follows."""
        return np.asarray(self._has(bit) * commitlog.V6_EXTRA)

    def _text(self, name: str) -> pa.Array:
        starts = self._at + self.rows[f"{name}_position"]
        return text_array(self._pool, starts, self.rows[f"{name}_length"], fast=self._fast)

    def _hosts(self, at: Numbers, bit: int) -> pa.Array:
        is_v6 = self._has(bit)
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

    def _by_code(self, name: str, text_of: Callable[[int], str | None]) -> pa.Array:
        """Texts by a number of which there are few different ones."""
        return _few_texts(np.ascontiguousarray(self.rows[name]), text_of)


def _numbers(values: Numbers) -> pa.Array:
    return pa.array(np.array(values))  # a copy, for the scan uses its rows again


def _bare_type(row: Any) -> str:
    is_blank = int(row["magic"]) == commitlog.MAGIC_BLANK and int(row["verdict"]) in (Verdict.GOOD, Verdict.STALE)
    return "blank" if is_blank else "bad"


def _few_texts(codes: Numbers, text_of: Callable[[Any], str | None]) -> pa.Array:
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
    return _few_texts(np.ascontiguousarray(raw).view(f"S{width}").reshape(-1), lambda code: _v6_text(code, width))


def _v6_text(code: bytes, width: int) -> str:
    return host_text(code.ljust(width, b"\0"))  # numpy leaves out zeros at the end


def groups(rows: NDArray[Any]) -> Sequence[NDArray[Any]]:
    """Rows in groups that lie one after the other and are all messages or all none."""
    messages = np.isin(rows["verdict"], (Verdict.GOOD, Verdict.STALE)) & np.isin(rows["magic"], list(MESSAGE_MAGICS))
    return np.split(rows, np.flatnonzero(messages[1:] != messages[:-1]) + 1)
