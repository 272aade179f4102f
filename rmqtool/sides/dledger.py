"""Logs of DLedger (`dledger-ID/`): their entries with the message in each, the units of their index, and what is wrong.

Broker: `DLedgerMmapFileStore`, `DLedgerEntryCoder`. Its `recover` looks at less than the check: lengths and order in
the last three files.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.reading.record import Record, SingleRecord, decode_record
from rmqtool.engine.rules.algorithms import DispatchedEnd
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.segments.log import RecordLocation
from rmqtool.errors import UnreadableError
from rmqtool.findings.account import Account
from rmqtool.findings.finding import REBUILD, RECOVER, SALVAGE, Finding
from rmqtool.findings.registry import finding
from rmqtool.formats import dledger
from rmqtool.formats.system_flag import takes_queue_entry
from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.store.checkpoint_file import readable_checkpoint
from rmqtool.store.directory import Segment, Store
from rmqtool.store.dledger_files import DLedgerLog, dledger_logs, is_dledger_off, reads_dledger
from rmqtool.store.sizes import infer_file_size
from rmqtool.store.source import ByteSource, read_range

ENTRY_FIELDS: Final = tuple(field.name for field in dledger.ENTRY.fields)
UNIT_FIELDS: Final = tuple(field.name for field in dledger.INDEX_UNIT.fields)
_ENTRY: Final = Struct(dledger.ENTRY.struct_code)
_UNIT: Final = Struct(dledger.INDEX_UNIT.struct_code)
_BLOCK_SIZE: Final = 8192 * dledger.INDEX_UNIT_SIZE


class LogEntry(NamedTuple):
    """An entry with an impossible place or a bad message is not `is_right`; its length can be trusted."""

    file_position: int
    values: dict[str, int]
    record: Record | None
    is_right: bool


class BadRange(NamedTuple):
    """Bytes up to the last one of a file that is not zero, which are no entry."""

    file_position: int
    length: int


def read_entries(source: ByteSource, start: int, rules: BrokerRules) -> Iterator[LogEntry | BadRange]:
    """The entries of a file whose first byte has the given place in the log, up to what is none.

    Raises:
        UnreadableError: the disk does not give the bytes.
    """
    end = last_data_end(source, 0, source.size)
    at = 0
    while at < end:
        raw = read_range(source, at, dledger.ENTRY_SIZE)
        if int.from_bytes(raw[:4], "big", signed=True) == dledger.END_OF_FILE and len(raw) >= dledger.END_SIZE_MIN:
            return
        values = dict(zip(ENTRY_FIELDS, _ENTRY.unpack(raw.ljust(dledger.ENTRY_SIZE, b"\0")), strict=True))
        is_whole = values["size"] == dledger.ENTRY_SIZE + values["body_length"] <= source.size - at
        if values["magic"] not in dledger.KINDS or values["body_length"] < 0 or not is_whole:
            yield BadRange(at, end - at)
            return
        yield _entry(source, start, at, values, rules)
        at += values["size"]


def read_units(source: ByteSource) -> Iterator[tuple[int, dict[str, int]]]:
    """The units of a file of the index with their file positions, up to the last byte that is not zero.

    Raises:
        UnreadableError: the disk does not give the bytes.
    """
    end, size = last_data_end(source, 0, source.size), dledger.INDEX_UNIT_SIZE
    for at in range(0, end, _BLOCK_SIZE):
        block = read_range(source, at, min(_BLOCK_SIZE, -(-(end - at) // size) * size))
        for number, values in enumerate(_UNIT.iter_unpack(block[: len(block) // size * size])):
            yield at + number * size, dict(zip(UNIT_FIELDS, values, strict=True))


def _entry(source: ByteSource, start: int, at: int, values: dict[str, int], rules: BrokerRules) -> LogEntry:
    place, length = at + dledger.ENTRY_SIZE, values["body_length"]
    is_placed = values["position"] == start + at
    if values["magic"] != dledger.MESSAGE:
        return LogEntry(at, values, None, is_placed)
    location = RecordLocation(start + place, source.name, place, length)
    record = decode_record(SingleRecord(rules, partial(_read, source, place, length)), location)
    is_right = (
        record is not None
        and is_placed
        and record.size == length
        and record.physical_offset == start + place
        and record.body_crc_ok
    )
    return LogEntry(at, values, record, is_right)


def _read(source: ByteSource, start: int, length_max: int, position: int, length: int) -> bytes:
    return read_range(source, start + position, max(0, min(length, length_max - position)))


OF_ENTRIES: Final = frozenset(
    FINDING_IDS[verdict]
    for verdict in Verdict
    if verdict not in (Verdict.GOOD, Verdict.BAD_PROPERTY, Verdict.RECORD_CRC_MISMATCH, Verdict.TORN_RECORD)
)
"""What is wrong with records of DLedger is a finding about their entries (`dledger.*`), but for the others."""
_SHARED: Final = ("magic", "position", "size", "index", "term")


_REPAIRS: Final = {RECOVER: REBUILD, SALVAGE: None}


def for_dledger(one: Finding) -> Finding:
    """A finding of a store whose log is one of DLedger, with the command that repairs it there."""
    return replace(one, repair=_REPAIRS.get(one.repair or "", one.repair))


def why_no_log(store: Store, rules: BrokerRules) -> str | None:
    """Why a log that may be there is not read; None where it is read, or is missing."""
    if store.commitlog:
        return None
    if not store.is_log_listed:
        return "its directory cannot be listed"
    if not reads_dledger(store):
        return None
    if not rules.dledger:
        return f"it belongs to DLedger, which brokers of version {rules.version} do not have"
    return "there are several logs of DLedger: --broker-conf FILE tells which one the broker reads"


def dledger_findings(store: Store, rules: BrokerRules, account: Account) -> Iterator[Finding]:
    """All findings about logs of DLedger, in no order."""
    yield from _place_findings(store)
    for log in dledger_logs(store):
        yield from _unloadable_findings(store, log)
        for segment in log.index if store.has_dledger_log else (*log.data, *log.index):
            account.file(segment.path, segment.size).checked += segment.size
        with ExitStack() as stack:
            check = _Check(log, rules, stack)
            yield from check.findings()
            if store.has_dledger_log and store.has_abort and rules.dledger_skips_headers:
                yield from check.dropped_at_start()


def _place_findings(store: Store) -> Iterator[Finding]:
    """Where the log is one of DLedger, what comes before it, and whether the broker's settings have it read."""
    first = next((segment for segment in store.commitlog if segment.has_entries), None)
    if first is None:
        return
    place = {"physical_offset": first.start}
    directory = first.path.rpartition("/")[0]
    if first is not store.commitlog[0]:
        text = "the plain commit log ends there, and the log of DLedger continues it"
        yield finding("dledger.continues-log", directory, text, **place)
    if is_dledger_off(store.settings):
        text = "the broker's settings do not have enableDLegerCommitLog=true, but messages are in the log of DLedger"
        yield finding("dledger.not-enabled", directory, text, **place)


def _unloadable_findings(store: Store, log: DLedgerLog) -> Iterator[Finding]:
    size = store.commitlog_file_size if store.has_dledger_log else infer_file_size(log.data)
    for entry, expected in log.unloadable_files(size):
        text = (
            f"{entry.size} bytes, a full file has {expected}" if entry.size != expected else "the name is not a number"
        )
        yield finding("dledger.unloadable-file", entry.path, text, length=entry.size)


class _Check:
    """One log, read once from its first entry to its last."""

    def __init__(self, log: DLedgerLog, rules: BrokerRules, stack: ExitStack) -> None:
        self._log, self._rules, self._stack = log, rules, stack
        self._opened: dict[str, ByteSource] = {}
        self._next_index: int | None = None
        self._has_data = False
        self._term = 0
        self._last: Segment | None = None
        self._places, self._numbers, self._record_bytes = array("q"), array("q"), 0
        """Physical offsets and entries of the messages of the last file that has any, and their bytes."""

    def findings(self) -> Iterator[Finding]:
        for segment in self._log.data:
            try:
                with closing(self._log.store.view.open(segment.path)) as source:
                    for entry in read_entries(source, segment.start, self._rules):
                        yield from self._entry(segment, entry)
            except UnreadableError as error:
                self._next_index, self._has_data = None, True
                yield finding("store.unreadable", segment.path, str(error))
        yield from self._after_end()

    def _entry(self, segment: Segment, entry: LogEntry | BadRange) -> Iterator[Finding]:
        self._has_data = True
        place = {"file_position": entry.file_position, "physical_offset": segment.start + entry.file_position}
        if isinstance(entry, BadRange):
            if segment is not self._log.data[-1]:
                self._next_index = None
            text = "from here to the last byte that is not zero there is no entry"
            yield finding("dledger.bad-entry", segment.path, text, length=entry.length, **place)
            return
        values = entry.values
        if segment is not self._last:
            self._last, self._places, self._numbers, self._record_bytes = segment, array("q"), array("q"), 0
        if entry.record is not None:
            if takes_queue_entry(entry.record.sys_flag):
                self._places.append(entry.record.physical_offset)
                self._numbers.append(values["index"])
            self._record_bytes += entry.record.size
        if not entry.is_right:
            text = "the message is not a good record, or the entry is not where it says"
            yield finding("dledger.bad-entry", segment.path, text, length=values["size"], **place)
        if self._next_index not in (None, values["index"]) or values["term"] < self._term:
            expected = values["index"] if self._next_index is None else self._next_index
            text = f"entry {values['index']} of term {values['term']}, expected: entry {expected} of term {self._term}"
            yield finding("dledger.wrong-order", segment.path, text, **place)
        self._next_index, self._term = values["index"] + 1, max(self._term, values["term"])
        unit, path, position = self._unit(values["index"])
        if unit != tuple(values[name] for name in _SHARED):
            text = f"the unit of entry {values['index']} is not there, or does not lead to it"
            yield finding(
                "dledger.wrong-unit", path, text, file_position=position, length=dledger.INDEX_UNIT_SIZE,
                physical_offset=segment.start + entry.file_position,
            )  # fmt: skip

    def dropped_at_start(self) -> Iterator[Finding]:
        """Messages behind where a start takes the log to end that counts no headers (`dledgerRecoverAbnormally`).

        Those after the last entry that the group's checkpoint has as committed are dispatched again after an election.
        """
        if self._last is None or self._last.path not in {file.path for file in self._log.store.commitlog}:
            return
        end = self._last.start + self._record_bytes
        committed = -1 if self._log.committed_index is None else self._log.committed_index
        messages = zip(self._places, self._numbers, strict=True)
        count = sum(place >= end and number <= committed for place, number in messages)
        if count and self._dispatched_end() >= end:
            text = (
                f"a start takes the log to end at {end}, and drops the queue units of {count} messages from there to "
                f"entry {committed}, the last one that the group is known to have committed"
            )
            yield finding("dledger.dropped-at-start", self._last.path, text, physical_offset=end, count=count)

    def _dispatched_end(self) -> int:
        """Up to where a start takes the log as dispatched; it drops nothing where that comes before its end."""
        if self._rules.dispatched_end is DispatchedEnd.QUEUES:
            return self._queue_end()
        checkpoint = readable_checkpoint(self._log.store)
        return checkpoint.consumequeue_physical_offset if checkpoint is not None else 0

    def _queue_end(self) -> int:
        """Where the last record that a queue leads to ends."""
        end = 0
        with open_reader(self._log.store, self._rules, quickly=True) as reader:
            for name in reader.queues():
                with suppress(UnreadableError):
                    last = reader.queue(*name).last_record()
                    end = max(end, sum(last) if last is not None else 0)
        return end

    def _unit(self, index: int) -> tuple[tuple[int, ...] | None, str, int]:
        """The unit of an entry, None where there is none; its file and position, as far as there is a file."""
        at = index * dledger.INDEX_UNIT_SIZE
        for segment in self._log.index:
            if segment.start <= at < segment.end:
                if segment.path not in self._opened:
                    source = self._log.store.view.open(segment.path)
                    self._opened[segment.path] = self._stack.enter_context(closing(source))
                raw = read_range(self._opened[segment.path], at - segment.start, dledger.INDEX_UNIT_SIZE)
                unit = _UNIT.unpack(raw) if len(raw) == dledger.INDEX_UNIT_SIZE else None
                return unit, segment.path, at - segment.start
        return None, f"{self._log.directory}/index", 0

    def _after_end(self) -> Iterator[Finding]:
        """What the index or the group knows of entries after the last one; a log of zeros has none."""
        if self._next_index is None and self._has_data:
            return
        last, path = -1, f"{self._log.directory}/data"
        for segment in self._log.index[-1:]:
            with closing(self._log.store.view.open(segment.path)) as source:
                last = max((values["index"] for _, values in read_units(source)), default=-1)
        known = max(last, -1 if self._log.committed_index is None else self._log.committed_index)
        end = self._next_index or 0
        if self._log.data and known >= end:
            count = known - end + 1
            text = f"the log ends before entry {end}; index or checkpoint of the group know entry {known}"
            yield finding("dledger.missing-entries", path, text, count=count)
