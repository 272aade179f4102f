"""Builds records and log files through the declared formats, and scans bytes: what the tests of the scan share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from rmqtool.formats import commitlog
from rmqtool.formats.commitlog import MAGIC_BLANK, MAGIC_V1, message_variant
from rmqtool.formats.record_crc import masked_crc, record_crc_property
from rmqtool.scan.columns import Row, row_dtype
from rmqtool.scan.rules import Verdict
from rmqtool.scan.split import Split, SplitOutcome, whole_file
from rmqtool.scan.walk import RecordReader, Walk
from rmqtool.store.source import ByteSource, BytesSource
from tests.formats.reference import parse_message

MakeReader = Callable[[], RecordReader]
FIRST_STORE_TIMESTAMP_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Message:
    """What a record holds, without its place."""

    body: bytes = b"hello"
    topic: bytes = b"TopicTest"
    properties: bytes = b"KEYS\x01key1\x02TAGS\x01TagA\x02"
    sys_flag: int = 0
    magic: int = MAGIC_V1
    queue_id: int = 1
    queue_offset: int = 7
    flag: int = 0
    born_timestamp_ms: int = FIRST_STORE_TIMESTAMP_MS
    store_timestamp_ms: int = FIRST_STORE_TIMESTAMP_MS
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    def record(self, physical_offset: int, *, with_record_crc: bool = False) -> bytes:
        """The record as it lies at a physical offset."""
        properties = self.properties + (bytes(20) if with_record_crc else b"")
        layout = message_variant(self.magic, self.sys_flag)
        width = 1 if self.magic == MAGIC_V1 else 2
        fields: dict[str, Any] = {
            "size": commitlog.head_size(self.sys_flag) + len(self.body) + width + len(self.topic) + 2 + len(properties),
            "magic": self.magic,
            "body_crc": masked_crc(self.body) if self.body else 0,
            "queue_id": self.queue_id,
            "flag": self.flag,
            "queue_offset": self.queue_offset,
            "physical_offset": physical_offset,
            "sys_flag": self.sys_flag,
            "born_timestamp_ms": self.born_timestamp_ms,
            "born_host": {"address": _address(self.sys_flag, 0x10), "port": 50000},
            "store_timestamp_ms": self.store_timestamp_ms,
            "store_host": {"address": _address(self.sys_flag, 0x20), "port": 10911},
            "reconsume_times": self.reconsume_times,
            "prepared_transaction_offset": self.prepared_transaction_offset,
            "body": self.body,
            "topic": self.topic,
            "properties": properties,
        }
        raw: bytes = layout.build(fields)
        return raw[:-20] + record_crc_property(raw[:-20]) if with_record_crc else raw


def _address(sys_flag: int, bit: int) -> bytes:
    return bytes(range(16)) if sys_flag & bit else bytes([127, 0, 0, 1])


@dataclass(frozen=True)
class LogBytes:
    """A log file in memory, and the (start, end) of each of its records."""

    content: bytes
    spans: tuple[tuple[int, int], ...]
    physical_offset: int

    def with_content(self, content: bytes) -> LogBytes:
        return LogBytes(content, self.spans, self.physical_offset)

    def patched(self, position: int, new: bytes) -> LogBytes:
        return self.with_content(self.content[:position] + new + self.content[position + len(new) :])

    @property
    def records_end(self) -> int:
        return self.spans[-1][1] if self.spans else 0


def log_bytes(
    messages: Sequence[Message],
    *,
    physical_offset: int = 0,
    tail: int = 64,
    blank: bool = True,
    with_record_crc: bool = False,
) -> LogBytes:
    """A file with these messages and `tail` bytes behind them: a blank, or zeros."""
    content = bytearray()
    spans = []
    for message in messages:
        start = len(content)
        content += message.record(physical_offset + start, with_record_crc=with_record_crc)
        spans.append((start, len(content)))
    rest = bytearray(tail)
    if blank:
        rest[:8] = commitlog.BLANK.struct.build({"size": tail, "magic": MAGIC_BLANK})
    return LogBytes(bytes(content + rest), tuple(spans), physical_offset)


def numbered(count: int, **fields: Any) -> list[Message]:
    """Different messages, a millisecond apart."""
    return [
        Message(
            body=b"body %d " % number * (number % 5 + 1),
            topic=b"Topic%d" % (number % 3),
            queue_offset=number,
            store_timestamp_ms=FIRST_STORE_TIMESTAMP_MS + number,
            **fields,
        )
        for number in range(count)
    ]


@dataclass(frozen=True)
class Scanned:
    """All that came out of one walk."""

    rows: list[Row]
    topics: list[bytes]
    outcome: SplitOutcome

    def good(self) -> list[Row]:
        return [row for row in self.rows if row.verdict == Verdict.GOOD and row.magic != MAGIC_BLANK]

    def bad(self) -> list[tuple[Verdict, int, int]]:
        return [(Verdict(row.verdict), row.physical_offset, row.size) for row in self.rows if row.verdict]

    def good_places(self) -> list[int]:
        return [row.physical_offset for row in self.good()]


def scan_split(split: Split, make_reader: MakeReader, **options: Any) -> Scanned:
    walk = Walk(split, make_reader(), **options)
    rows = [row for batch in walk.batches() for row in batch.as_rows()]
    return Scanned(rows, walk.topics.names, walk.outcome)


def scan(
    what: LogBytes | bytes | ByteSource,
    make_reader: MakeReader,
    *,
    physical_offset: int = 0,
    more_follows: bool = False,
    **options: Any,
) -> Scanned:
    """Scan a whole file, and check what must be true of every scan: each byte is in one row or in the tail."""
    if isinstance(what, LogBytes):
        physical_offset, what = what.physical_offset, what.content
    source: ByteSource = BytesSource("log", what) if isinstance(what, bytes) else what
    found = scan_split(whole_file(source, physical_offset, more_follows=more_follows), make_reader, **options)
    assert_accounted(found, source.size, physical_offset)
    return found


def assert_accounted(found: Scanned, size: int, physical_offset: int) -> None:
    """Rows are in order and adjacent, and with the untouched tail they are the whole file."""
    places = [(row.physical_offset, row.physical_offset + row.size) for row in found.rows]
    assert all(before[1] == behind[0] for before, behind in pairwise(places)), "rows are not adjacent"
    if places:
        assert places[0][0] == physical_offset
    end = places[-1][1] - physical_offset if places else 0
    assert found.outcome.data_end == end
    assert end + found.outcome.tail_bytes == size


def expected_row(raw: bytes, physical_offset: int) -> dict[str, Any]:
    """Fields of a good record's row, out of the construct reader."""
    fields = parse_message(raw)
    names = (
        "queue_offset born_timestamp_ms store_timestamp_ms prepared_transaction_offset magic body_crc queue_id flag"
        " sys_flag reconsume_times body_length topic_length properties_length size"
    )
    found = {name: int(fields[name]) for name in names.split()}
    found |= {"physical_offset": physical_offset, "own_offset": fields.physical_offset, "verdict": Verdict.GOOD}
    found["computed_crc"] = masked_crc(fields.body) if fields.body else 0
    return found


def records_of(log: LogBytes) -> Iterator[tuple[int, bytes]]:
    """(physical offset, bytes) of each record."""
    for start, end in log.spans:
        yield log.physical_offset + start, log.content[start:end]


def numbered_rows(first: int, count: int) -> np.ndarray:
    """Rows whose places are numbers from `first` on, each of twice that size."""
    rows = np.zeros(count, row_dtype())
    rows["physical_offset"] = np.arange(first, first + count)
    rows["size"] = rows["physical_offset"] * 2
    return rows
