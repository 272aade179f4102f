"""Logs of DLedger (`dledger-ID/`): their entries with the message in each, the units of their index, and the checks.

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
from rmqtool.engine.rules.broker_rules import BrokerRules, DispatchedEnd
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
OF_ENTRIES: Final = frozenset(
    FINDING_IDS[verdict]
    for verdict in Verdict
    if verdict not in (Verdict.GOOD, Verdict.BAD_PROPERTY, Verdict.RECORD_CRC_MISMATCH, Verdict.TORN_RECORD)
)
"""Findings about records that are reported about their DLedger entries (`dledger.*`); the others stay."""
_SHARED: Final = ("magic", "position", "size", "index", "term")


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
    """The entries of a file whose first byte has the given offset in the log, up to the first invalid one."""
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
        place, length = at + dledger.ENTRY_SIZE, values["body_length"]
        record = None
        is_right = values["position"] == start + at
        if values["magic"] == dledger.MESSAGE:
            location = RecordLocation(start + place, source.name, place, length)
            record = decode_record(SingleRecord(rules, partial(_read, source, place, length)), location)
            is_right = (
                record is not None
                and is_right
                and record.size == length
                and record.physical_offset == start + place
                and record.body_crc_ok
            )
        yield LogEntry(at, values, record, is_right)
        at += values["size"]


def read_units(source: ByteSource) -> Iterator[tuple[int, dict[str, int]]]:
    """The units of a file of the index with their file positions, up to the last byte that is not zero."""
    end, size = last_data_end(source, 0, source.size), dledger.INDEX_UNIT_SIZE
    for at in range(0, end, _BLOCK_SIZE):
        block = read_range(source, at, min(_BLOCK_SIZE, -(-(end - at) // size) * size))
        for number, values in enumerate(_UNIT.iter_unpack(block[: len(block) // size * size])):
            yield at + number * size, dict(zip(UNIT_FIELDS, values, strict=True))


def _read(source: ByteSource, start: int, length_max: int, position: int, length: int) -> bytes:
    return read_range(source, start + position, max(0, min(length, length_max - position)))


def for_dledger(one: Finding) -> Finding:
    """A finding of a store whose log is one of DLedger, with the command that repairs it there."""
    if one.repair == RECOVER:
        return replace(one, repair=REBUILD)
    return replace(one, repair=None) if one.repair == SALVAGE else one


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
    first = next((segment for segment in store.commitlog if segment.has_entries), None)
    if first is not None:
        directory = first.path.rpartition("/")[0]
        if first is not store.commitlog[0]:
            text = "the plain commit log ends there, and the log of DLedger continues it"
            yield finding("dledger.continues-log", directory, text, physical_offset=first.start)
        if is_dledger_off(store.settings):
            text = (
                "the broker's settings do not have enableDLegerCommitLog=true, but messages are in the log of DLedger"
            )
            yield finding("dledger.not-enabled", directory, text, physical_offset=first.start)
    for log in dledger_logs(store):
        size = store.commitlog_file_size if store.has_dledger_log else infer_file_size(log.data)
        for entry, expected in log.unloadable_files(size):
            is_short = entry.size != expected
            text = f"{entry.size} bytes, a full file has {expected}" if is_short else "the name is not a number"
            yield finding("dledger.unloadable-file", entry.path, text, length=entry.size)
        for segment in log.index if store.has_dledger_log else (*log.data, *log.index):
            account.file(segment.path, segment.size).checked += segment.size
        drops = store.has_dledger_log and store.has_abort and rules.dledger_skips_headers
        with ExitStack() as index_files:
            yield from _entry_findings(log, rules, index_files, drops=drops)


def _entry_findings(log: DLedgerLog, rules: BrokerRules, index_files: ExitStack, *, drops: bool) -> Iterator[Finding]:
    """Findings of one log, which is read once from its first entry to its last.

    Args:
        drops: whether the next start counts the messages of the last file without the headers of their entries.
    """
    open_file = log.store.view.open
    index: dict[str, ByteSource] = {}
    next_index: int | None = None
    has_data, term = False, 0
    last: Segment | None = None
    places, numbers, record_bytes = array("q"), array("q"), 0
    """Of the messages in the last file that has entries: physical offsets, entries, and bytes of them all."""
    for segment in log.data:
        try:
            with closing(open_file(segment.path)) as source:
                for entry in read_entries(source, segment.start, rules):
                    has_data = True
                    at = entry.file_position
                    place = {"file_position": at, "physical_offset": segment.start + at}
                    if isinstance(entry, BadRange):
                        if segment is not log.data[-1]:
                            next_index = None
                        text = "from here to the last byte that is not zero there is no entry"
                        yield finding("dledger.bad-entry", segment.path, text, length=entry.length, **place)
                        continue
                    values, number = entry.values, entry.values["index"]
                    if segment is not last:
                        last, places, numbers, record_bytes = segment, array("q"), array("q"), 0
                    if entry.record is not None:
                        if takes_queue_entry(entry.record.sys_flag):
                            places.append(entry.record.physical_offset)
                            numbers.append(number)
                        record_bytes += entry.record.size
                    if not entry.is_right:
                        text = "the message is not a good record, or the entry is not where it says"
                        yield finding("dledger.bad-entry", segment.path, text, length=values["size"], **place)
                    if next_index not in (None, number) or values["term"] < term:
                        expected = number if next_index is None else next_index
                        text = f"entry {number} of term {values['term']}, expected: entry {expected} of term {term}"
                        yield finding("dledger.wrong-order", segment.path, text, **place)
                    next_index, term = number + 1, max(term, values["term"])
                    unit, unit_path, position = None, f"{log.directory}/index", 0
                    at = number * dledger.INDEX_UNIT_SIZE
                    file = next((file for file in log.index if file.start <= at < file.end), None)
                    if file is not None:
                        if file.path not in index:
                            index[file.path] = index_files.enter_context(closing(open_file(file.path)))
                        unit_path, position = file.path, at - file.start
                        raw = read_range(index[file.path], position, dledger.INDEX_UNIT_SIZE)
                        unit = _UNIT.unpack(raw) if len(raw) == dledger.INDEX_UNIT_SIZE else None
                    if unit != tuple(values[name] for name in _SHARED):
                        text = f"the unit of entry {number} is not there, or does not lead to it"
                        yield finding(
                            "dledger.wrong-unit", unit_path, text, file_position=position,
                            length=dledger.INDEX_UNIT_SIZE, physical_offset=place["physical_offset"],
                        )  # fmt: skip
        except UnreadableError as error:
            next_index, has_data = None, True
            yield finding("store.unreadable", segment.path, str(error))
    committed = -1 if log.committed_index is None else log.committed_index
    if next_index is not None or not has_data:  # else nobody knows the last entry; a log of zeros has none
        in_index = -1
        for segment in log.index[-1:]:
            with closing(open_file(segment.path)) as source:
                in_index = max((values["index"] for _, values in read_units(source)), default=-1)
        end, newest = next_index or 0, max(in_index, committed)
        if log.data and newest >= end:
            text = f"the log ends before entry {end}; index or checkpoint of the group know entry {newest}"
            yield finding("dledger.missing-entries", f"{log.directory}/data", text, count=newest - end + 1)
    if drops and last is not None and last.path in {file.path for file in log.store.commitlog}:
        # `dledgerRecoverAbnormally`: what is behind the last committed entry is dispatched again after an election.
        end = last.start + record_bytes
        count = sum(at >= end and number <= committed for at, number in zip(places, numbers, strict=True))
        if count and _dispatched_end(log.store, rules) >= end:
            text = (
                f"a start takes the log to end at {end}, and drops the queue units of {count} messages from there to "
                f"entry {committed}, the last one that the group is known to have committed"
            )
            yield finding("dledger.dropped-at-start", last.path, text, physical_offset=end, count=count)


def _dispatched_end(store: Store, rules: BrokerRules) -> int:
    """End up to which a start takes the log as dispatched; it drops nothing where that comes before its end."""
    if rules.dispatched_end is not DispatchedEnd.QUEUES:
        checkpoint = readable_checkpoint(store)
        return checkpoint.consumequeue_physical_offset if checkpoint is not None else 0
    end = 0
    with open_reader(store, rules, quickly=True) as reader:
        for name in reader.queues():
            with suppress(UnreadableError):
                last = reader.queue(*name).last_record()
                end = max(end, sum(last) if last is not None else 0)
    return end
