"""Builds queues, extensions and index into a directory, and reports what was built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final, Self

from rmqtool.engine.dispatch.derived_writer import QUEUES, DerivedSizes, DerivedWriter, EntrySelector
from rmqtool.engine.dispatch.index_writer import IndexWriter
from rmqtool.engine.dispatch.queue_entries import DispatchSettings
from rmqtool.engine.dispatch.queue_writer import QueueEnd
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnknownSizeError
from rmqtool.formats.consumequeue import BATCH_UNIT_SIZE, DEFAULT_FILE_UNITS, UNIT_SIZE
from rmqtool.formats.index import DEFAULT_ENTRY_COUNT, DEFAULT_SLOT_COUNT
from rmqtool.formats.queue_name import topic_bytes
from rmqtool.repair.derived.gap_queue_writer import GapPreservingQueueWriter, NewestBatchQueueWriter, RecordOffsets
from rmqtool.repair.derived.kept_units import KeptUnits
from rmqtool.repair.derived.queue_prefix import QueuePrefixes
from rmqtool.repair.derived.request import BuildOptions, BuildRequest, RemovedTopics
from rmqtool.repair.derived.result import BuiltQueues, Generations
from rmqtool.scan.log import may_hold_data
from rmqtool.store.config.config_json import TOPICS, batch_topics, topics
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import segment_name
from rmqtool.store.index_slots import shows_entry_count
from rmqtool.store.sink import DirectorySink, FileSink, TrackingSink
from rmqtool.store.sizes import DEFAULT_INDEX_FILE_SIZE

_QUEUE: Final = (
    "consumequeue_file_size",
    "a queue file",
    DEFAULT_FILE_UNITS * UNIT_SIZE,
    "--queue-file-size BYTES or ",
)
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
    """How the store's broker dispatches: topics of batch queues by their configuration, or by the queues themselves."""
    batch = batch_topics(topics(read_config(store.view, TOPICS)), (topic for topic, _ in store.batch_queues))
    settings = DispatchSettings(rules, options.multi_dispatch, options.lmq, frozenset(map(topic_bytes, batch)))
    return settings.with_entered(store)


@dataclass(frozen=True)
class BuildContext:
    """What decides, beside the records, about the files that are built."""

    store: Store
    rules: BrokerRules
    request: BuildRequest
    options: BuildOptions
    sizes: DerivedSizes
    dispatching: EntrySelector
    """What tells the entries that are wanted."""
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
        """Which queues are looked at: those that are wanted, and all others of their topics.

        These tell where a topic begins again; once that is known, the wanted ones are enough.
        """
        is_wanted, topics = self.request.queue, self.request.topics
        if is_wanted is None or not topics or self.removed.again:
            return is_wanted
        return lambda topic, queue_id: topic in topics or is_wanted(topic, queue_id)

    @property
    def log_starts(self) -> tuple[int, ...]:
        """Physical offsets at which files of the log begin."""
        return (*self.request.earlier, *(segment.start for segment in self.store.commitlog))


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
        """Write what is left, and queues of which the log has no record any more.

        Raises:
            UnreadableError: the start of a queue may not be read.
            WriteError: the sink does not take it.
        """
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
