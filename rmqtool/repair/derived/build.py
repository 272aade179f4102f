"""Builds queues, extensions and index again from the log, into a directory from which a plan takes them whole.

Broker: `DefaultMessageStore#doDispatch` over the whole log. Memory stays bounded: the log is read part by part, by
several threads, and each queue's units go to its file. Where the start of the log has expired, what an existing queue
has before the log's first record stays: from there its queue offsets are continued.

Where a queue begins again, its topic was deleted and made again: what the log has of the topic before that was removed,
and stays out of all its queues, but for what these have a unit for.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rmqtool.engine.dispatch.derived_writer import EntrySelector
from rmqtool.engine.dispatch.index_writer import IndexWriter
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.repair.derived.builder import BuildContext, IndexPrefix, QueueIndexBuilder, copied_prefix
from rmqtool.repair.derived.gap_queue_writer import RecordOffsets
from rmqtool.repair.derived.log_pass import LogReading, ReadRows
from rmqtool.repair.derived.parallel import DispatchResult, DispatchTask, build_in_parallel
from rmqtool.repair.derived.result import BuildOptions, BuildRequest, BuildResult, Generations
from rmqtool.scan.log import DISPATCH_BLOCK_SIZE, RecordTable, ScanOptions, open_log
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.scan.runner import OnProgress, Runner
from rmqtool.store.directory import Segment, Store
from rmqtool.store.sink import DirectorySink, FileSink

TAIL: Final = frozenset({Verdict.TORN_RECORD, Verdict.STALE})
"""Verdicts that may follow the end of the commit log without being damage inside it."""
TAIL_FINDINGS: Final = frozenset(FINDING_IDS[verdict] for verdict in TAIL)


def build(
    store: Store,
    rules: BrokerRules,
    request: BuildRequest,
    directory: Path,
    options: BuildOptions | None = None,
    on_progress: OnProgress | None = None,
    runner: Runner | None = None,
) -> BuildResult:
    """Build into a directory, which must exist and be empty. The store is read only.

    Args:
        runner: what reads the files of the log, and writes those of queues and index; None: threads of this process.
            Not for a window of a log.
    """
    setup = BuildContext.of(store, rules, request, options or BuildOptions())
    on_progress = on_progress or (lambda _done, _total: None)
    builder = _Build(setup, directory, on_progress)
    if request.queue is None and not request.index:
        builder.look_at_end()
        return builder.built
    builder.run(runner)
    if again := builder.built.again:
        # Of the same topics other queues may have records that were removed with those before: known only now.
        for path in directory.iterdir():
            shutil.rmtree(path)
        removed = replace(setup.removed, again=again)
        builder = _Build(replace(setup, removed=removed), directory, on_progress)
        builder.run(runner)
        builder.built.generations = {topic: Generations(begin) for topic, begin in again.items()}
    return builder.built


class _Build:
    def __init__(self, setup: BuildContext, directory: Path, on_progress: OnProgress) -> None:
        self._setup = setup
        self._on_progress = on_progress
        self._log = RecordOffsets((*setup.request.earlier, *(segment.start for segment in setup.store.commitlog)))
        self._index_head = IndexPrefix()
        self._first_ms: int | None = None
        self.built = BuildResult(
            store=setup.store,
            request=setup.request,
            directory=directory,
            with_extensions=setup.sizes.extension is not None,
            log_end=setup.store.log_start,
        )

    def run(self, runner: Runner | None) -> None:
        if runner is not None:
            self._run_spread(runner)
            return
        request = self._setup.request
        with DirectorySink(self.built.directory) as sink:
            index = self._index(sink) if request.index else None
            building = QueueIndexBuilder(self._setup, sink, self._log, self._setup.queue_filter, index)
            for read_rows in self._read(self._setup.store.commitlog, self._setup.dispatching):
                assert read_rows.entries is not None
                building.writer.put_entries(read_rows.entries)
            self.built.add(building.finish())
        if request.earlier:
            needs = [building.heads.needs(building.writer), self._index_head.needs(index) if index else None]
            self.built.needs = min((offset for offset in needs if offset is not None), default=None)

    def _run_spread(self, runner: Runner) -> None:
        """Build with a runner: it reads the log, file by file, and then writes queues and index, share by share."""
        assert not self._setup.request.earlier, "what reaches below a window is told in one process only"
        limit = self._setup.request.log_end
        with (
            self._log_table(self._setup.store.commitlog) as table,
            # A task that nobody waits for any more may still write.
            tempfile.TemporaryDirectory(
                prefix=".pieces-", dir=self.built.directory, ignore_cleanup_errors=True
            ) as name,
        ):
            folder = Path(name).absolute()
            splits = [split for split in table.splits if limit is None or split.physical_offset < limit]
            work = DispatchTask(self._setup, table.scan, folder)
            dispatched = tuple(self._up_to_damage(runner.map(work, splits), table))
            log_bytes, size = table.scan.log_bytes, sum(dispatch_result.byte_count for dispatch_result in dispatched)

            def tell(done: int, count: int) -> None:
                self._on_progress(log_bytes + size * done // count, log_bytes + size)

            directory = self.built.directory
            self.built.add(build_in_parallel(self._setup, directory, dispatched, self._log, runner, folder, tell))

    def look_at_end(self) -> None:
        """Find only the last record, as nothing is written: files are read from the last one on."""
        segments, count = self._setup.store.commitlog, 1
        while self.built.last_record is None:
            for _ in self._read(segments[-count:]):
                pass
            if count >= len(segments):
                return
            count *= 2

    def _log_table(self, segments: Sequence[Segment]) -> RecordTable:
        options = self._setup.options
        scan = ScanOptions(
            options.delays_ms,
            compiled=options.compiled,
            block_size=DISPATCH_BLOCK_SIZE,
            cache=options.cache,
            columns_only=True,
            keys_of=self._setup.rules.version if self._setup.request.index else None,
        )
        return open_log(self._setup.store.view.open, segments, scan, finds_crc=True)

    def _read(self, segments: Sequence[Segment], dispatching: EntrySelector | None = None) -> Iterator[ReadRows]:
        """Rows up to the first range that is not a record, or to the requested end; the build's result records them."""
        with self._log_table(segments) as table:
            options = self._setup.options
            limit = self._setup.request.log_end
            reading = LogReading(table, limit, dispatching, options.threads, options.part_bytes, options.keeps_keys)
            done = 0
            for read_rows in reading.rows():
                self._note(read_rows)
                yield read_rows
                done += read_rows.size
                self._on_progress(done, table.scan.log_bytes)
            self.built.bad = reading.bad

    def _up_to_damage(self, dispatched: Iterable[DispatchResult], table: RecordTable) -> Iterator[DispatchResult]:
        """Splits up to the one with the first range that is not a record; the build's result records them."""
        done, limit = 0, self._setup.request.log_end
        for dispatch_result in dispatched:
            if dispatch_result.read is not None:
                self._note(dispatch_result.read)
                done += dispatch_result.read.size
                self._on_progress(done, table.scan.log_bytes)
            yield dispatch_result
            self.built.bad = dispatch_result.bad
            if dispatch_result.bad is not None or (limit is not None and self.built.log_end >= limit):
                return

    def _note(self, read_rows: ReadRows) -> None:
        built = self.built
        built.log_end = read_rows.log_end
        if self._first_ms is None:
            self._first_ms = read_rows.first_ms
        if read_rows.last_record is None:
            return
        built.record_count += read_rows.record_count
        built.last_record = read_rows.last_record
        built.newest_ms = max(built.newest_ms, read_rows.newest_ms)
        if not self._setup.options.shows_tombstones:
            self._log.tombstones.update(read_rows.tombstones)

    def _index(self, sink: FileSink) -> IndexWriter:
        setup = self._setup
        if setup.request.earlier:
            self._index_head = copied_prefix(sink, setup.store, setup.store.log_start, setup.rules)
        # Named by the log's time, not by the clock: the same log gives the same files.
        writer = IndexWriter(
            sink,
            *setup.index_shape,
            setup.rules,
            lambda: writer.current.header.end_timestamp_ms if writer.current is not None else self._first_ms or 0,
            self._index_head.file,
            passes_over_times=True,
        )
        return writer
