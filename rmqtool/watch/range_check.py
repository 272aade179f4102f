"""Checks a range of a log that a broker writes to, as `verify` does: records, and the units and entries after them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from rmqtool.engine.dispatch.queue_entries import DispatchSettings
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.findings.finding import Finding, Severity
from rmqtool.formats.queue_name import QueueName, topic_bytes
from rmqtool.scan.log import DISPATCH_BLOCK_SIZE, ScanOptions, carries_record_crc
from rmqtool.scan.split import Split, whole_file
from rmqtool.store.config.config_json import batch_topics, compacted_topics, topics
from rmqtool.store.config.config_kinds import TOPICS
from rmqtool.store.config.read_config import read_configs
from rmqtool.store.directory import Segment, Store
from rmqtool.store.view import Entry
from rmqtool.verify.files.reach import index_findings
from rmqtool.verify.match.missing_units import missing_findings
from rmqtool.verify.match.split_check import check_part
from rmqtool.verify.survey.context import Depth, VerifyContext, VerifyOptions
from rmqtool.verify.survey.result import SplitResult
from rmqtool.watch.index_windows import IndexWindow, index_window
from rmqtool.watch.queue_windows import QueueWindows, TrackedQueues

OF_A_START: Final = "index.would-be-dropped"
"""Findings about a start after a crash, which do not concern a running broker."""


class WatchedRange(NamedTuple):
    """A range of one file of the log, and how far the broker has come.

    Attributes:
        begin: where a record begins.
        end: records that begin before it are checked.
        dispatched_end: after the last record that is in queues and index.
        newest_unit: physical offset of the last record that a unit points to.
        flushed_ms: store time of the last flushed record; None where all are.
    """

    segment: Segment
    begin: int
    end: int
    dispatched_end: int
    newest_unit: int
    flushed_ms: int | None


@dataclass(frozen=True)
class CheckedRange:
    """Result of the check of a range.

    Attributes:
        end: physical offset after what was checked, where a record begins.
        stops: by kind of queue: where the windows end.
    """

    end: int
    findings: tuple[Finding, ...]
    record_count: int
    unit_count: int
    entry_count: int
    stops: tuple[dict[QueueName, int], ...]


class RangeChecker:
    """Checks ranges of one store, one after the other."""

    def __init__(self, rules: BrokerRules) -> None:
        self._rules = rules
        self._seen_bytes = 0
        self._record_crc: tuple[str, bool] | None = None
        self._topics: tuple[Entry | None, frozenset[str], frozenset[str]] | None = None

    def check(
        self,
        store: Store,
        ends: tuple[TrackedQueues, ...],
        watched: WatchedRange,
        files: OpenFiles,
        *,
        with_index: bool,
    ) -> CheckedRange:
        """Check a range.

        Args:
            with_index: compare the index too.

        Raises:
            UnreadableError: the file of the log, or one of the index, cannot be read.
        """
        windows = tuple(QueueWindows(store, kind, watched.begin, watched.end, files) for kind in ends)
        for kind in windows:
            kind.open()
        index = IndexWindow((), 0)
        if with_index:
            index = index_window(store, watched.begin, watched.end, files)
        context = self._context(store, windows, index, watched)
        result = self._scan(store, context, watched)
        findings = [*result.findings, *missing_findings(context, result.missing)]
        if with_index:
            findings += index_findings(replace(context, live_end=None), result, None)
        findings += [finding for kind in windows for finding in kind.findings]
        return CheckedRange(
            max(watched.begin, result.end),
            tuple(one for one in findings if one.severity is not Severity.NOTE and one.id != OF_A_START),
            result.record_count,
            sum(kind.unit_count for kind in windows),
            index.entry_count,
            tuple(kind.stops for kind in windows),
        )

    def _scan(self, store: Store, context: VerifyContext, watched: WatchedRange) -> SplitResult:
        segment = watched.segment
        self._seen_bytes += watched.end - watched.begin
        with closing(store.view.open(segment.path)) as source:
            more_follows = watched.dispatched_end > segment.end
            split = Split(source, watched.begin - segment.start, watched.end - segment.start, segment.start)
            # The first record of a file tells whether the store writes whole-record CRCs.
            if self._record_crc is None or self._record_crc[0] != segment.path:
                whole = whole_file(source, segment.start, more_follows=False)
                self._record_crc = segment.path, carries_record_crc([whole])
            options = ScanOptions(
                record_crc=self._record_crc[1],
                block_size=DISPATCH_BLOCK_SIZE,
                keys_of=self._rules.version if context.crosses else None,
                log_bytes=self._seen_bytes,
            )
            walk = options.walk(replace(split, more_follows=more_follows))
            return check_part(walk, context, segment.path).result

    def _context(
        self, store: Store, windows: tuple[QueueWindows, ...], index: IndexWindow, watched: WatchedRange
    ) -> VerifyContext:
        batch, unchecked = self._topic_kinds(store)
        has_units = watched.newest_unit >= 0
        return VerifyContext(
            store,
            self._rules,
            VerifyOptions(Depth.FULL if has_units else Depth.RECORDS, threads=1, broker_runs=True),
            DispatchSettings(self._rules, batch_topics=frozenset(map(topic_bytes, batch))).with_entered(store),
            queues=windows[0] if has_units else {},
            batch_queues=windows[1] if has_units else {},
            index=index.maps,
            newest_unit=watched.newest_unit,
            dispatched_end=watched.dispatched_end,
            live_end=watched.dispatched_end,
            live_ms=watched.flushed_ms,
            unchecked_topics=frozenset(map(topic_bytes, unchecked)),
        )

    def _topic_kinds(self, store: Store) -> tuple[frozenset[str], frozenset[str]]:
        """Topics with batch queues, and topics whose messages need not have units; read again when the file changes."""
        entry = store.view.stat(TOPICS)
        if self._topics is None or self._topics[0] != entry:
            config = read_configs(store.view, [TOPICS]).get(TOPICS)
            known = {} if config is None else topics(config)
            batch = batch_topics(known, (topic for topic, _ in store.batch_queues))
            self._topics = entry, batch, compacted_topics(known)
        return self._topics[1:]
