"""Builds queues, extensions and index into a directory, and returns the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.dispatch.derived_writer import QUEUES, DerivedSizes, DerivedWriter, EntrySelector, QueueEnds
from rmqtool.engine.dispatch.index_entries import IndexEntries
from rmqtool.engine.dispatch.index_writer import DIRECTORY, IndexWriter, OpenIndexFile, enter
from rmqtool.engine.dispatch.queue_entries import DispatchSettings
from rmqtool.engine.dispatch.queue_writer import BatchQueueWriter, QueueEnd
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnknownSizeError
from rmqtool.formats.consumequeue import BATCH_UNIT_SIZE, DEFAULT_FILE_UNITS, FILLER_UNIT, UNIT, UNIT_SIZE, unit_format
from rmqtool.formats.index import DEFAULT_ENTRY_COUNT, DEFAULT_SLOT_COUNT, ENTRY, IndexHeader, entry_position, file_size
from rmqtool.formats.queue_name import topic_bytes
from rmqtool.formats.tombstone import DEAD_BEFORE, DEAD_SIZE
from rmqtool.repair.derived.gap_queue_writer import (
    GapPreservingQueueWriter,
    KeptUnits,
    NewestBatchQueueWriter,
    RecordOffsets,
)
from rmqtool.repair.derived.result import BuildOptions, BuildRequest, BuiltQueues, Generations, RemovedTopics
from rmqtool.scan.log import may_hold_data
from rmqtool.store.config.config_json import batch_topics, topics
from rmqtool.store.config.config_kinds import TOPICS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import QueueFiles, Segment, Store
from rmqtool.store.file_kinds import segment_name
from rmqtool.store.index_file import IndexFile, index_headers
from rmqtool.store.index_slots import shows_entry_count
from rmqtool.store.sink import DirectorySink, FileSink, TrackingSink
from rmqtool.store.sizes import DEFAULT_INDEX_FILE_SIZE
from rmqtool.store.source import read_range

HEAD_PATH: Final = f"{DIRECTORY}/{0:017d}"
"""Where the copy is built: a name before all that follow it."""

_QUEUE: Final = "consumequeue_file_size", "a queue file", DEFAULT_FILE_UNITS * UNIT_SIZE, "--queue-file-size BYTES or "
_BATCH: Final = ("batch_file_size", "a batch queue file", DEFAULT_FILE_UNITS * BATCH_UNIT_SIZE, "")
_SLOTS: Final = ("index_slot_count", "an index file (its hash slots)", DEFAULT_SLOT_COUNT, "--index-slots N or ")
_SLOTS_AND_ENTRIES: Final = (*_SLOTS[:3], "--index-slots N and --index-entries N, or ")
_ENTRIES: Final = ("index_entry_count", "an index file (its entries)", DEFAULT_ENTRY_COUNT, "--index-entries N or ")


def sizes_of(store: Store, options: BuildOptions, settings: DispatchSettings, *, demands: bool) -> DerivedSizes:
    """Sizes of the derived files: those that are there show them, else the broker's defaults.

    Args:
        demands: whether the sizes must be right, because files are written.

    Raises:
        UnknownSizeError: no file shows a size, and the store's broker does not have the default sizes.
    """
    queue = _shown(store, store.consumequeue_file_size, *_QUEUE, demands=demands)
    batch = _shown(store, store.batch_file_size, *_BATCH, demands=demands and bool(settings.batch_topics))
    extension = options.extension if options.extension is not None else bool(store.extensions)
    return DerivedSizes(
        queue,
        batch // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE,
        (store.extension_file_size or 48 << 20) if extension else None,
    )


def index_shape_of(store: Store, *, demands: bool) -> tuple[int, int]:
    """Slots and entries of an index file; a file without any content still has the length of the default ones.

    Raises:
        UnknownSizeError: see `sizes_of`.
    """
    if store.index_slot_count is None and any(entry.size == DEFAULT_INDEX_FILE_SIZE for entry in store.index_files):
        return DEFAULT_SLOT_COUNT, DEFAULT_ENTRY_COUNT
    # A file's length shows its entries once the slots are known; without any file both are asked for at once.
    asked = _SLOTS if store.index_files or store.settings.index_entry_count else _SLOTS_AND_ENTRIES
    slots = _shown(store, store.index_slot_count, *asked, demands=demands)
    entries = store.index_entry_count
    is_told = store.settings.index_entry_count is not None
    if demands and entries and not is_told and not shows_entry_count(store.index_files, slots, entries):
        entries = None
    return slots, _shown(store, entries, *_ENTRIES, demands=demands)


def _shown(store: Store, size: int | None, setting: str, what: str, default: int, option: str, *, demands: bool) -> int:
    """A size as the store shows it; the default where that may be taken for the broker's."""
    if size or not demands or store.uses_default_sizes:
        return size or default
    raise UnknownSizeError(
        f"{store.view.label}: nothing in the store shows the size of {what}, and a broker with another size would not "
        f"find what is written; give it with {option}--broker-conf FILE",
        setting,
        default,
    )


def dispatch_settings(store: Store, rules: BrokerRules, options: BuildOptions) -> DispatchSettings:
    """Dispatch settings of the store's broker: batch queues by their topics' configuration, or by the queues
    themselves.
    """
    batch = batch_topics(topics(read_config(store.view, TOPICS)), (topic for topic, _ in store.batch_queues))
    settings = DispatchSettings(rules, options.multi_dispatch, options.lmq, frozenset(map(topic_bytes, batch)))
    return settings.with_entered(store)


@dataclass(frozen=True)
class BuildContext:
    """Settings that decide, beside the records, about the files that are built."""

    store: Store
    rules: BrokerRules
    request: BuildRequest
    options: BuildOptions
    sizes: DerivedSizes
    dispatching: EntrySelector
    """Selects the requested entries."""
    index_shape: tuple[int, int]
    """Slots and entries of an index file."""
    removed: RemovedTopics = RemovedTopics()  # noqa: RUF009 - it is frozen

    @classmethod
    def of(cls, store: Store, rules: BrokerRules, request: BuildRequest, options: BuildOptions) -> Self:
        """Look at a store, once for whoever builds a part.

        Raises:
            UnknownSizeError: the size of a file that is to be written is not known.
        """
        settings = dispatch_settings(store, rules, options)
        has_records = any(may_hold_data(store.view.open, segment.path) for segment in store.commitlog)
        dispatching = EntrySelector(settings, request.queue is not None, request.index)
        sizes = sizes_of(store, options, settings, demands=has_records and request.queue is not None)
        index_shape = index_shape_of(store, demands=has_records and request.index)
        removed = RemovedTopics.of(store, options.restored, request.topics)
        return cls(store, rules, request, options, sizes, dispatching, index_shape, removed)

    @cached_property
    def queue_filter(self) -> Callable[[str, int], bool] | None:
        """Filter for the queues to read: the requested ones, and all others of their topics.

        These tell where a topic begins again; once that is known, the wanted ones are enough.
        """
        is_wanted, topics = self.request.queue, self.request.topics
        if is_wanted is None or not topics or self.removed.again:
            return is_wanted
        return lambda topic, queue_id: topic in topics or is_wanted(topic, queue_id)


class QueueIndexBuilder:
    """Some queues of a store, and its index, that are being written."""

    def __init__(
        self,
        setup: BuildContext,
        sink: DirectorySink,
        log: RecordOffsets,
        wants: Callable[[str, int], bool] | None,
        index: IndexWriter | None = None,
    ) -> None:
        """`wants` tells which queues; None writes the index only."""
        self._directory, self._sink = sink, TrackingSink(sink)
        self._wants, self._is_wanted = wants, setup.request.queue
        self._log, self._removed = log, setup.removed
        self._kept = KeptUnits(setup.store, setup.rules, setup.request.log_end)
        self.heads = QueuePrefixes(
            setup.store, setup.sizes, setup.store.log_start, is_window=bool(setup.request.earlier)
        )
        self.writer = DerivedWriter(
            self._sink,
            setup.sizes,
            setup.dispatching.settings,
            index,
            partial(self.heads.ends, self._sink),
            with_queues=wants is not None,
            wants=wants,
            make_queue=self._make_queue,
            make_batch=self._make_batch,
        )

    def _make_batch(self, sink: FileSink, directory: str, file_size: int, end: QueueEnd) -> NewestBatchQueueWriter:
        removed_before = self._removed.end(directory.split("/")[1])
        return NewestBatchQueueWriter(sink, directory, file_size, end, kept=self._kept, removed_before=removed_before)

    def _make_queue(
        self, _sink: FileSink, directory: str, file_size: int, rules: BrokerRules, end: QueueEnd
    ) -> GapPreservingQueueWriter:
        removed_before = self._removed.end(directory.split("/")[1])
        return GapPreservingQueueWriter(
            self._directory, directory, file_size, rules, end,
            log=self._log, kept=self._kept, removed_before=removed_before,
        )  # fmt: skip

    def finish(self) -> BuiltQueues:
        """Write the rest, and queues of which the log has no record any more."""
        self.writer.finish(clean=True)
        is_wanted = self._is_wanted or (lambda _topic, _queue_id: False)
        if self._wants is not None:
            wants = self._wants
            self.heads.keep_others(
                self._sink, lambda topic, queue_id: wants(topic, queue_id) and is_wanted(topic, queue_id)
            )
        built = BuiltQueues(refused=tuple(sorted(self.writer.refused.values())))
        for topic, queue_id, queue in self.writer.queues():
            if isinstance(queue, GapPreservingQueueWriter):
                queue.finish()
            if isinstance(queue, GapPreservingQueueWriter | NewestBatchQueueWriter):
                built.generations.setdefault(topic, Generations()).add(queue.generations)
            if not is_wanted(topic, queue_id):
                continue
            if isinstance(queue, GapPreservingQueueWriter):
                built.gap_units += queue.gap_units
                if queue.misplaced:
                    built.displaced[f"{topic}/{queue_id}"] = queue.misplaced
                for start, time_ms in queue.file_times_ms.items():
                    built.file_times_ms[f"{QUEUES}/{topic}/{queue_id}/{segment_name(start)}"] = time_ms
            if isinstance(queue, GapPreservingQueueWriter | NewestBatchQueueWriter):
                built.superseded += queue.superseded
            built.repeated += queue.ignored
        return built


# What existing queues have before the log's first record, which a build from the log keeps and continues.


Units = NDArray[Any]
Key = tuple[str, int, bool]
"""Topic, queue id, whether it is a batch queue."""


@dataclass(frozen=True)
class _Reach:
    """Extent of a queue below a window: its next queue offset, and the target of its last unit (-1 without)."""

    queue_offset: int = 0
    physical_offset: int = -1
    is_broken: bool = False


@dataclass(frozen=True)
class QueuePrefixes:
    """Copies the starts of queues into the build.

    Attributes:
        minimum: physical offset at which the log begins.
        is_window: whether it continues below that.
    """

    store: Store
    sizes: DerivedSizes
    minimum: int
    is_window: bool
    reached: dict[Key, _Reach] = field(default_factory=dict)

    def ends(self, sink: FileSink, topic: str, queue_id: int, is_batch: bool) -> QueueEnds:
        """Where a queue continues after its start, which is copied."""
        self.reached[topic, queue_id, is_batch] = _Reach()
        queues = self.store.batch_queues if is_batch else self.store.queues
        queue = queues.get((topic, queue_id))
        if queue is None or self.minimum == 0:
            return QueueEnds(QueueEnd())
        return QueueEnds(self._copied(sink, queue, is_batch=is_batch))

    def keep_others(self, sink: FileSink, wants: Callable[[str, int], bool]) -> None:
        """Queues of which the log has no record any more keep their units, and with them their next queue offset."""
        if self.minimum == 0:
            return
        for is_batch, queues in ((False, self.store.queues), (True, self.store.batch_queues)):
            for (topic, queue_id), queue in queues.items():
                if (topic, queue_id, is_batch) not in self.reached and wants(topic, queue_id):
                    self._copied(sink, queue, is_batch=is_batch)

    def needs(self, writer: DerivedWriter) -> int | None:
        """Physical offset from which on the log must be known, for a queue does not reach up to its first record here.

        None where all do; 0 where nothing tells it.
        """
        needed_offsets: list[int] = []
        first = {
            (topic, queue_id, isinstance(queue, BatchQueueWriter)): queue.first_queue_offset
            for topic, queue_id, queue in writer.queues()
        }
        for key, reach in self.reached.items():
            begins = first.get(key)
            if reach.is_broken or (begins is not None and begins > reach.queue_offset):
                needed_offsets.append(max(0, reach.physical_offset))
        return min(needed_offsets, default=None)

    def _copied(self, sink: FileSink, queue: QueueFiles, *, is_batch: bool) -> QueueEnd:
        """Copy the units that point below the log, and return their end. Filler alone is left out."""
        size = self.sizes.batch if is_batch else self.sizes.queue
        end, last, copied, is_known = QueueEnd(), None, list[str](), self.is_window
        # Units of a file whose name is no multiple of the size have no known queue offset.
        segments = [segment for segment in queue.segments if size and segment.start % size == 0]
        for segment in segments:
            if end.last_start is not None and segment.start != end.last_start + size:
                break  # files are missing in between: what is before the gap is no use
            units = self._units(segment, size, is_batch=is_batch)
            rest = np.flatnonzero(~self._is_below(units))
            head = units[: int(rest[0])] if rest.size else units
            if not head.size:
                break
            is_known |= self._without_filler(head, is_batch=is_batch)
            path = f"{queue.directory}/{segment_name(segment.start)}"
            sink.create(path, size)
            sink.write_at(path, 0, head.tobytes())
            copied.append(path)
            end, last = QueueEnd(segment.start, segment.start + head.nbytes), head[-1]
            if head.nbytes < size:
                break
        if self.is_window:
            self.reached[queue.topic, queue.queue_id, is_batch] = self._reach(segments, end, last, is_batch=is_batch)
        if is_known:
            return end
        for path in copied:
            sink.remove(path)
        return QueueEnd()

    def _units(self, segment: Segment, size: int, *, is_batch: bool) -> Units:
        form = unit_format(is_batch=is_batch).dtype
        with closing(self.store.view.open(segment.path)) as source:
            raw = read_range(source, 0, min(size, segment.size) // form.itemsize * form.itemsize)
        return np.frombuffer(raw, form).copy()

    def _is_below(self, units: Units, least: int = 0) -> Units:
        """The units that are valid and point into [least, start of the log)."""
        offsets = units["physical_offset"]
        return np.asarray((offsets >= least) & (offsets < self.minimum) & (units["record_size"] > 0))

    def _without_filler(self, head: Units, *, is_batch: bool) -> bool:
        """Give filler the form of an expired message's unit, but not in a window; True if there is anything else."""
        if is_batch or self.is_window:
            return bool(head.size)
        filler = head == np.array([FILLER_UNIT], UNIT.dtype)
        head[filler] = (self.minimum - DEAD_BEFORE, DEAD_SIZE, 0)
        return not filler.all()

    def _reach(self, segments: Sequence[Segment], end: QueueEnd, last: Any, *, is_batch: bool) -> _Reach:
        """Extent of a queue with these files whose start ends there, with this unit."""
        size = self.sizes.batch if is_batch else self.sizes.queue
        unit_size = BATCH_UNIT_SIZE if is_batch else UNIT_SIZE
        pointed = int(last["physical_offset"]) if last is not None else -1
        behind = end.end // unit_size
        for segment in segments:
            # A unit after the start, yet for a record below the window: between them some are missing.
            units = self._units(segment, size, is_batch=is_batch)
            units = units[max(0, behind - segment.start // unit_size) :]
            if self._is_below(units, pointed + 1).any():
                return _Reach(0, pointed, is_broken=True)
        if is_batch:
            behind = int(last["base_queue_offset"]) + int(last["batch_size"]) if last is not None else 0
        elif last is None and segments:
            behind = segments[0].start // unit_size
        return _Reach(behind, pointed)


@dataclass
class IndexPrefix:
    """The first index file of a window, copied up to it.

    Attributes:
        file: the copy, to be continued; None where the index has no entry for a record below the window.
        count: entries that were copied.
        stored_count: entries that the file says it has.
        first, last: physical offsets that the first and the last copied entry point to.
        is_newest: whether the index has nothing after what was copied.
        is_broken: whether entries for records below the window stand after others.
    """

    file: OpenIndexFile | None = None
    count: int = 0
    stored_count: int = 0
    first: int = 0
    last: int = 0
    is_newest: bool = False
    is_broken: bool = False

    def needs(self, writer: IndexWriter) -> int | None:
        """Physical offset to which a window must reach for the index to be made right; None where this one does.

        Args:
            writer: went on with the copy through the whole window.
        """
        if self.file is None:
            return None
        if self.is_broken:
            return self.first
        if writer.current is self.file and self.file.header.next_entry_number == self.count + 1:
            # The last entry's time stands in the header, and only its record tells it.
            return self.last if self.count != self.stored_count else None
        # Nothing of the window was entered before, so what lies between the last entry and the window may lack too.
        return self.last if self.is_newest else None


def copied_prefix(sink: FileSink, store: Store, begin: int, rules: BrokerRules) -> IndexPrefix:
    """Copy the entries of a window's first index file for records before the window.

    Args:
        begin: physical offset at which the window begins.
    """
    slots, room = store.index_slot_count, store.index_entry_count
    if not store.index_files or not slots or not room:
        return IndexPrefix()
    with closing(store.view.open(store.index_files[0].path)) as source:
        index_file = IndexFile(partial(read_range, source), slots)
        header = index_file.header
        head = IndexPrefix(stored_count=min(header.next_entry_number, room) - 1)
        used = 0
        file = OpenIndexFile(HEAD_PATH, IndexHeader(), np.zeros(slots, np.int32))
        for number, entries in index_file.entries(head.stored_count):
            offsets = entries["physical_offset"].astype(np.int64)
            below = (offsets >= 0) & (offsets < begin)
            is_whole = head.count == number - 1
            copied_count = int(np.argmin(np.append(below, False))) if is_whole else 0
            head.is_broken |= bool(below[copied_count:].any())
            if not copied_count:
                continue
            if number == 1:
                head.first = int(offsets[0])
                sink.create(HEAD_PATH, file_size(slots, room))
            head.last = int(offsets[copied_count - 1])
            used += _copy(sink, file, entries[:copied_count], number)
            head.count += copied_count
    if not head.count:
        return head
    head.is_newest = head.count == head.stored_count and not any(
        other.next_entry_number > 1 for other in index_headers(store.view, store.index_files[1:])
    )
    file.header = IndexHeader(
        header.begin_timestamp_ms,
        header.end_timestamp_ms,
        head.first,
        head.last,
        used if rules.index_counts_used_slots else head.count,
        head.count + 1,
    )
    file.stored_entry_number = head.count + 1
    head.file = file
    return head


def first_entry_offset(store: Store) -> int:
    """Physical offset that the first entry of the first index file points to; 0 where nothing tells."""
    if not store.index_files or not store.index_slot_count:
        return 0
    with closing(store.view.open(store.index_files[0].path)) as source:
        return max(0, IndexFile(partial(read_range, source), store.index_slot_count).entry(1).physical_offset)


def _copy(sink: FileSink, file: OpenIndexFile, entries: NDArray[Any], number: int) -> int:
    """Write entries with chains of their own; return how many found their slot empty."""
    copied = entries.copy()
    hashes, offsets = entries["key_hash"].astype(np.int32), entries["physical_offset"].astype(np.int64)
    raw, newly_used = enter(
        file, number, IndexEntries(hashes, offsets, np.zeros_like(offsets), ends_without=False), (0, 0)
    )
    copied["previous_entry"] = np.frombuffer(raw, ENTRY.dtype)["previous_entry"]
    sink.write_at(file.path, entry_position(number, file.slots.size), copied.tobytes())
    return newly_used
