"""Checks names and lengths of the commit log's files, and other files in its directories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from typing import Final

from rmqtool.engine.reading.log_end import log_tail
from rmqtool.errors import UnreadableError
from rmqtool.findings.account import Account
from rmqtool.findings.finding import MISSING_LOG_FILE, Finding
from rmqtool.findings.registry import finding
from rmqtool.formats import commitlog
from rmqtool.formats.commitlog import PHYSICAL_OFFSET_AT
from rmqtool.quantities import OFFSETS_END
from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.judge import judge_frame
from rmqtool.scan.rules import Verdict
from rmqtool.store.directory import Segment, Store, is_log_file_size_known
from rmqtool.store.dledger_files import data_directories
from rmqtool.store.file_kinds import FENCE_NAME, FileKind, is_broker_directory, segment_name
from rmqtool.store.source import read_range
from rmqtool.store.view import Entry, StoreView

_LOOKED_AT: Final = 64 << 10
"""Bytes at the start of a file whose records are asked where they lie."""


def log_file_findings(
    store: Store, units_into: Callable[[int, int], int] | None, known: Iterable[tuple[int, int]] = ()
) -> Iterator[Finding]:
    """Findings about the files as such, by how many units point into [begin, end) of the log, where somebody looked,
    and records known near the log's end, each with its size.
    """
    size = store.commitlog_file_size
    segments = store.commitlog
    tail = None if store.has_dledger_log else log_tail(store, known)
    tail_start = tail.files[0].start if tail is not None and tail.files else OFFSETS_END
    for segment in segments:
        if segment.has_entries:
            continue  # files of DLedger have findings of their own
        if segment.size == 0:
            yield finding(
                "commitlog.empty-file", segment.path, "file of length 0", physical_offset=segment.start, length=0
            )
        elif segment.size != size and is_log_file_size_known(store):
            # What a file in the middle lacks is a gap in the log; at its end nothing has to be bridged.
            is_gap = segment.size < size and segment is not segments[-1]
            yield finding(
                "commitlog.wrong-file-size",
                segment.path,
                f"{segment.size} bytes, a full file has {size}",
                length=segment.size,
                expected=str(size),
                found=str(segment.size),
                **({"repair": "salvage"} if is_gap else {}),
            )
    misnamed = misnamed_files(store)
    yield from misnamed.values()
    named_well = [segment for segment in segments if segment.path not in misnamed]
    for before, segment in pairwise(named_well if size else ()):
        following = before.start + size
        if segment.start > following and segment.start < tail_start:
            lost = units_into(following, segment.start) if units_into is not None else None
            yield _missing(before.path, following, segment.start, size, lost)
    if tail is not None and tail.files and tail.is_odd:
        count = len(tail.files)
        text = "a file of zeros" if count == 1 else f"{count} files of zeros"
        yield finding(
            "commitlog.file-after-end",
            tail.files[0].path,
            f"{text} after the log's end at {tail.log_end}, where brokers leave at most the next one",
            physical_offset=tail.log_end,
            count=count,
        )
    of_directory = "a directory that does not belong to the commit log"
    named = set()
    for entry in store.files.get(FileKind.STRAY_COMMITLOG, ()):
        parts = entry.path.split("/")
        # What lies in a directory of its own is said once, with that directory.
        top = "/".join(parts[:2]) if parts[0].startswith("commitlog") else entry.path
        if top in named or entry.path in misnamed:
            continue
        named.add(top)
        if top == entry.path:
            text = f"a file of {entry.size} bytes that does not belong to the commit log"
            yield finding("commitlog.stray-file", top, text, length=entry.size)
        else:
            yield finding("commitlog.stray-file", top, of_directory, length=entry.size, repair=None)
    for directory in store.stray_log_directories:
        if directory not in named:
            yield finding("commitlog.stray-file", directory, of_directory, repair=None)


def misnamed_files(store: Store) -> dict[str, Finding]:
    """Files of the log with wrong names, by path; `expected` is the right name, where no other file holds its place.

    Of two that overlap it is the one whose own records, or else whose digits, speak against its name. Any other file
    is misnamed only where its records agree on another place, which another file holds, or which is free and next to
    that of a file of the log.
    """
    size, misnamed = store.commitlog_file_size, {}
    before: Segment | None = None
    for segment in store.commitlog if size else ():
        if before is None or segment.start >= before.start + size:
            before = segment
            continue
        told, told_before = _told_starts(store.view, segment), _told_starts(store.view, before)
        # For the name of a file speak its records above all, then its digits.
        trust, trust_before = (
            (2 if one.start in starts else 0 if starts else 1, _has_its_name(one))
            for one, starts in ((segment, told), (before, told_before))
        )
        is_before_wrong = trust_before < trust
        wrong, own = (before, told_before) if is_before_wrong else (segment, told)
        start = own.most_common(1)[0][0] if own else wrong.start
        text = f"by its name it overlaps {(segment if wrong is before else before).path}: the name is wrong"
        if start != wrong.start:
            holder = _holder(store, start, wrong) or "no other file"
            text += f"; its records start at {start}, where {holder} is"
        misnamed[wrong.path] = _misnamed(store, wrong, start, text)
        before = segment if wrong is before else before
    starts = {segment.start for segment in store.commitlog}
    named_otherwise = []
    """Files in the log's directories whose names are no offset, but which have the length of a file of the log."""
    for entry in store.files.get(FileKind.STRAY_COMMITLOG, ()):
        directory = entry.path.rpartition("/")[0]
        is_inside = directory in store.settings.log_directories or is_broker_directory(directory)
        if is_inside and entry.is_file and entry.size == size:
            named_otherwise.append(Segment(entry, -1))
    for segment in (*store.commitlog, *named_otherwise) if size else ():
        if segment.path in misnamed or segment.has_entries:
            continue
        is_in_row = segment.start % size == 0 and not starts.isdisjoint((segment.start - size, segment.start + size))
        agreed = None
        first_told = Counter[int]() if is_in_row else _told_starts(store.view, segment, commitlog.HEAD_SIZE)
        if first_told and segment.start not in first_told:
            told = _told_starts(store.view, segment)
            if len(told) == 1 and told.total() > 1:  # one record alone may be damaged
                agreed = next(iter(told))
        place = _holder(store, agreed, segment) if agreed is not None and segment.start >= 0 else None
        if agreed is not None and agreed != segment.start and (place or _is_next_to_others(store, segment, agreed)):
            text = f"its name is wrong: its records start at {agreed}"
            text += f", where {place} is" if place else ""
            misnamed[segment.path] = _misnamed(store, segment, agreed, text)
        elif segment.start >= 0 and not _has_its_name(segment):
            text = "its name does not have 20 digits, and brokers sort files by name: a start can delete other files"
            misnamed[segment.path] = _misnamed(store, segment, segment.start, text)
        elif _is_lone_and_odd(store, segment):
            text = f"{size} bytes do not divide its name: brokers serve none of the messages that they put into it"
            misnamed[segment.path] = _misnamed(store, segment, segment.start - segment.start % size, text)
    return misnamed


def _is_lone_and_odd(store: Store, segment: Segment) -> bool:
    """True if the log is one file of zeros whose name no broker gives."""
    size = store.commitlog_file_size
    if store.commitlog != (segment,) or not store.log_file_size.is_shown or segment.start % size == 0:
        return False
    with closing(store.view.open(segment.path)) as source:
        return last_data_end(source, 0, segment.size) == 0


def _misnamed(store: Store, segment: Segment, start: int, text: str) -> Finding:
    right_path = None
    if start >= 0 and start % store.commitlog_file_size == 0 and _holder(store, start, segment) is None:
        right_path = f"{segment.path.rpartition('/')[0]}/{segment_name(start)}"
    at = max(segment.start, 0)
    return finding("commitlog.stray-file", segment.path, text, physical_offset=at, expected=right_path)


def _holder(store: Store, start: int, wrong: Segment) -> str | None:
    """Another file that would contain a full file with this start; None without one."""
    end = start + store.commitlog_file_size
    others = (segment for segment in store.commitlog if segment is not wrong)
    return next((segment.path for segment in others if segment.start < end and start < segment.end), None)


def _has_its_name(segment: Segment) -> bool:
    return segment.path.rpartition("/")[2] == segment_name(segment.start)


def _is_next_to_others(store: Store, segment: Segment, start: int) -> bool:
    """True if a file with this start would continue the log, or be all of it."""
    others = [other.start for other in store.commitlog if other.path != segment.path]
    is_next = not others or any(abs(other - start) == store.commitlog_file_size for other in others)
    return start >= 0 and is_next and _holder(store, start, segment) is None


def _told_starts(view: StoreView, segment: Segment, looked_at: int = _LOOKED_AT) -> Counter[int]:
    """Starts of the file by its first records' own offsets, with the number of records for each.

    One record may be damaged, several agree only on the truth.
    """
    starts: Counter[int] = Counter()
    try:
        with closing(view.open(segment.path)) as source:
            head, room = read_range(source, 0, looked_at), source.size
    except UnreadableError:
        return starts
    at = 0
    while at + commitlog.HEAD_SIZE <= len(head):
        verdict, length, magic = judge_frame(memoryview(head)[at:], room - at)
        if verdict != Verdict.GOOD or magic == commitlog.MAGIC_BLANK:
            break
        starts[int.from_bytes(head[at + PHYSICAL_OFFSET_AT :][:8], "big", signed=True) - at] += 1
        at += length
    return starts


def missing_end(store: Store, log_end: int, units_into: Callable[[int, int], int]) -> Iterator[Finding]:
    """The files that the queues point into after the last one, if that one is written to its end.

    Else the log ends inside the last file, and what the queues have after it was cut away by a broker.
    """
    segments = store.commitlog
    if segments and log_end < segments[-1].end:
        return
    behind = segments[-1].start + store.commitlog_file_size if segments else 0
    lost = units_into(behind, OFFSETS_END)
    if lost or (not segments and (store.queues or store.batch_queues or store.index_files)):
        directory = (*data_directories(store), "commitlog")[0]
        neighbour = segments[-1].path if segments else f"{directory}/"
        yield _missing(neighbour, behind, None, store.commitlog_file_size, lost)


def missing_begin(
    store: Store, log_end: int, newest: tuple[int, int], units_into: Callable[[int, int], int]
) -> Iterator[Finding]:
    """The files between the newest message of which a unit tells and a log that holds no record.

    Brokers fill one file after the other and let the oldest expire, never the last one: a whole file between the two,
    to which no unit points, is not explained by that.

    Args:
        newest: physical offset and size of the newest record that a unit points to; -1 and 0 without one.
    """
    size, start = store.commitlog_file_size, store.log_start
    if not size or log_end > start or newest[0] < 0 or newest[0] + newest[1] > start - size:
        return
    begin = start - (start - newest[0] - 1) // size * size - size
    gone = _missing(store.commitlog[0].path, begin, start, size, units_into(begin, start))
    yield replace(gone, message=f"{gone.message}, and the log that is there has no record", repair=None)


def _missing(neighbour: str, begin: int, end: int | None, size: int, lost: int | None) -> Finding:
    """A file, or several, that are missing from `begin` on."""
    count = max(1, (end - begin) // size) if end is not None and size else 1
    text = "the file is missing" if count == 1 else f"{count} files are missing, starting with this one"
    return finding(
        MISSING_LOG_FILE,
        neighbour.rpartition("/")[0] + "/" + segment_name(begin),
        text if lost is None else f"{text}; {lost} units of the queues point there",
        physical_offset=begin,
        length=None if end is None else end - begin,
        count=count,
    )


def fences(store: Store) -> list[Entry]:
    """Files of an interrupted repair with which no broker starts, one in each directory of the log."""
    return [entry for entry in store.files.get(FileKind.RMQTOOL, ()) if entry.name == FENCE_NAME]


def openable_segments(store: Store, account: Account) -> tuple[list[Segment], list[Finding]]:
    """The log's files that can be opened; one that cannot, or that has lost a part since, is an unreadable range."""
    segments, findings = [], []
    for segment in store.commitlog:
        try:
            source = store.view.open(segment.path)
            size = source.size
            source.close()
        except UnreadableError as error:
            size, text = 0, str(error)
        else:
            segments.append(segment)
            text = f"the file had {segment.size} bytes when it was listed, and has {size}"
            if size >= segment.size:
                continue
        account.file(segment.path, segment.size).reported += segment.size - size
        length, place = segment.size - size, {"file_position": size, "physical_offset": segment.start + size}
        findings.append(finding("commitlog.unreadable-range", segment.path, text, length=length, **place))
    return segments, findings
