"""Checks the files of each queue alone: names, lengths, valid units, their order, bytes after the end.

A file is read whole, 6 MB as a rule; the rest of the memory is that of `queue_map`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.queues.loaded_files import NO_UNITS, valid_units_question
from rmqtool.engine.queues.unit import BATCH_UNITS, PLAIN_UNITS
from rmqtool.errors import UnreadableError
from rmqtool.findings.account import Account
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import finding
from rmqtool.formats.consumequeue import FILLER_UNIT, unit_format
from rmqtool.formats.tombstone import are_dead
from rmqtool.memory import memory_budget
from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.row_cache import RowCache
from rmqtool.store.directory import QueueFiles, Segment, Store
from rmqtool.store.file_kinds import segment_name
from rmqtool.store.source import read_salvaging
from rmqtool.verify.survey.queue_map import Array, Open, QueueMap, RunsBuilder, Span, UnitFile
from rmqtool.verify.survey.recall import Seen, seen_by

ORDER_MAX: Final = 100
"""Findings about the order of one queue."""
READ_BYTES: Final = 1 << 23

_ZERO, _INVALID, _FILLER, _DEAD, _COUNTS, _UNREADABLE = range(6)
Kinds = NDArray[np.int8]


@dataclass
class QueuePass:
    """Collects the results of one queue, file by file and block by block, in the span of places that was not seen
    before and is not being written. Dead units are known by their place before the start of the log, with its file
    size.
    """

    queue: QueueFiles
    is_batch: bool
    file_size: int
    log_file_size: int
    log_minimum: int
    account: Account
    findings: list[Finding] = field(default_factory=list)
    answers: dict[str, tuple[Hashable, object]] = field(default_factory=dict)
    unit_count: int = 0
    span: Span | None = None

    def __post_init__(self) -> None:
        self._dtype = unit_format(is_batch=self.is_batch).dtype
        self._unit_size = self._dtype.itemsize
        self._kind = BATCH_UNITS if self.is_batch else PLAIN_UNITS
        self._per_file = max(1, self.file_size // self._unit_size)
        self._files: list[UnitFile] = []
        self._runs = RunsBuilder()
        self._spans: dict[int, list[tuple[int, int]]] = {kind: [] for kind in range(6)}
        self._zero_files: list[tuple[int, int]] = []
        self._bad_files: list[tuple[int, int]] = []
        self._absent: list[tuple[int, int]] = []
        self._last_offset = -1
        self._end = -1
        self._stale: list[tuple[int, int]] = []
        self._invalid_since_end = False
        self._in_stale = False

    def run(self, open_file: Open) -> QueueMap:
        by_name = sorted(self.queue.segments, key=lambda segment: segment.entry.name)
        for segment, in_place in zip(self.queue.segments, by_name, strict=True):
            if segment.path != in_place.path and segment.entry.name != segment_name(segment.start):
                text = "brokers sort files by name, and this name does not sort by its number"
                self._say("consumequeue.stray-file", segment.path, text)
            self._read_file(segment, open_file)
        return self._finish()

    def _read_file(self, segment: Segment, open_file: Open) -> None:
        path, first = segment.path, segment.start // self._unit_size
        account = self.account.file(path, segment.size)
        if self.file_size <= 0 or segment.start % self.file_size:
            account.reported += segment.size
            self._say("consumequeue.stray-file", path, "its name is not a multiple of the file size")
            return
        if self._files and first > (behind := self._files[-1].first + self._per_file):
            self._absent.append((behind, first))
            self._say(
                "consumequeue.missing-file",
                self.queue.directory,
                f"no file between {self._files[-1].path} and {path}",
                queue_offset=None if self.is_batch else behind,
                count=first - behind,
            )
        usable = min(segment.size, self.file_size) // self._unit_size
        if self.span is not None and not (self.span[0] < first + self._per_file and first < self.span[1]):
            self._files.append(UnitFile(path, first, usable))
            return
        if segment.size != self.file_size:
            self._say(
                "consumequeue.wrong-file-size",
                path,
                "an empty file" if not segment.size else f"{segment.size} bytes, a full file has {self.file_size}",
                length=segment.size,
                expected=str(self.file_size),
                found=str(segment.size),
            )
            self._bad_files.append((first + usable, first + self._per_file))
            account.reported += segment.size - usable * self._unit_size
        self._files.append(UnitFile(path, first, usable))
        if not usable:
            return
        try:
            source = open_file(path)
        except UnreadableError as error:
            self._spans[_UNREADABLE].append((first, first + usable))
            self._say("consumequeue.unreadable-range", path, str(error), file_position=0, length=segment.size)
            return
        try:
            any_data, is_read, summary = False, True, NO_UNITS
            step = READ_BYTES // self._unit_size
            if self.span is not None:
                low, used = max(0, self.span[0] - first), min(usable, self.span[1] - first)
            else:
                # Most files are the last one of their queue, whose rest is zeros.
                low, used = 0, -(-last_data_end(source, 0, usable * self._unit_size) // self._unit_size)
            for begin in range(low, used, step):
                count = min(step, used - begin)
                buffer = bytearray(count * self._unit_size)
                bad = read_salvaging(source, begin * self._unit_size, memoryview(buffer))
                units = np.frombuffer(buffer, self._dtype)
                any_data = bool(bad) or any_data or any(buffer)
                self._take(first + begin, units, bad, path, begin * self._unit_size)
                is_read = is_read and not bad
                if summary.length == begin * self._unit_size:
                    valid = self._kind.valid_count(bytes(buffer)) * self._unit_size
                    summary = summary.joined(buffer[:valid], self._kind)
            if used < usable and self.span is None:
                self._take_invalid(_ZERO, first + used, first + usable)
            if is_read and self.span is None:
                question = valid_units_question(self.file_size, self._kind)
                self.answers[path] = question, summary.packed()
        finally:
            source.close()
        if not any_data and self.span is None:
            self._zero_files.append((first, first + usable))

    def _take(self, first: int, units: Array, bad: list[tuple[int, int]], path: str, block_position: int) -> None:
        kinds = self._kinds_of(units)
        for start, end in bad:
            low, high = start - block_position, end - block_position
            kinds[low // self._unit_size : -(-high // self._unit_size)] = _UNREADABLE
            self._say(
                "consumequeue.unreadable-range", path, f"{end - start} bytes cannot be read", file_position=start,
                length=end - start,
            )  # fmt: skip
        changes = np.flatnonzero(kinds[1:] != kinds[:-1]) + 1
        for low, high in zip([0, *changes.tolist()], [*changes.tolist(), len(kinds)], strict=True):
            kind = int(kinds[low])
            if kind == _COUNTS:
                self._take_counting(first + low, units[low:high])
            else:
                self._take_invalid(kind, first + low, first + high)

    def _take_invalid(self, kind: int, place: int, behind: int) -> None:
        if kind == _DEAD:
            self._end, self._invalid_since_end = behind, False
        elif kind != _FILLER:
            self._invalid_since_end = True
        spans = self._spans[kind]
        if spans and spans[-1][1] == place:
            spans[-1] = (spans[-1][0], behind)
        else:
            spans.append((place, behind))

    def _take_counting(self, place: int, units: Array) -> None:
        offsets = units["physical_offset"].astype(np.int64)
        if self._invalid_since_end and self._end >= 0 and (self._in_stale or offsets[0] <= self._last_offset):
            # After an invalid unit, and older than those before it: what a cut has left.
            self._in_stale = True
            self._stale.append((place, place + len(units)))
            return
        self._in_stale = self._invalid_since_end = False
        self._runs.take(place, offsets)
        self._last_offset = int(offsets[-1])
        self._end = place + len(units)
        self.unit_count += len(units)

    def _kinds_of(self, units: Array) -> Kinds:
        offsets, sizes, tags = units["physical_offset"], units["record_size"], units["tags_code"]
        kinds = np.full(len(units), _COUNTS, np.int8)
        if self.is_batch:
            valid = (offsets >= 0) & (sizes > 0) & (units["base_queue_offset"] >= 0) & (units["batch_size"] > 0)
            kinds[~valid] = _INVALID
            empty = (units["base_queue_offset"] == 0) & (units["batch_size"] == 0) & (units["compacted_offset"] == 0)
            empty &= (units["store_timestamp_ms"] == 0) & (units["reserved"] == 0)
            kinds[~valid & (offsets == 0) & (sizes == 0) & (tags == 0) & empty] = _ZERO
            return kinds
        kinds[(offsets < 0) | (sizes <= 0)] = _INVALID
        kinds[(offsets == 0) & (sizes == 0) & (tags == 0)] = _ZERO
        kinds[(offsets == FILLER_UNIT[0]) & (sizes == FILLER_UNIT[1]) & (tags == FILLER_UNIT[2])] = _FILLER
        if self.log_file_size:
            kinds[are_dead(units, self.log_file_size)] = _DEAD
        return kinds

    def _finish(self) -> QueueMap:
        first = self._files[0].first if self._files else 0
        end = max(self._end, first)
        queue_map = QueueMap(
            self.queue.topic,
            self.queue.queue_id,
            self.is_batch,
            self.queue.directory,
            tuple(self._files),
            self._per_file,
            self._runs.finish(),
            end,
            tuple(span for kind in (_ZERO, _INVALID, _UNREADABLE) for span in self._spans[kind] if span[0] < end),
            tuple(self._spans[_DEAD]),
            tuple(self._zero_files),
            tuple(self._bad_files),
            tuple(self._absent),
            self.unit_count,
        )
        # What is wrong with the queue by itself; every unit is accounted for.
        for kind in (_ZERO, _INVALID):
            for low, high in self._spans[kind]:
                if high <= end:
                    self._report_gap(queue_map, low, high, is_zero=kind == _ZERO)
                elif kind == _INVALID:
                    text = "bytes after the end of the queue that are not a unit"
                    self._at(queue_map, low, high, "consumequeue.stale-unit", text)
                else:
                    self._count(queue_map, low, high, "zero_tail")
        for low, high in self._spans[_UNREADABLE]:
            self._count(queue_map, low, high, "reported")
        for low, high in self._stale:
            text = f"{high - low} units of an older state after the end of the queue"
            self._at(queue_map, low, high, "consumequeue.stale-unit", text)
        for low, high in self._spans[_DEAD]:
            self._at(queue_map, low, high, "consumequeue.dead-unit", f"{high - low} units of lost messages")
        for low, high in self._spans[_FILLER]:
            if self.log_minimum > 0 and low == queue_map.first:
                self._count(queue_map, low, high, "checked")
                continue
            where = "that consumers can read" if low == queue_map.first else "inside the queue"
            self._at(queue_map, low, high, "consumequeue.filler-readable", f"{high - low} filler units {where}")
        for place in queue_map.units.drops["begin"].tolist()[:ORDER_MAX]:
            text = "points to an older record than the unit before it"
            self._at(queue_map, place, place, "consumequeue.order", text)
        if queue_map.units.dropped:
            text = "units in random order, not followed to the end"
            self._say("consumequeue.order", self.queue.directory, text, count=queue_map.units.dropped)
        for file in queue_map.files:
            account = self.account.files[file.path]
            account.checked += max(0, account.open_bytes)
        return queue_map

    def _report_gap(self, queue_map: QueueMap, low: int, high: int, *, is_zero: bool) -> None:
        for file in queue_map.files:
            begin, end = max(low, file.first), min(high, file.end)
            if begin >= end:
                continue
            kind = "consumequeue.bad-batch-unit" if self.is_batch else "consumequeue.gap"
            state = "zero" if is_zero else "invalid"
            text = f"a unit is {state}"
            if is_zero and (begin, end) == (file.first, file.end):
                kind, text = "consumequeue.zero-file", "the file holds only zeros, and units follow after it"
            elif end - begin > 1:
                text = f"{end - begin} {state} units, with other units after them"
            self._at(queue_map, begin, end, kind, text)

    def _count(self, queue_map: QueueMap, low: int, high: int, column: str) -> None:
        for file in queue_map.files:
            begin, end = max(low, file.first), min(high, file.end)
            if begin < end:
                account = self.account.files[file.path]
                setattr(account, column, getattr(account, column) + (end - begin) * self._unit_size)

    def _at(self, queue_map: QueueMap, low: int, high: int, kind: str, message: str) -> None:
        path, position = queue_map.position(low)
        self._say(
            kind,
            path,
            message,
            file_position=position,
            length=(high - low) * self._unit_size or None,
            queue_offset=None if self.is_batch else low,
            count=max(1, high - low),
        )
        self._count(queue_map, low, high, "reported")

    def _say(self, kind: str, path: str, message: str, **details: Any) -> None:
        self.findings.append(
            finding(kind, path, message, topic=self.queue.topic, queue_id=self.queue.queue_id, **details)
        )


SEEN_BYTES: Final = 4096
"""Memory for a queue whose results a cache recalls."""
_ALL: Final = 1 << 60


class QueueLook:
    """Looks at queues in files, plain ones or batch queues, of which it has all; any thread may do it."""

    def __init__(
        self, store: Store, account: Account, cache: RowCache | None, log_minimum: int, *, is_batch: bool
    ) -> None:
        self._store, self._account, self._log_minimum, self._is_batch = store, account, log_minimum, is_batch
        self.queues = tuple((store.batch_queues if is_batch else store.queues).values())
        has_room = len(self.queues) <= memory_budget().share(_ALL, 8) // SEEN_BYTES
        self._cache = cache if has_room else None
        self._seen: list[object] = []

    def __call__(self, queue: QueueFiles) -> Seen[QueueMap]:
        store = self._store
        file_size = store.batch_file_size if self._is_batch else store.consumequeue_file_size
        one = QueuePass(queue, self._is_batch, file_size, store.commitlog_file_size, self._log_minimum, self._account)
        files = tuple((segment.path, segment.start, segment.size) for segment in queue.segments)
        terms = files, one.is_batch, one.file_size, one.log_file_size, one.log_minimum
        return seen_by(one, [path for path, _, _ in files], terms, store.view.open, self._cache)

    def note(self, seen: Seen[QueueMap]) -> None:
        """Take the result of a queue, in the order of the queues: another look compares the whole."""
        if self._cache is not None:
            self._seen.append(seen)

    @property
    def seen(self) -> list[object]:
        """Objects equal to those of another look only if it saw the same; nothing equals them if none are kept."""
        return self._seen if self._cache is not None or not self.queues else [object()]
