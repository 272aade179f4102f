"""Builds queues, extensions and index anew from the log, into a directory from which a plan takes them whole.

Broker: `DefaultMessageStore#doDispatch` over the whole log. Memory stays bounded: the log is read part by part, by
several threads, and each queue's units go to its file. Where the log's head has expired, what an existing queue has in
front of the log's first record stays: from there its queue offsets are continued.

Where two records claim one place in a queue, the first one in the log keeps it, as in the broker's own dispatch: it is
the one that consumers were given first. The other one is counted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from rmqtool.engine.dispatch.derived_writer import EntrySelector
from rmqtool.engine.dispatch.index_writer import IndexWriter
from rmqtool.engine.rules.versions import BrokerRules
from rmqtool.repair.build.builder import BuildContext, QueueIndexBuilder
from rmqtool.repair.build.gap_queue_writer import RecordOffsets
from rmqtool.repair.build.index_prefix import IndexPrefix, copied_prefix
from rmqtool.repair.build.log_pass import LogReading, ReadRows
from rmqtool.repair.build.parallel import build_in_parallel
from rmqtool.repair.build.request import BuildOptions, BuildRequest, BuildResult
from rmqtool.repair.build.segment_dispatch import DispatchResult, DispatchTask
from rmqtool.scan.log import DISPATCH_BLOCK_SIZE, LogFile, LogPlan, ScanOptions, carries_record_crc, plan_log
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.scan.runner import OnProgress, Runner
from rmqtool.store.directory import Segment, Store
from rmqtool.store.sink import DirectorySink, FileSink

TAIL: Final = frozenset({Verdict.TORN_RECORD, Verdict.STALE})
"""What may lie behind the log's end without being damage inside it."""
TAIL_FINDINGS: Final = frozenset(FINDING_IDS[verdict] for verdict in TAIL)


def build(
    store: Store,
    rules: BrokerRules,
    wanted: BuildRequest,
    directory: Path,
    options: BuildOptions | None = None,
    on_progress: OnProgress | None = None,
    runner: Runner | None = None,
) -> BuildResult:
    """Build into a directory, which must exist and be empty. The store is read only.

    Args:
        runner: what reads the files of the log, and writes those of queues and index; None: threads of this process.
            Not for a window of a log.

    Raises:
        UnreadableError: a file of the log, or the head of a queue, may not be read.
        WriteError: the directory does not take it.
    """
    found = _Build(BuildContext.of(store, rules, wanted, options or BuildOptions()), directory, on_progress)
    if wanted.queue is None and not wanted.index:
        found.look_at_end()
    elif runner is None:
        found.run()
    else:
        found.run_spread(runner)
    return found.built


class _Build:
    """One run; see `build`."""

    def __init__(self, setup: BuildContext, directory: Path, on_progress: OnProgress | None) -> None:
        self._setup = setup
        self._on_progress = on_progress
        self._log = RecordOffsets(setup.log_starts)
        self._index_head = IndexPrefix()
        self._first_ms: int | None = None
        self.built = BuildResult(directory=directory, log_end=setup.minimum)

    def run(self) -> None:
        """Build in this process."""
        wanted = self._setup.wanted
        with DirectorySink(self.built.directory) as sink:
            index = self._index(sink) if wanted.index else None
            building = QueueIndexBuilder(self._setup, sink, self._log, wanted.queue, index)
            for found in self._read(self._setup.store.commitlog, self._setup.dispatching):
                assert found.entries is not None
                building.put(found.entries)
            self.built.add(building.finish())
        if wanted.earlier:
            needs = [building.heads.needs(building.writer), self._index_head.needs(index) if index else None]
            self.built.needs = min((found for found in needs if found is not None), default=None)

    def run_spread(self, runner: Runner) -> None:
        """Build with a runner: it reads the log, file by file, and then writes queues and index, share by share."""
        assert not self._setup.wanted.earlier, "what reaches below a window is told in one process only"
        limit = self._setup.wanted.log_end
        with (
            self._plan(self._setup.store.commitlog) as (plan, options),
            # A task that nobody waits for any more may still write.
            tempfile.TemporaryDirectory(
                prefix=".pieces-", dir=self.built.directory, ignore_cleanup_errors=True
            ) as name,
        ):
            folder = Path(name).absolute()
            pieces = [piece for piece in plan.pieces if limit is None or piece.physical_offset < limit]
            work = DispatchTask(self._setup, options, plan.data_bytes, folder)
            dispatched = tuple(self._up_to_damage(runner.map(work, pieces), plan))
            size = sum(found.byte_count for found in dispatched)

            def tell(done: int, count: int) -> None:
                self._tell(plan.data_bytes + size * done // count, plan.data_bytes + size)

            directory = self.built.directory
            self.built.add(build_in_parallel(self._setup, directory, dispatched, self._log, runner, folder, tell))

    def look_at_end(self) -> None:
        """Nothing is written, so only the last record has to be known: files are read from the last one on."""
        segments, count = self._setup.store.commitlog, 1
        while self.built.last_record is None:
            for _ in self._read(segments[-count:]):
                pass
            if count >= len(segments):
                return
            count *= 2

    @contextmanager
    def _plan(self, segments: Sequence[Segment]) -> Iterator[tuple[LogPlan, ScanOptions]]:
        open_file = self._setup.store.view.open
        plan = plan_log([LogFile(partial(open_file, found.path), found.start) for found in segments])
        options = self._setup.options
        try:
            yield (
                plan,
                ScanOptions(options.delays_ms, carries_record_crc(plan.pieces), options.compiled, DISPATCH_BLOCK_SIZE),
            )
        finally:
            plan.close()

    def _read(self, segments: Sequence[Segment], dispatching: EntrySelector | None = None) -> Iterator[ReadRows]:
        """Rows up to the first thing that is no record, or to the wanted end; what is built notes them."""
        with self._plan(segments) as (plan, scan):
            options = self._setup.options
            reading = LogReading(
                plan, scan, self._setup.wanted.log_end, dispatching, options.threads, options.part_bytes
            )
            done = 0
            for found in reading.rows():
                self._note(found)
                yield found
                done += found.size
                self._tell(done, plan.data_bytes)
            self.built.bad = reading.bad

    def _up_to_damage(self, dispatched: Iterable[DispatchResult], plan: LogPlan) -> Iterator[DispatchResult]:
        """Pieces up to the one with the first thing that is no record; what is built notes them."""
        done, limit = 0, self._setup.wanted.log_end
        for found in dispatched:
            if found.read is not None:
                self._note(found.read)
                done += found.read.size
                self._tell(done, plan.data_bytes)
            yield found
            self.built.bad = found.bad
            if found.bad is not None or (limit is not None and self.built.log_end >= limit):
                return

    def _tell(self, done: int, total: int) -> None:
        if self._on_progress is not None:
            self._on_progress(done, total)

    def _note(self, found: ReadRows) -> None:
        built = self.built
        built.log_end = found.log_end
        if self._first_ms is None:
            self._first_ms = found.first_ms
        if found.last_record is None:
            return
        built.record_count += found.record_count
        built.last_record = found.last_record
        built.newest_ms = max(built.newest_ms, found.newest_ms)
        if not self._setup.options.shows_tombstones:
            self._log.tombstones.update(found.tombstones)

    def _index(self, sink: FileSink) -> IndexWriter:
        setup = self._setup
        if setup.wanted.earlier:
            self._index_head = copied_prefix(sink, setup.store, setup.minimum, setup.rules)
        # Named by the log's time, not by the clock: the same log gives the same files.
        writer = IndexWriter(
            sink, *setup.index_shape, setup.rules, lambda: self._name_ms(writer), self._index_head.file
        )
        return writer

    def _name_ms(self, writer: IndexWriter) -> int:
        """Time in the name of a new index file: that up to which the file before reaches."""
        return writer.current.header.end_timestamp_ms if writer.current is not None else self._first_ms or 0
