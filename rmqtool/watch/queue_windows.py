"""The consume queues of a store that a broker writes to: where each ends, and the units that point into a range.

What was read of a queue once is not read again: its end is looked for from its last known end on, and a range of the
log is compared with a window of its units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rmqtool.engine.queues.kinds import QueueSource, open_queue
from rmqtool.engine.queues.loaded_files import LoadedFiles
from rmqtool.engine.queues.unit import BATCH_UNITS, UnitKind
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError
from rmqtool.findings.account import Account
from rmqtool.findings.finding import Finding
from rmqtool.formats.queue_name import QueueKey, QueueName, queue_key, queue_name
from rmqtool.store.directory import QueueFiles, Store
from rmqtool.verify.survey.queue_map import QueueMap, Span
from rmqtool.verify.survey.queue_pass import QueuePass

BLOCK_UNITS: Final = 512
"""Units that are read at once where the next valid one is looked for."""


class UnitPlace(NamedTuple):
    """A queue's last unit: where the next one goes, counted in units, and the record that it points to."""

    end: int
    physical_offset: int
    record_size: int


@dataclass
class TrackedQueues:
    """The ends of the queues of one kind, as they were last seen."""

    kind: UnitKind
    ends: dict[QueueName, UnitPlace] = field(default_factory=dict)
    firsts: dict[QueueName, int] = field(default_factory=dict)
    """By queue: the place before which every unit points below the range that is checked next."""

    def files_of(self, store: Store) -> tuple[Mapping[QueueName, QueueFiles], int]:
        """The queues of this kind, and bytes of a full file of theirs."""
        if self.kind is BATCH_UNITS:
            return store.batch_queues, store.batch_file_size
        return store.queues, store.consumequeue_file_size

    def look(self, store: Store, rules: BrokerRules, files: OpenFiles) -> None:
        """Update each queue's end; one that cannot be read keeps its end."""
        queues, file_size = self.files_of(store)
        for gone in self.ends.keys() - queues.keys():
            del self.ends[gone]
            self.firsts.pop(gone, None)
        source = QueueSource(store, rules, files, store.log_start)
        for name, queue in queues.items():
            with suppress(UnreadableError):
                known = self.ends.get(name)
                end = None if known is None else self._from(known, queue, file_size, files)
                if end is None:
                    opened = open_queue(source, name, quickly=True)
                    last, loaded = opened.last_record(), opened.loaded
                    if last is not None and loaded is not None:
                        end = UnitPlace(loaded.end // opened.unit_size, *last)
                if end is not None:
                    self.ends[name] = end
                else:
                    self.ends.pop(name, None)

    def go_on(self, stops: Mapping[QueueName, int], *, is_whole: bool) -> None:
        """Note that a range was checked, whose windows end at these places; or only the start of it."""
        for name, stop in stops.items():
            if is_whole:
                self.firsts[name] = stop
            else:
                self.firsts.pop(name, None)

    def newest(self) -> UnitPlace | None:
        """The unit that points furthest into the log."""
        return max(self.ends.values(), key=lambda place: place.physical_offset, default=None)

    def window(self, store: Store, name: QueueName, begin: int, end: int, files: OpenFiles) -> Span:
        """Places [first, stop) of the units that point into [begin, end) of the log."""
        place = self.ends.get(name)
        queues, file_size = self.files_of(store)
        queue = queues[name]
        loaded = LoadedFiles(queue.segments, file_size, self.kind, files)
        first_place = queue.segments[0].start // self.kind.size
        if place is None:
            return first_place, first_place
        first = self.firsts.get(name)
        if first is None or not first_place <= first <= place.end:
            first = self._first_at(loaded, first_place, place.end, begin)
            self.firsts[name] = first
        if place.physical_offset < begin:
            return place.end, place.end
        step, stop = 1, first
        while stop < place.end and not self._is_at_or_past(loaded, stop, place.end, end):
            stop, step = min(stop + step, place.end), step * 2
        return first, self._first_at(loaded, max(first, stop - step // 2), stop, end)

    def _first_at(self, loaded: LoadedFiles, low: int, high: int, physical_offset: int) -> int:
        """The first of the places [low, high) whose unit points to an offset or after it; `high` without one."""
        limit = high
        while low < high:
            middle = (low + high) // 2
            if self._is_at_or_past(loaded, middle, limit, physical_offset):
                high = middle
            else:
                low = middle + 1
        return low

    def _is_at_or_past(self, loaded: LoadedFiles, place: int, limit: int, physical_offset: int) -> bool:
        """True if a unit points to an offset or after it; one without a target is judged by the next unit."""
        size = self.kind.size
        segment = loaded.segment_at(place * size)
        if segment is None:
            return False
        position = place * size - segment.start
        length = min(BLOCK_UNITS, limit - place) * size
        unit = loaded.read(segment, position, size)
        if not self.kind.valid_count(unit):
            rest = loaded.read(segment, position, length)
            valid = (at for at in range(0, len(rest), size) if self.kind.valid_count(rest[at : at + size]))
            at = next(valid, None)
            if at is None:
                return False
            unit = rest[at : at + size]
        return int.from_bytes(unit[:8], "big", signed=True) >= physical_offset

    def _from(self, known: UnitPlace, queue: QueueFiles, file_size: int, files: OpenFiles) -> UnitPlace | None:
        """The current end, read on from the last known one; None where its last unit has changed."""
        size = self.kind.size
        loaded = LoadedFiles(queue.segments, file_size, self.kind, files)
        last = loaded.segment_at((known.end - 1) * size)
        if last is None or _record(loaded.read(last, (known.end - 1) * size - last.start, size)) != known[1:]:
            return None
        end, unit = known.end, b""
        while (segment := loaded.segment_at(end * size)) is not None:
            position = end * size - segment.start
            if not self.kind.valid_count(loaded.read(segment, position, size)):
                break
            valid = loaded.valid_length(segment, position, min(file_size, position + BLOCK_UNITS * size))
            unit = loaded.read(segment, valid - size, size)
            end = (segment.start + valid) // size
        return UnitPlace(end, *_record(unit)) if unit else known


def _record(unit: bytes) -> tuple[int, int]:
    return int.from_bytes(unit[:8], "big", signed=True), int.from_bytes(unit[8:12], "big", signed=True)


@dataclass
class QueueWindows(Mapping[QueueKey, QueueMap]):
    """The windows of all queues of one kind on a range of the log; others are there, with no units, when asked for."""

    store: Store
    queue_ends: TrackedQueues
    begin: int
    end: int
    files: OpenFiles
    account: Account = field(default_factory=Account)
    findings: list[Finding] = field(default_factory=list)
    unit_count: int = 0
    stops: dict[QueueName, int] = field(default_factory=dict)
    """By queue: the place after its window."""
    _maps: dict[QueueKey, QueueMap] = field(default_factory=dict)

    def open(self) -> None:
        """Read the windows of all queues with units into the range."""
        for name, place in self.queue_ends.ends.items():
            if place.physical_offset >= self.begin:
                first, stop = self.queue_ends.window(self.store, name, self.begin, self.end, self.files)
                if first < stop:
                    self._read(name, (first, stop))
                    self.stops[name] = stop

    def _read(self, name: QueueName, span: Span) -> QueueMap:
        is_batch = self.queue_ends.kind is BATCH_UNITS
        queues, file_size = self.queue_ends.files_of(self.store)
        sizes = file_size, self.store.commitlog_file_size
        one = QueuePass(queues[name], is_batch, *sizes, self.store.log_start, self.account, span=span)
        window = one.run(self.store.view.open)
        window = QueueMap(**{**vars(window), "end": max(window.end, span[1])})
        self.findings += one.findings
        self.unit_count += one.unit_count
        self._maps[queue_key(*name)] = window
        return window

    def __getitem__(self, key: QueueKey) -> QueueMap:
        if key not in self._maps:
            name = queue_name(*key)
            if name not in self.queue_ends.files_of(self.store)[0]:
                raise KeyError(key)
            self._read(name, self.queue_ends.window(self.store, name, self.begin, self.end, self.files))
        return self._maps[key]

    def __iter__(self) -> Iterator[QueueKey]:
        return iter(list(self._maps))

    def __len__(self) -> int:
        return len(self._maps)
