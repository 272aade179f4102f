"""Commitlog records for `dump`: in log order or backwards, filtered by columns, made into rows a batch at a time."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final

from rmqtool.dump.messages import DumpedMessages
from rmqtool.dump.request import RowSource
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UnreadableError
from rmqtool.findings.finding import MISSING_LOG_FILE, NOT_READABLE_BY_VERSION
from rmqtool.formats import commitlog
from rmqtool.formats.commitlog import MESSAGE_MAGICS, PHYSICAL_OFFSET_AT
from rmqtool.formats.system_flag import HOSTS_V6
from rmqtool.report.bodies import BODY_LIMIT
from rmqtool.report.rows import DumpRow, RowBlock, bad_row, blank_row, message_row
from rmqtool.scan.blocks import BLOCK_SIZE
from rmqtool.scan.columns import Row, bare_row, row_tuples
from rmqtool.scan.first_time import first_store_time_ms
from rmqtool.scan.log import DISPATCH_BLOCK_SIZE, ScanOptions, carries_record_crc, may_hold_data
from rmqtool.scan.row_filter import RowFilter
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.scan.split import Split, SplitOutcome
from rmqtool.scan.walk import Batch, Walk
from rmqtool.store.file_kinds import is_segment_name
from rmqtool.store.source import ByteSource, read_range
from rmqtool.store.view import Entry

UNREADABLE: Final = "commitlog.unreadable-range"
FEW_ROWS: Final = 2000
"""Rows that the plain reader finds sooner than the compiled one is loaded."""
Rows = Iterator[DumpRow | RowBlock]


@dataclass
class LogDump(RowSource):
    """The rows of a log's files; `compiled` as in `ScanOptions`."""

    compiled: bool | None = None
    _first_times: dict[str, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ask = self.ask
        few = ask.limit is not None and ask.limit <= FEW_ROWS and not ask.reverse and ask.from_offset is None
        if ask.follow or (few and not self.row_filter.wants_content):
            self.compiled = False

    def rows(self) -> Iterator[DumpRow | RowBlock | None]:
        """All that is asked for; None where there is nothing more for the moment."""
        last, reverse = self.last_with_data(), self.ask.reverse
        for number in range(last, -1, -1) if reverse else range(last + 1):
            if self.target.is_chain and not reverse:
                yield from self._gap_before(number)
            if self.may_hold_rows(number):
                entry = self.target.entries[number]
                if (source := self.opened(entry)) is None:
                    yield from self._missing(_first_offset(entry, None), entry.size, UNREADABLE)
                else:
                    with closing(source):
                        walk = self.walk(source, entry, more_follows=number < last and self.target.is_chain)
                        if reverse:
                            yield from self._batches_backward(walk)
                        else:
                            for batch in walk.batches():
                                yield from self.shown(batch)
            if self.target.is_chain and reverse:
                yield from self._gap_before(number)

    def readable_bytes(self) -> int:
        entries = self.target.entries[: self.last_with_data() + 1]
        return sum(entry.size for number, entry in enumerate(entries) if self.may_hold_rows(number))

    def shown(self, batch: Batch) -> Rows:
        yield from self._rows(batch, self._chosen(batch))

    def walk(self, source: ByteSource, entry: Entry, *, more_follows: bool, start: int = 0) -> Walk:
        """The walk over a file from the start of a record on."""
        split = Split(source, start, source.size, _first_offset(entry, source), more_follows)
        data_bytes = sum(end - begin for begin, end in source.extents(start, source.size))
        return replace(self._options, log_bytes=data_bytes).walk(split)

    def last_with_data(self) -> int:
        """Number of the last file that holds anything; zero files after it are only preallocated. -1 without any."""
        for number in range(len(self.target.entries) - 1, 0, -1):
            if may_hold_data(self.target.view.open, self.target.entries[number].path):
                return number
        return min(0, len(self.target.entries) - 1)

    def may_hold_rows(self, number: int) -> bool:
        """True if a file may hold rows in the ranges of physical offsets and times.

        One that cannot is not read: of the files of a log only the first record is read where a time is asked for.
        """
        entry = self.target.entries[number]
        if not is_segment_name(entry.name):
            return True
        if not self.row_filter.may_be_between(int(entry.name), int(entry.name) + entry.size):
            return False
        if not self.target.is_chain:
            return True
        return self.row_filter.may_be_stored(self._first_ms(number), self._first_ms(number + 1))

    @cached_property
    def row_filter(self) -> RowFilter:
        return self.ask.row_filter()

    @cached_property
    def rules(self) -> BrokerRules:
        return rules_for(self.ask.broker_version)

    def _batches_backward(self, walk: Walk) -> Rows:
        """The batches of a file, the last one first: a first pass notes their positions, each is then walked again."""
        places = array("q")
        for batch in walk.batches():
            if len(self._chosen(batch)):
                first, last = Row._make(batch.rows[0]), Row._make(batch.rows[-1])
                places.extend((first.physical_offset, last.physical_offset + last.size, first.verdict, first.magic))
        for at in range(len(places) - 4, -1, -4):
            batch = self._again(walk, *places[at : at + 4])
            yield from self._rows(batch, self.row_filter.chosen(batch)[::-1])

    def _again(self, walk: Walk, begin: int, end: int, verdict: int, magic: int) -> Batch:
        """A batch of a walk that is done: messages are walked once more, other ranges have these values only."""
        base = walk.split.physical_offset
        if _is_message(verdict, magic):
            split = replace(walk.split, start=begin - base, end=end - base, more_follows=True)
            batch = next(replace(walk, split=split, outcome=SplitOutcome(stale=verdict == Verdict.STALE)).batches())
            last = Row._make(batch.rows[-1])
            if last.physical_offset + last.size == end and last.verdict == verdict:
                return batch
            self.problems.append(f"{walk.split.source.name}: changed while it was read, at byte {begin - base}")
            self.bad_ranges += 1
            verdict, magic = Verdict.UNREADABLE_RANGE, 0
        return Batch(walk.split, [bare_row(begin, end - begin, verdict, magic)], walk.topics.names, walk.window)

    def _chosen(self, batch: Batch) -> Any:
        """The rows of a batch that its columns do not rule out; a bad range, a batch of its own, is counted."""
        rows = self.row_filter.chosen(batch)
        if len(rows):
            first = Row._make(rows[0])
            self.bad_ranges += not (_is_message(first.verdict, first.magic) or _is_blank(first))
        return rows

    def _rows(self, batch: Batch, rows: Any) -> Rows:
        """Shown rows of a batch, which are messages or one other range."""
        first = row_tuples(rows[:1])[0] if len(rows) else None
        if first is not None and not _is_message(first.verdict, first.magic):
            finding = FINDING_IDS.get(Verdict(first.verdict))
            if _is_blank(first):
                dump_row = blank_row(first.physical_offset, first.size) | {"finding": finding}
            else:
                dump_row = bad_row(first.physical_offset, first.size, finding or UNREADABLE)
            yield dump_row | self._bytes(partial(batch.read, first), first)
            return
        if self.row_filter.wants_texts:
            texts = DumpedMessages(batch, rows, self.rules, self.ask.body)
            columns = zip(*map(texts.column, ("keys", "unique_key", "tags", "message_id")), strict=True)
            numbers = [number for number, values in enumerate(columns) if self.row_filter.has_texts(*values)]
            rows = [rows[number] for number in numbers] if isinstance(rows, list) else rows[numbers]
        if not len(rows):
            return
        messages = DumpedMessages(batch, rows[: self.ask.limit], self.rules, self.ask.body)
        if isinstance(rows, list):
            block = messages.block()
        else:
            from rmqtool.dump.json_rows import message_block  # as numpy and compiled code are loaded for them already

            block = message_block(messages)
        misread = not self.rules.ipv6_hosts and any(flag & HOSTS_V6 for flag in block.column("sys_flag"))
        if not misread and self.ask.hex_width is None:
            yield block
            return
        for dump_row, row in zip(block.rows(), row_tuples(rows), strict=False):
            if misread and row.sys_flag & HOSTS_V6:
                dump_row = self._misread(batch, row)  # noqa: PLW2901
            yield dump_row | self._bytes(partial(batch.read, row), row)

    def _misread(self, batch: Batch, row: Row) -> DumpRow:
        """A message with IPv6 hosts as brokers decode it that take every host for IPv4."""
        from rmqtool.engine.reading.record import SingleRecord, decode_record
        from rmqtool.engine.segments.log import RecordLocation

        place = RecordLocation(row.physical_offset, "", row.physical_offset - batch.split.physical_offset, row.size)
        record = decode_record(SingleRecord(self.rules, partial(batch.read, row)), place)
        if record is None:
            self.bad_ranges += 1
            return bad_row(row.physical_offset, row.size, NOT_READABLE_BY_VERSION)
        return message_row(
            record,
            self.ask.body,
            row_type="stale" if row.verdict == Verdict.STALE else "message",
            finding=FINDING_IDS.get(Verdict(row.verdict)),
            physical_offset=row.physical_offset,
            body_crc_ok=True,
        )

    def _bytes(self, read: Callable[[int, int], bytes], row: Row) -> DumpRow:
        """Fields of a row for `--hex`; `read` gives (position, length) bytes of it."""
        if self.ask.hex_width is None:
            return {}
        from rmqtool.report.hexview import BYTES_SHOWN_MAX, bare_parts, hex_fields, message_parts, parts_of

        limit = self.ask.body.limit if self.ask.body.limit != BODY_LIMIT else BYTES_SHOWN_MAX
        if _is_message(row.verdict, row.magic):
            parts = message_parts(read, row.size, limit)
        elif _is_blank(row):
            parts = parts_of(read, row.size, commitlog.BLANK.fields, limit)
        else:
            parts = bare_parts(read, row.size, limit)
        return hex_fields(parts, self.ask.hex_width, row.physical_offset)

    def _gap_before(self, number: int) -> Rows:
        """The range of missing files, between the one before and this one."""
        size = self.target.file_size
        entries = self.target.entries
        if number == 0 or not size or not all(is_segment_name(entries[at].name) for at in (number - 1, number)):
            return
        begin, end = int(entries[number - 1].name) + size, int(entries[number].name)
        if end > begin and self.row_filter.may_be_stored(self._first_ms(number - 1), self._first_ms(number)):
            yield from self._missing(begin, end - begin, MISSING_LOG_FILE)

    def _missing(self, physical_offset: int, size: int, finding: str) -> Rows:
        """The row of a range without a byte."""
        if self.row_filter.may_be_between(physical_offset, physical_offset + max(size, 1)):
            self.bad_ranges += 1
            row = bare_row(physical_offset, size, Verdict.UNREADABLE_RANGE)
            yield bad_row(physical_offset, size, finding) | self._bytes(lambda _position, _length: b"", row)

    def _first_ms(self, number: int) -> int | None:
        """Store time of a file's first record, read once; None where the request has no times or it is unknown."""
        entries, asked = self.target.entries, self.row_filter
        if (asked.from_ms is None and asked.to_ms is None) or number >= len(entries):
            return None
        path = entries[number].path
        if path not in self._first_times:
            self._first_times[path] = None
            with suppress(UnreadableError), closing(self.target.view.open(path)) as source:
                self._first_times[path] = first_store_time_ms(source)
        return self._first_times[path]

    @cached_property
    def _options(self) -> ScanOptions:
        """Scan options; whole-record CRCs count where the log's first record has one."""
        # Each block is made into rows at once, which costs less for many; few rows come sooner from a small one.
        block_size = BLOCK_SIZE if self.compiled is False else DISPATCH_BLOCK_SIZE
        for entry in self.target.entries[:1]:
            with suppress(UnreadableError), closing(self.target.view.open(entry.path)) as source:
                split = Split(source, 0, source.size, 0)
                return ScanOptions(
                    record_crc=carries_record_crc([split]), compiled=self.compiled, block_size=block_size
                )
        return ScanOptions(compiled=self.compiled)


def _is_message(verdict: int, magic: int) -> bool:
    return magic in MESSAGE_MAGICS and verdict in (Verdict.GOOD, Verdict.STALE)


def _is_blank(row: Row) -> bool:
    return row.magic == commitlog.MAGIC_BLANK and row.verdict in (Verdict.GOOD, Verdict.STALE)


def _first_offset(entry: Entry, source: ByteSource | None) -> int:
    """Physical offset of a file's first byte: from its name, else from its first record."""
    if is_segment_name(entry.name):
        return int(entry.name)
    if source is not None:
        with suppress(UnreadableError):
            head = read_range(source, 0, PHYSICAL_OFFSET_AT + 8)
            if int.from_bytes(head[4:8], "big", signed=True) in MESSAGE_MAGICS and len(head) == PHYSICAL_OFFSET_AT + 8:
                return max(0, int.from_bytes(head[PHYSICAL_OFFSET_AT:], "big", signed=True))
    return 0
