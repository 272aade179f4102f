"""Builds queues, extensions and index anew from the log, into a directory from which a plan takes them whole.

Broker: `DefaultMessageStore#doDispatch` over the whole log. Memory stays bounded: the log is read part by part, by
several threads, and each queue's units go to its file. Where the log's head has expired, what an existing queue has in
front of the log's first record stays: from there its queue offsets are continued.

Where two records claim one place in a queue, the first one in the log keeps it, as in the broker's own dispatch: it is
the one that consumers were given first. The other one is counted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from rmqtool.engine.derived_writer import QUEUES, DerivedSizes, DerivedWriter, Dispatching
from rmqtool.engine.dispatch import DispatchSettings, topic_bytes
from rmqtool.engine.index_writer import IndexWriter
from rmqtool.engine.versions import BrokerRules
from rmqtool.formats.consumequeue import BATCH_UNIT_SIZE, UNIT_SIZE
from rmqtool.formats.index import DEFAULT_ENTRY_COUNT, DEFAULT_SLOT_COUNT
from rmqtool.formats.tags import parse_delay_levels
from rmqtool.repair.index_head import IndexHead, copied_head
from rmqtool.repair.log_reading import PART_BYTES, LogReading, ReadRows
from rmqtool.repair.piece_dispatch import PieceDispatch, rows_of
from rmqtool.repair.queue_building_writer import LogPlaces, PlacedQueueWriter
from rmqtool.repair.queue_heads import QueueHeads
from rmqtool.scan.log import DISPATCH_BLOCK_SIZE, LogFile, LogPlan, ScanOptions, carries_record_crc, plan_log
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.scan.runner import Runner
from rmqtool.store.config_json import TOPICS, read_config, topics
from rmqtool.store.directory import Segment, Store
from rmqtool.store.kinds import segment_name
from rmqtool.store.sink import DirectorySink, FileSink, TrackingSink

TAIL: Final = frozenset({Verdict.TORN_RECORD, Verdict.STALE})
"""What may lie behind the log's end without being damage inside it."""
TAIL_FINDINGS: Final = frozenset(FINDING_IDS[verdict] for verdict in TAIL)
DEFAULT_UNITS: Final = 300_000
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class BuildOptions:
    """What the store's files do not say.

    Attributes:
        delays_ms: of the broker's delay levels.
        multi_dispatch, lmq: the broker's `enableMultiDispatch` and `enableLmq`.
        extension: whether queues have extensions; None looks at the store.
        compiled: which reader scans; None leaves it to the size of the log.
        threads: that read the log; whatever their number, the same is built.
        part_bytes: of a file of the log that a thread reads at a time.
        shows_tombstones: leave the units of tombstones as any others, for consumers to see that messages are lost.
    """

    delays_ms: tuple[int, ...] = field(default_factory=parse_delay_levels)
    multi_dispatch: bool = True
    lmq: bool = True
    extension: bool | None = None
    compiled: bool | None = None
    threads: int = 2
    part_bytes: int = PART_BYTES
    shows_tombstones: bool = False


@dataclass(frozen=True)
class Wanted:
    """What is to be built.

    Attributes:
        queue: tells by (topic, queue id) which queues; None builds no queue at all.
        log_end: records from here on do not count; None reads to the end of the log.
        earlier: where files of the log begin that lie in front of the store's, if it is a window of a larger one: what
            queues and index have there stays as it is, and must reach up to the first record here.
    """

    queue: Callable[[str, int], bool] | None
    index: bool
    log_end: int | None = None
    earlier: tuple[int, ...] = ()


@dataclass
class Built:
    """What came of it; files are below `directory`, with the paths that they have in the store.

    Attributes:
        log_end: physical offset behind the last record that was read.
        last_record: physical offset and store time of that record; None without one.
        newest_ms: the latest store time of all.
        bad: where a scan met something that is no record: (physical offset, length, finding).
        repeated: records that found their place in a queue taken.
        gap_units: units in the place of messages that the log does not have.
        displaced: records at another queue offset than they say, by queue.
        file_times_ms: store time of the last record in a queue file, by path.
        refused: why a queue is not written, as sentences.
        needs: of a window, physical offset to which it would have to reach: what a queue or the index has below it
            does not reach up to it. None where nothing is missing.
    """

    directory: Path
    log_end: int = 0
    last_record: tuple[int, int] | None = None
    newest_ms: int = 0
    bad: tuple[int, int, str] | None = None
    record_count: int = 0
    repeated: int = 0
    gap_units: int = 0
    displaced: dict[str, int] = field(default_factory=dict)
    file_times_ms: dict[str, int] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    needs: int | None = None


def build(
    store: Store,
    rules: BrokerRules,
    wanted: Wanted,
    directory: Path,
    options: BuildOptions | None = None,
    on_progress: OnProgress | None = None,
    runner: Runner | None = None,
) -> Built:
    """Build into a directory, which must exist and be empty. The store is read only.

    Args:
        runner: what reads and dispatches the files of the log; None: threads of this process.

    Raises:
        UnreadableError: a file of the log, or the head of a queue, may not be read.
        WriteError: the directory does not take it.
    """
    return _Build(store, rules, wanted, directory, options or BuildOptions(), on_progress, runner).run()


def sizes_of(store: Store, options: BuildOptions) -> DerivedSizes:
    """Sizes of the derived files: those that are there tell, else the broker's defaults."""
    extension = options.extension if options.extension is not None else bool(store.extensions)
    return DerivedSizes(
        store.consumequeue_file_size or DEFAULT_UNITS * UNIT_SIZE,
        (store.batch_file_size or DEFAULT_UNITS * BATCH_UNIT_SIZE) // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE,
        (store.extension_file_size or 48 << 20) if extension else None,
    )


def dispatch_settings(store: Store, rules: BrokerRules, options: BuildOptions) -> DispatchSettings:
    """How the store's broker dispatches: topics of batch queues by their configuration, or by the queues themselves."""
    known = topics(read_config(store.view, TOPICS)).values()
    batch = {topic.name for topic in known if topic.queue_type == "BatchCQ"} | {name for name, _ in store.batch_queues}
    return DispatchSettings(
        rules,
        options.multi_dispatch,
        options.lmq,
        frozenset(map(topic_bytes, batch)),
    )


class _Build:
    """One run; see `build`."""

    def __init__(
        self,
        store: Store,
        rules: BrokerRules,
        wanted: Wanted,
        directory: Path,
        options: BuildOptions,
        on_progress: OnProgress | None,
        runner: Runner | None,
    ) -> None:
        self._store, self._rules, self._wanted, self._options = store, rules, wanted, options
        self._on_progress, self._runner = on_progress, runner
        self._built = Built(directory, store.commitlog[0].start if store.commitlog else 0)
        self._sizes = sizes_of(store, options)
        self._log = LogPlaces([*wanted.earlier, *(segment.start for segment in store.commitlog)])
        self._minimum = self._built.log_end
        self._heads = QueueHeads(store, self._sizes, self._minimum, is_window=bool(wanted.earlier))
        self._index_head = IndexHead()
        self._first_ms = 0

    def run(self) -> Built:
        if self._wanted.queue is None and not self._wanted.index:
            self._look_at_end()
            return self._built
        with DirectorySink(self._built.directory) as target:
            sink = TrackingSink(target)
            writer = DerivedWriter(
                sink,
                self._sizes,
                dispatch_settings(self._store, self._rules, self._options),
                self._index(sink) if self._wanted.index else None,
                partial(self._heads.ends, sink),
                with_queues=self._wanted.queue is not None,
                wants=self._wanted.queue,
                make_queue=partial(PlacedQueueWriter, log=self._log),
            )
            for found in self._read(self._store.commitlog, writer.dispatching):
                assert found.entries is not None
                writer.put_entries(found.entries)
            writer.finish(clean=True)
            if self._wanted.queue is not None:
                self._heads.keep_others(sink, self._wanted.queue)
        self._sum_up(writer)
        return self._built

    def _look_at_end(self) -> None:
        """Nothing is written, so only the last record has to be known: files are read from the last one on."""
        segments, count = self._store.commitlog, 1
        while self._built.last_record is None:
            for _ in self._read(segments[-count:]):
                pass
            if count >= len(segments):
                return
            count *= 2

    def _read(self, segments: Sequence[Segment], dispatching: Dispatching | None = None) -> Iterator[ReadRows]:
        """Rows up to the first thing that is no record, or to the wanted end; what is built notes them."""
        plan = plan_log([LogFile(partial(self._store.view.open, found.path), found.start) for found in segments])
        options = ScanOptions(
            self._options.delays_ms, carries_record_crc(plan.pieces), self._options.compiled, DISPATCH_BLOCK_SIZE
        )
        if self._runner is None or dispatching is None:
            rows = self._read_here(plan, options, dispatching)
        else:
            rows = self._read_by(self._runner, plan, options, dispatching)
        done = 0
        try:
            for found in rows:
                self._note(found)
                yield found
                done += found.size
                if self._on_progress is not None:
                    self._on_progress(done, plan.data_bytes)
        finally:
            plan.close()

    def _read_here(self, plan: LogPlan, options: ScanOptions, dispatching: Dispatching | None) -> Iterator[ReadRows]:
        reading = LogReading(
            plan, options, self._wanted.log_end, dispatching, self._options.threads, self._options.part_bytes
        )
        yield from reading.rows()
        self._built.bad = reading.bad

    def _read_by(
        self, runner: Runner, plan: LogPlan, options: ScanOptions, dispatching: Dispatching
    ) -> Iterator[ReadRows]:
        limit = self._wanted.log_end
        pieces = [piece for piece in plan.pieces if limit is None or piece.physical_offset < limit]
        with tempfile.TemporaryDirectory(prefix=".pieces-", dir=self._built.directory) as folder:
            work = PieceDispatch(dispatching, options, plan.data_bytes, limit, Path(folder).absolute())
            for done in runner.map(work, pieces):
                yield from rows_of(done)
                self._built.bad = done.bad
                if done.bad is not None:
                    return

    def _note(self, found: ReadRows) -> None:
        built = self._built
        built.log_end = found.log_end
        if found.last_record is None:
            return
        built.record_count += found.record_count
        built.last_record = found.last_record
        built.newest_ms = max(built.newest_ms, found.newest_ms)
        if not self._options.shows_tombstones:
            self._log.tombstones.update(found.tombstones)
        self._first_ms = self._first_ms or found.first_ms

    def _index(self, sink: FileSink) -> IndexWriter:
        if self._wanted.earlier:
            self._index_head = copied_head(sink, self._store, self._minimum, self._rules)
        slots = self._store.index_slot_count or DEFAULT_SLOT_COUNT
        entries = self._store.index_entry_count or DEFAULT_ENTRY_COUNT
        # Named by the log's time, not by the clock: the same log gives the same files.
        writer = IndexWriter(sink, slots, entries, self._rules, lambda: self._name_ms(writer), self._index_head.file)
        return writer

    def _name_ms(self, writer: IndexWriter) -> int:
        """Time in the name of a new index file: that up to which the file before reaches."""
        return writer.current.header.end_timestamp_ms if writer.current is not None else self._first_ms

    def _sum_up(self, writer: DerivedWriter) -> None:
        built = self._built
        for topic, queue_id, queue in writer.queues():
            built.repeated += queue.ignored
            if isinstance(queue, PlacedQueueWriter):
                built.gap_units += queue.gap_units
                if queue.misplaced:
                    built.displaced[f"{topic}/{queue_id}"] = queue.misplaced
                for start, time_ms in queue.file_times_ms.items():
                    built.file_times_ms[f"{QUEUES}/{topic}/{queue_id}/{segment_name(start)}"] = time_ms
        built.refused = tuple(sorted(writer.refused.values()))
        needs = [self._heads.needs(writer)] if self._wanted.earlier else []
        if writer.index is not None:
            needs.append(self._index_head.needs(writer.index))
        built.needs = min((found for found in needs if found is not None), default=None)
