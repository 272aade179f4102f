"""Writes rows of the table `messages` as a store: the records that they were, or new ones where less is given.

A row that has the stored bytes of body and properties, hosts, times and flags becomes the record that it was, byte for
byte. Rows of a whole log, in its order, become the same log, if files have the same size; of a part of it the records
lie side by side, with physical offsets of their own.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.engine.append.encoder import HOST_BITS, RecordColumns, encode_records, host_flags, topic_part
from rmqtool.engine.append.log_writer import LogWriter
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.versions import NEWEST, rules_for
from rmqtool.errors import UsageError
from rmqtool.findings.finding import TOMBSTONE_FINDING
from rmqtool.formats import properties
from rmqtool.formats.commitlog import BLANK_SIZE_MIN, PHYSICAL_OFFSET_AT, TOPIC_LENGTH_MAX_V1
from rmqtool.formats.consumequeue import UNIT_SIZE
from rmqtool.formats.index import DEFAULT_ENTRY_COUNT, DEFAULT_SLOT_COUNT
from rmqtool.formats.message_id import host_bytes
from rmqtool.formats.properties import encode_properties
from rmqtool.formats.record_crc import record_crc_matches, stored_record_crc, with_record_crc
from rmqtool.quantities import JAVA_INT_MAX
from rmqtool.repair.derived.result import BuildOptions
from rmqtool.repair.machine.disk import Metadata
from rmqtool.repair.machine.root import Root
from rmqtool.repair.new_store import new_store
from rmqtool.store.config.config_json import config_bytes, topic_entry
from rmqtool.store.config.config_kinds import TOPICS
from rmqtool.store.directory import Settings
from rmqtool.store.sink import DirectorySink
from rmqtool.store.sizes import DEFAULT_QUEUE_FILE_SIZE

FILE_SIZE: Final = 1 << 30
"""Bytes of a log file, as brokers have it by default."""
HOST: Final = "127.0.0.1:10911"
_SIZE: Final = re.compile(r"(\d{1,10})([kmg]?)b?")


@dataclass(frozen=True)
class SinkOptions:
    """How a store is written; sizes are by default those of brokers.

    Attributes:
        file_size: of a file of the log.
        rules: of the broker version whose store it is.
    """

    file_size: int = FILE_SIZE
    queue_file_size: int = DEFAULT_QUEUE_FILE_SIZE
    index_slots: int = DEFAULT_SLOT_COUNT
    index_entries: int = DEFAULT_ENTRY_COUNT
    rules: BrokerRules = field(default_factory=partial(rules_for, NEWEST))

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """The options out of texts; `path` is not one of them.

        Raises:
            UsageError: one is unknown, or does not parse.
        """
        given = {name.lower(): value for name, value in options.items() if name.lower() != "path"}
        rules = rules_for(given.pop("broker_version", NEWEST))
        known = {"file_size": 1 << 10, "queue_file_size": UNIT_SIZE, "index_slots": 1, "index_entries": 2}
        unknown = sorted(given.keys() - known.keys())
        if unknown:
            raise UsageError(
                f"no option {', '.join(unknown)}; there are {', '.join(sorted([*known, 'broker_version']))}"
            )
        numbers = {}
        for name, text in given.items():
            size = _SIZE.fullmatch(text.lower())
            numbers[name] = int(size[1]) << 10 * " kmg".index(size[2] or " ") if size else 0
            if not known[name] <= numbers[name] <= JAVA_INT_MAX:
                raise UsageError(f"option {name}: {text!r} is not a number from {known[name]} to {JAVA_INT_MAX}")
        return cls(**numbers, rules=rules)

    @property
    def sizes(self) -> Settings:
        """The sizes as a store's settings."""
        return Settings(
            commitlog_file_size=self.file_size,
            consumequeue_file_size=self.queue_file_size,
            index_slot_count=self.index_slots,
            index_entry_count=self.index_entries,
        )


@dataclass(frozen=True)
class WrittenStore:
    """What was written; None of a store without rows."""

    path: Path
    row_count: int


def write_store(batches: Iterable[pa.RecordBatch], output: Path, options: SinkOptions) -> WrittenStore | None:
    """Write the rows of batches as a store; None where there is no row, and nothing is written then.

    Columns `topic` and `body` are needed; of others that are missing, values are those of a new message: queue 0, the
    next offset of the queue, the time of the row before or now, `HOST`. Blanks are left out.

    Args:
        batches: in the order of the log.
        output: a directory that is not there yet, or is empty.

    Raises:
        UsageError: a row is no intact message, does not fit into a file, or is not in the order of the log.
        WriteError: the disk does not take it.
    """
    parts = (columns for batch in batches if len(columns := message_rows(batch)))
    first = next(parts, None)
    if first is None:
        return None
    of_parent = Metadata.of(Root.open(output.absolute().parent).top)
    metadata = replace(of_parent, mode=0o755, user_id=os.getuid(), group_id=os.getgid())
    with new_store(output, metadata, BuildOptions()) as finish:
        with DirectorySink(output) as sink:
            file_size, start = options.file_size, first.physical_offsets[0] if first.physical_offsets else 0
            # Units of a queue that does not begin at 0 point before the log, as those of expired messages do.
            shifted = (
                file_size if first.queue_offsets and max(first.queue_offsets) and not first.physical_offsets else 0
            )
            begin = start if start % file_size == 0 else shifted
            log = LogWriter(sink, ("commitlog",), file_size, lambda _at, _block: None, begin or None)
            appender = _Appender(log, options.rules)
            for columns in chain([first], parts):
                appender.append(columns)
            log.sync()
            log.drop_preallocated()
            attributes: dict[str, str] | None = {} if options.rules.batch_queues else None
            table = {
                topic: topic_entry(topic, count, attributes) for topic, count in sorted(appender.queue_counts.items())
            }
            sink.create(TOPICS, 0)
            sink.write_at(TOPICS, 0, config_bytes({"dataVersion": {"counter": 1}, "topicConfigTable": table}))
            sink.sync(TOPICS)
            sink.sync_directory("")
        finish(options.sizes, options.rules, "write")
    return WrittenStore(output, appender.row_count)


@dataclass(frozen=True)
class MessageRows:
    """The messages of a batch, without what is no message; columns that are missing are None."""

    values: dict[str, list[Any] | None]

    def __len__(self) -> int:
        return len(self.values["topic"] or ())

    def column(self, name: str, default: Any) -> list[Any]:
        """A column, with a value where it has none."""
        values = self.values[name]
        return (
            [default if value is None else value for value in values] if values is not None else [default] * len(self)
        )

    @property
    def physical_offsets(self) -> list[int] | None:
        return self.values["physical_offset"]

    @property
    def queue_offsets(self) -> list[int] | None:
        return self.values["queue_offset"]


_NEEDED: Final = ("topic", "body")
_TAKEN: Final = (
    *(
        "physical_offset",
        "queue_id",
        "queue_offset",
        "properties_raw",
        "properties",
        "tags",
        "keys",
        "flag",
        "sys_flag",
    ),
    *("born_timestamp_ms", "born_host", "store_timestamp_ms", "store_host", "reconsume_times", "magic"),
    "prepared_transaction_offset",
)


def message_rows(batch: pa.RecordBatch, others: Sequence[str] = ()) -> MessageRows:
    """The messages of a batch.

    Args:
        others: columns beside those of records.

    Raises:
        UsageError: a column is missing, or a row is no intact message.
    """
    names = batch.schema.names
    lacking = [name for name in _NEEDED if name not in names]
    if lacking:
        raise UsageError(f"messages are made of the columns topic and body; there is no {lacking[0]}")
    if "finding" in names:
        told = [value for value in batch["finding"].to_pylist() if value not in (None, TOMBSTONE_FINDING)]
        if told:
            raise UsageError(f"a row with the finding {told[0]} is not a message: leave it out (finding IS NULL)")
    if "type" in names:
        kinds = {*batch["type"].unique().to_pylist()} - {"message", "blank"}
        if kinds:
            raise UsageError(f"a row of type {kinds.pop()} is not a message: leave it out (type = 'message')")
        batch = batch.filter(pc.equal(batch["type"], "message"))
    for name in ("topic", "body", *(name for name in ("physical_offset", "queue_offset") if name in names)):
        if batch[name].null_count:
            raise UsageError(f"a row has no {name}")
    values = {name: batch[name].to_pylist() if name in names else None for name in (*_NEEDED, *_TAKEN, *others)}
    return MessageRows(values)


@dataclass
class _Appender:
    """Appends messages, and counts what the configuration of topics needs."""

    log: LogWriter
    rules: BrokerRules
    row_count: int = 0
    queue_counts: dict[str, int] = field(default_factory=dict)
    _next: dict[tuple[str, int], int] = field(default_factory=dict)
    _last_offset: int = -1
    _last_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def append(self, rows: MessageRows) -> None:
        """Append the messages of a batch."""
        for physical_offset in rows.physical_offsets or ():
            if physical_offset <= self._last_offset:
                raise UsageError(
                    f"physical offset {physical_offset} comes after {self._last_offset}: a store is written in the "
                    'order of its log by one task: frame.coalesce(1).sortWithinPartitions("physical_offset")'
                )
            self._last_offset = physical_offset
        columns, places = self._encoded(rows), rows.physical_offsets
        sizes = columns.sizes()
        ends, at = np.cumsum(sizes), 0
        while at < len(rows):
            room = self.log.room() - BLANK_SIZE_MIN
            before = int(ends[at - 1]) if at else 0
            stop = int(np.searchsorted(ends, before + room, side="right"))
            if stop == at:
                if room == self.log.file_size - BLANK_SIZE_MIN:
                    raise UsageError(f"a record of {sizes[at]} bytes does not fit into a file of {self.log.file_size}")
                self.log.roll()
                continue
            raw = encode_records(columns.part(at, stop), sizes[at:stop], self.log.end)
            if (
                places is None
                or places[at] != self.log.end
                or places[stop - 1] - places[at] != sum(sizes[at : stop - 1])
            ):
                raw = _with_own_crc(raw, sizes[at:stop].tolist(), places[at:stop] if places is not None else None)
            self.log.append(raw)
            at = stop
        self.row_count += len(rows)

    def _encoded(self, rows: MessageRows) -> RecordColumns:
        topics, queue_ids = rows.column("topic", ""), rows.column("queue_id", 0)
        times = []
        for time_ms in rows.column("store_timestamp_ms", None):
            self._last_ms = self._last_ms if time_ms is None else time_ms
            times.append(self._last_ms)
        offsets = []
        given = rows.column("queue_offset", None)
        for topic, queue_id, queue_offset in zip(topics, queue_ids, given, strict=True):
            if topic in ("", ".", "..") or "/" in topic or "\0" in topic:
                raise UsageError(f"topic {topic!r}: no queue can have a directory of this name")
            following = self._next.get((topic, queue_id), 0)
            offset = following if queue_offset is None else queue_offset
            is_again = offset == 0 and rows.physical_offsets is not None  # of a topic that was deleted and used again
            if queue_id < 0 or offset < 0:
                raise UsageError(f"queue {queue_id} of {topic}, offset {offset}: a number is less than 0")
            if offset < following and not is_again:
                raise UsageError(f"queue offset {offset} of queue {queue_id} of {topic} comes again, or too late")
            self._next[topic, queue_id] = offset + 1
            offsets.append(offset)
            self.queue_counts[topic] = max(self.queue_counts.get(topic, 0), queue_id + 1)
        born_hosts = [_host(text) for text in rows.column("born_host", HOST)]
        store_hosts = [_host(text) for text in rows.column("store_host", HOST)]
        widths = zip(born_hosts, store_hosts, strict=True)
        flags = [
            flag & ~HOST_BITS | host_flags(len(born), len(store))
            for flag, (born, store) in zip(rows.column("sys_flag", 0), widths, strict=True)
        ]
        blocks = self._properties(rows)
        parts = [
            _topic_of_v2(topic)
            if magic == "v2" or (len(topic.encode()) > TOPIC_LENGTH_MAX_V1 and self.rules.reads_v2)
            else topic_part(_short(topic), writes_v2=False)
            for topic, magic in zip(topics, rows.column("magic", None), strict=True)
        ]
        born_times = rows.column("born_timestamp_ms", self._last_ms)
        return RecordColumns(
            parts, [binary(body) for body in rows.column("body", b"")],
            blocks,
            queue_ids, rows.column("flag", 0), offsets, flags, born_times, born_hosts, times,
            store_hosts, rows.column("reconsume_times", 0), rows.column("prepared_transaction_offset", 0),
            [False] * len(rows),
        )  # fmt: skip

    def _properties(self, rows: MessageRows) -> list[bytes]:
        """The stored bytes of the properties, or those of their texts."""
        raw = rows.values["properties_raw"]
        blocks = []
        tags, keys = rows.column("tags", None), rows.column("keys", ())
        for number, pairs in enumerate(rows.column("properties", ())):
            if raw is not None and raw[number] is not None:
                blocks.append(binary(raw[number]))
                continue
            named = property_texts(pairs, tags[number], keys[number])
            blocks.append(encode_properties(named, trailing_separator=self.rules.trailing_separator))
        return blocks


def property_texts(pairs: Any, tags: Any, keys: Any) -> dict[str, str]:
    """Properties of a message out of the columns `properties`, `tags` and `keys`."""
    items = pairs.items() if isinstance(pairs, dict) else pairs
    named = {str(name): str(value) for name, value in items if value is not None}
    if tags is not None:
        named.setdefault(properties.TAGS, str(tags))
    if keys:
        words = [keys] if isinstance(keys, str) else keys
        named.setdefault(properties.KEYS, " ".join(map(str, words)))
    return named


def _with_own_crc(raw: bytearray, sizes: Sequence[int], places: Sequence[int] | None) -> bytearray:
    """Records at other places than before, with the checksums of all of them that were right, computed again.

    Args:
        places: where they were; None where nobody says, and a checksum is taken for right.
    """
    records, at = [], 0
    for number, size in enumerate(sizes):
        record = bytes(raw[at : at + size])
        at += size
        if stored_record_crc(record) is not None:
            before = bytearray(record)
            if places is not None:
                before[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8] = places[number].to_bytes(8, "big")
            if places is None or record_crc_matches(bytes(before)):
                record = with_record_crc(record)
        records.append(record)
    return bytearray().join(records)


def _short(topic: str) -> bytes:
    raw = topic.encode()
    if len(raw) > TOPIC_LENGTH_MAX_V1:
        raise UsageError(f"topic {topic[:40]}...: {len(raw)} bytes are more than a record of version 1 has room for")
    return raw


def _topic_of_v2(topic: str) -> bytes:
    """A topic of a record of version 2, which may be short, too."""
    raw = topic.encode()
    return len(raw).to_bytes(2, "big") + raw


def _host(text: str) -> bytes:
    try:
        return host_bytes(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a host such as {HOST}") from error


def binary(value: Any) -> bytes:
    """The bytes of a column that may also be a text."""
    return value.encode() if isinstance(value, str) else bytes(value)
