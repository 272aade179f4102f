"""The part of a store that a bounded repair reads: the log from one of its files on, and units and entries into it.

A window is a store like one whose log has expired below its start, so that checks and builders need no other rules for
it. Of each queue and of the index it holds the files from the one on in which the last entry for a record below the
window lies, and of each queue at least those that a broker reads at its start. What it leaves out a repair cannot
change, for it does not see it. So `recover` looks at what the broker would read, and from there down as far as
something is incomplete.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from rmqtool.engine.queues.unit import PLAIN
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.topic_names import is_deletable
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError
from rmqtool.findings.finding import Finding
from rmqtool.forecast.forecast import scan_begin
from rmqtool.forecast.options import ForecastOptions
from rmqtool.formats.consumequeue import BATCH_UNIT, BATCH_UNIT_SIZE, UNIT, UNIT_SIZE
from rmqtool.formats.index import ENTRY, ENTRY_SIZE, HEADER_SIZE, IndexHeader, entry_position, file_size
from rmqtool.formats.queue_name import QueueName
from rmqtool.repair.derived.builder import first_entry_offset
from rmqtool.scan.blocks import last_data_end
from rmqtool.store.directory import QueueFiles, Segment, Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.source import read_range
from rmqtool.store.view import Entry

QUEUE_FILES_AT_START: Final = 3
"""The last files of a queue, which a broker's start reads: it ends the queue where one of them has an invalid unit."""


@dataclass(frozen=True)
class LogWindow:
    """A part of a store.

    Attributes:
        store: the part, as a store of its own.
        begin: physical offset at which its log begins.
        left_out: the files that it does not hold.
        earlier: where the files of the log begin that it does not hold.
        needs: physical offset to which a window has to reach because a file that is left out has a wrong length or
            place; None where there is none.
    """

    store: Store
    begin: int
    left_out: tuple[Entry, ...] = ()
    earlier: tuple[int, ...] = ()
    needs: int | None = None

    @property
    def is_whole(self) -> bool:
        return not self.left_out

    def notes(self) -> tuple[str, ...]:
        """Parts that were not checked, as sentences."""
        if self.is_whole:
            return ()
        paths = [entry.path.partition("/")[0] for entry in self.left_out]
        derived = [
            f"{count} {what}{'' if count == 1 else 's'}"
            for what, count in (
                ("queue file", sum(path in ("consumequeue", "batchconsumequeue") for path in paths)),
                ("index file", paths.count("index")),
            )
            if count
        ]
        told = f", and {' and '.join(derived)} that point there" if derived else ""
        size = sum(entry.size for entry in self.left_out)
        files = "1 file" if len(self.earlier) == 1 else f"{len(self.earlier)} files"
        text = f"the commit log below physical offset {self.begin}: {files}{told}, {size} bytes together"
        return (f"{text}: only names and lengths were checked; --full checks all of it",)


def window_of(store: Store, begin: int) -> LogWindow:
    """The part of a store from the log file on that holds a physical offset."""
    log = store.commitlog
    starts = [segment.start for segment in log]
    first = bisect_left(starts, max((start for start in starts if start <= begin), default=0))
    if first == 0:
        return LogWindow(store, log[0].start if log else 0)
    slots, room = store.index_slot_count, store.index_entry_count
    with OpenFiles(store.view) as files:
        cut = _Cut(store, log[first].start, files)
        kept = {
            FileKind.COMMITLOG: [segment.entry for segment in log[first:]],
            FileKind.CONSUMEQUEUE: cut.queues(store.queues.values(), store.consumequeue_file_size, UNIT_SIZE),
            FileKind.BATCH_CONSUMEQUEUE: cut.queues(
                store.batch_queues.values(), store.batch_file_size, BATCH_UNIT_SIZE
            ),
            FileKind.INDEX: cut.index(store.index_files, slots, room) if slots and room else list(store.index_files),
        }
    paths = {entry.path for entries in kept.values() for entry in entries}
    left_out = tuple(entry for kind in kept for entry in store.files.get(kind, ()) if entry.path not in paths)
    files_of = {kind: tuple(entries) for kind, entries in kept.items() if entries}
    sizes = replace(  # as the files of the whole store show them: a part may hold too few to tell
        store.settings,
        commitlog_file_size=store.commitlog_file_size or None,
        consumequeue_file_size=store.consumequeue_file_size or None,
        batch_file_size=store.batch_file_size or None,
        extension_file_size=store.extension_file_size or None,
        index_slot_count=store.index_slot_count,
        index_entry_count=store.index_entry_count,
    )
    part = replace(store, files={**store.files, **files_of}, settings=sizes)
    return LogWindow(part, cut.begin, left_out, tuple(segment.start for segment in log[:first]), cut.needs)


Ends = tuple[int | None, int | None]
"""Physical offsets that the first and the last entry of a file point to; None where no entry stands there."""


class _Cut:
    """Finds where to cut queues and index for a window that begins at a physical offset."""

    def __init__(self, store: Store, begin: int, files: OpenFiles) -> None:
        self.begin = begin
        self.needs: int | None = None
        self._files = files
        self._minimum = store.commitlog[0].start

    def queues(self, queues: Iterable[QueueFiles], full_size: int, unit_size: int) -> list[Entry]:
        kept: list[Entry] = []
        for queue in queues:
            segments = queue.segments
            if segments[0].start > 0 == self._minimum:
                self._need(None)  # nothing has expired, so files are missing
            ends = partial(self._queue_ends, segments, unit_size)
            first = min(self._first(len(segments), ends), max(0, len(segments) - QUEUE_FILES_AT_START))
            for number, segment in enumerate(segments[:first]):
                is_right = 0 < segment.size == full_size and segment.start % full_size == 0
                if not is_right or segments[number + 1].start != segment.start + full_size:
                    self._need(ends(number - 1)[1] if number else None)
            kept += [segment.entry for segment in segments[first:]]
        return kept

    def index(self, entries: Sequence[Entry], slot_count: int, entry_count: int) -> list[Entry]:
        ends = partial(self._index_ends, entries, slot_count)
        first = self._first(len(entries), ends)
        for number, entry in enumerate(entries[:first]):
            if entry.size != file_size(slot_count, entry_count):
                self._need(ends(number)[0])
        return list(entries[first:])

    def _first(self, count: int, ends: Callable[[int], Ends]) -> int:
        """First file that a window needs: the last one that begins with an entry for a record below it.

        Such an entry counts only if it is no older than the last one of the file before.
        """
        for number in range(count - 1, 0, -1):
            begin = ends(number)[0]
            if begin is None or begin >= self.begin:
                continue
            before = ends(number - 1)[1]
            if before is not None and before <= begin:
                return number
        return 0

    def _need(self, physical_offset: int | None) -> None:
        needed_offset = self._minimum if physical_offset is None else max(self._minimum, physical_offset)
        self.needs = needed_offset if self.needs is None else min(self.needs, needed_offset)

    def _queue_ends(self, segments: Sequence[Segment], unit_size: int, number: int) -> Ends:
        segment, ends = segments[number], list[int | None]()
        for position in (0, segment.size - unit_size):
            raw = self._read(segment.path, position, PLAIN.size)  # a batch unit begins as a plain one does
            physical_offset, size, _ = PLAIN.unpack(raw) if len(raw) == PLAIN.size else (-1, 0, 0)
            ends.append(physical_offset if physical_offset >= 0 and size > 0 else None)
        return ends[0], ends[1]

    def _index_ends(self, entries: Sequence[Entry], slot_count: int, number: int) -> Ends:
        path = entries[number].path
        raw = self._read(path, 0, HEADER_SIZE)
        if len(raw) < HEADER_SIZE:
            return None, None
        header = IndexHeader.parse(raw)
        entry = self._read(path, entry_position(1, slot_count), ENTRY_SIZE)
        if header.next_entry_number <= 1 or len(entry) < ENTRY_SIZE:
            return None, None
        return int(ENTRY.struct.parse(entry).physical_offset), header.end_physical_offset

    def _read(self, path: str, position: int, length: int) -> bytes:
        """Bytes of a file; empty where they cannot be read, so that the file is not left out."""
        try:
            return self._files.read(path, position, length) if position >= 0 else b""
        except UnreadableError:
            return b""


class WindowTooSmall(Exception):  # noqa: N818 - the reason to look again, and no error of this program
    """Something is incomplete that began before the window; `physical_offset` is where it did."""

    def __init__(self, physical_offset: int) -> None:
        super().__init__(physical_offset)
        self.physical_offset = physical_offset


def first_window(store: Store, rules: BrokerRules, options: ForecastOptions, shaped: Iterable[str]) -> LogWindow:
    """Window over the files that the broker would read, that change their length by a step, or have a wrong one.

    Args:
        shaped: paths of the log's files that steps of the repair change already.
    """
    begin = scan_begin(store, rules, options)
    if begin is None:
        return window_of(store, 0)
    paths = set(shaped)
    begins = [begin, *(segment.start for segment in store.commitlog if segment.path in paths)]
    return _settled(store, window_of(store, min(begins)))


def larger_window(store: Store, window: LogWindow, physical_offset: int) -> LogWindow:
    """The window that reaches to a place, and is at least twice as large: few rounds come to any place."""
    end = store.commitlog[-1].end
    if physical_offset >= window.begin:
        return window_of(store, 0)
    return _settled(store, window_of(store, max(0, min(physical_offset, window.begin - (end - window.begin)))))


def _settled(store: Store, window: LogWindow) -> LogWindow:
    """The window, larger where one of the files that it leaves out is not as it should be."""
    while window.needs is not None:
        if window.needs >= window.begin:
            return window_of(store, 0)
        window = window_of(store, window.needs)
    return window


def demand_told(window: LogWindow, findings: Sequence[Finding]) -> None:
    """Refuse a window if its first index file, or a queue with a file of zeros, is wrong where the log gives no proof.

    Raises:
        WindowTooSmall: it is; of a queue of zeros only the whole log tells that it has no message.
    """
    if window.is_whole:
        return
    head = window.store.index_files[:1]
    for finding in findings if head else ():
        is_bad = finding.file == head[0].path and finding.id in (
            "index.bad-header",
            "index.bad-entry",
            "store.unreadable",
        )
        if is_bad or (finding.id == "index.missing-key" and not window.store.index_slot_count):
            raise WindowTooSmall(first_entry_offset(window.store))
    if any(finding.id == "consumequeue.zero-file" and finding.physical_offset is None for finding in findings):
        raise WindowTooSmall(0)


def demand_generations_known(window: LogWindow, names: Iterable[QueueName]) -> None:
    """Refuse a window for a queue without files: the whole log tells whether its topic was deleted and used again.

    Raises:
        WindowTooSmall: there is one.
    """
    if window.is_whole:
        return
    queues = {*window.store.queues, *window.store.batch_queues}
    if any(name not in queues and is_deletable(name[0]) for name in names):
        raise WindowTooSmall(0)


def named_queues(queues: Iterable[Finding], rebuilt: AbstractSet[QueueName]) -> set[QueueName] | None:
    """The queues that findings are about, and those named beside them, by topic and queue id; None for all."""
    names = set(rebuilt)
    for finding in queues:
        if finding.topic is None or finding.queue_id is None:
            return None
        names.add((finding.topic, finding.queue_id))
    return names


def queues_reaching(store: Store, log_end: int) -> Iterator[QueueName]:
    """The queues, by topic and queue id, that have a unit for a record from a physical offset on."""
    for queues, form in ((store.queues, UNIT.dtype), (store.batch_queues, BATCH_UNIT.dtype)):
        for name, queue in queues.items():
            for segment in reversed(queue.segments):
                with closing(store.view.open(segment.path)) as source:
                    end = -(-last_data_end(source, 0, source.size) // form.itemsize) * form.itemsize
                    raw = read_range(source, 0, end)
                units = np.frombuffer(raw[: len(raw) // form.itemsize * form.itemsize], form)
                if (units["physical_offset"] >= log_end).any():
                    yield name
                    break
                if units.size and 0 <= units["physical_offset"][0] < log_end and units["record_size"][0] > 0:
                    break
