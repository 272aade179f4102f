"""Watches a store: each look checks records flushed and dispatched since the last one, and measures lags.

A range of the log counts as checked once its records, their units and their index entries agree. What does not is
looked at again some seconds later, and reported if it is still so. Beside a running broker the end of the log is what
queues and checkpoint vouch for: what is not dispatched, or not flushed, is not judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from rmqtool.engine.queues.unit import BATCH_UNITS, PLAIN_UNITS
from rmqtool.engine.reading.log_end import LogEnd, find_log_end
from rmqtool.engine.reading.record import read_record
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.log_position import Position, mark_of, what_is_lost
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError
from rmqtool.findings.account import Account
from rmqtool.findings.finding import MISSING_LOG_FILE, Finding
from rmqtool.formats.checkpoint import Checkpoint
from rmqtool.store.checkpoint_file import read_checkpoint
from rmqtool.store.directory import Store, with_settings
from rmqtool.store.dledger_files import demand_plain_log
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.probe_lock import LockStatus, lock_state
from rmqtool.verify.files.log_files import log_file_findings
from rmqtool.verify.survey.index_map import IndexPass
from rmqtool.watch.index_windows import index_end
from rmqtool.watch.limited_view import LimitedView, ReadLimit
from rmqtool.watch.queue_windows import TrackedQueues
from rmqtool.watch.range_check import RangeChecker, WatchedRange
from rmqtool.watch.state import WatchState

CHUNK_BYTES: Final = 16 << 20
"""Bytes of the log that are checked at once; the state moves on by so much at most."""
LOOK_SECONDS: Final = 10.0
"""After so long the store is listed again and lags are measured, for files come and go meanwhile."""
SETTLE_SECONDS: Final = 3.0
MISSING_KEY: Final = "index.missing-key"


@dataclass(frozen=True)
class WatchOptions:
    """Options of a watch.

    Attributes:
        from_start: begin, without a state, at the first byte of the log and not at its newest file.
        limits: of lags, by the name of an alert.
        settle_seconds: the least time after which what looks wrong is looked at again.
    """

    root: Path
    survey: Callable[[], Store]
    rules: BrokerRules
    from_start: bool = False
    limits: dict[str, int | None] | None = None
    settle_seconds: float = SETTLE_SECONDS
    chunk_bytes: int = CHUNK_BYTES


@dataclass(frozen=True)
class _StoreNow:
    """Facts of one look, known before anything is checked."""

    store: Store
    files: OpenFiles
    checkpoint: Checkpoint | None
    dispatched_end: int
    newest_unit: int

    @property
    def flushed_ms(self) -> int | None:
        """Store time of the last flushed record; None where all are, after a clean stop."""
        if not self.store.has_abort:
            return None
        return 0 if self.checkpoint is None else max(0, self.checkpoint.commitlog_timestamp_ms)


class Watcher:
    """One watch.

    Attributes:
        is_unsettled: whether something is to be looked at again before the last look counts.
        has_more: whether the last look stopped before the end of what could be checked.
        trouble: why the last look could not read what it wanted; None where it could.
    """

    def __init__(
        self,
        options: WatchOptions,
        state: WatchState,
        limit: ReadLimit,
        on_row: Callable[[dict[str, Any]], None],
        save: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options, self.state, self._limit, self._on_row, self._save = options, state, limit, on_row, save
        self.lags = Lags()
        self.alarms = Alarms(options.limits or {})
        self.broker_runs: bool | None = None
        self.trouble: str | None = None
        self.has_more = False
        self.has_rocksdb_queues = False
        self._clock = clock
        self._suspects = Suspects(options.settle_seconds, clock)
        self._index_suspects = Suspects(options.settle_seconds, clock)
        self._ends = TrackedQueues(PLAIN_UNITS), TrackedQueues(BATCH_UNITS)
        self._checker = RangeChecker(options.rules)
        self._sizes: dict[str, object] = {}
        self._log_end: LogEnd | None = None
        self._last_ms = 0
        self._tried: tuple[object, ...] | None = None
        self._index_stopped_at: int | None = None
        # What was checked before a restart has its keys in the index, unless that was reported.
        checked_before = state.position is not None and not state.counts.findings[MISSING_KEY]
        self._indexed_end = state.position.physical_offset if checked_before and state.position is not None else 0

    @property
    def is_unsettled(self) -> bool:
        """True if something must be checked again before its state is known."""
        suspects = self._suspects.subject, self._index_suspects.subject
        return any(subject is not None for subject in suspects) or self.alarms.is_uncertain

    def look(self) -> None:
        """Look once: check new records, measure lags, raise alerts.

        Raises:
            NotAStoreError: there is no store (any more).
            UnsupportedError: its log is one of DLedger.
        """
        store = self._surveyed()
        self.trouble, self.has_more = None, False
        try:
            with OpenFiles(store.view) as files:
                look = self._begin(store, files)
                self.lags = self._measure(look)  # first, for checking may take long, and fail
                for alert in self.alarms.look(self.lags):
                    self.state.counts.alerts += alert.is_raised
                    self._on_row({"type": "alert", **alert.as_json()})
                if self.state.position is not None:
                    until = self._clock() + LOOK_SECONDS
                    while self._check_next(look):
                        if self._clock() >= until:
                            self.has_more = True
                            break
                    self._check_full_index(look)
        except UnreadableError as error:
            self.trouble = str(error)  # retention, or a start of the broker, takes files away: look again

    @property
    def verify_lag_bytes(self) -> int | None:
        """Bytes of the log that are not checked yet, up to its end at the last look; None without one."""
        end, position = self.lags.log_end, self.state.position
        return None if end is None or position is None else max(0, end - position.physical_offset)

    def _surveyed(self) -> Store:
        store = self._options.survey()
        settings = with_settings(store.settings, **self._sizes)
        store = replace(store, view=LimitedView(store.view, self._limit), settings=settings)
        demand_plain_log(store)
        self.has_rocksdb_queues = store.queue_kind != "file"
        proven = store.commitlog_file_size if store.log_file_size.is_proven else None
        # What the files agreed on once is not inferred again from those that are there later.
        self._sizes = {
            "commitlog_file_size": proven,
            "index_slot_count": store.index_slot_count,
            "index_entry_count": store.index_entry_count,
        }
        return store

    def _event(self, name: str, message: str, physical_offset: int | None = None) -> None:
        self._on_row({"type": "event", "event": name, "message": message, "physical_offset": physical_offset})

    # Where things are

    def _begin(self, store: Store, files: OpenFiles) -> _StoreNow:
        is_other = self._note_broker(store)
        checkpoint = read_checkpoint(store)
        for kind in self._ends:
            kind.look(store, self._options.rules, files)
        newest = max(
            filter(None, (kind.newest() for kind in self._ends)), key=lambda unit: unit.physical_offset, default=None
        )
        if store.queue_kind == "rocksdb":
            newest = None
        known = [] if newest is None else [newest[1:]]
        self._log_end = self._followed(store, files, known)
        if is_other:
            self.state.restart_end = self._log_end.physical_offset
        dispatched_end = self._log_end.physical_offset if newest is None else sum(newest[1:])
        if newest is None and store.queue_kind != "rocksdb":
            dispatched_end = store.log_start
        look = _StoreNow(store, files, checkpoint, dispatched_end, -1 if newest is None else newest.physical_offset)
        self._find_position(look)
        return look

    def _note_broker(self, store: Store) -> bool:
        """True if a broker has stopped or started since the last look: each has its own process or `abort`."""
        entry, lock = store.first(FileKind.ABORT), lock_state(self._options.root)
        runs = lock.status is LockStatus.HELD
        broker = f"{lock.owner_pid if runs else None} {None if entry is None else entry.mtime_ns}"
        before, self.state.broker = self.state.broker, broker
        if before is not None and before != broker:
            self._suspects.clear()
            self._index_suspects.clear()
            if runs:
                self.state.counts.restarts += 1
                self._event("broker-started", "a broker has started on the store")
            elif self.broker_runs:
                how = "has stopped" if entry is None else "is gone, and did not stop cleanly"
                self._event("broker-stopped", f"the broker {how}")
        self.broker_runs = runs
        return before is not None and before != broker

    def _followed(self, store: Store, files: OpenFiles, known: list[tuple[int, int]]) -> LogEnd:
        """The end of the log, followed from the last known one, or from the last record with a unit."""
        before = self._log_end
        if before is not None and before.last_record is not None and before.last_record < before.physical_offset:
            last = before.last_record
            segment = store.segment_at(last)
            at_end = b""
            if segment is not None and before.physical_offset < segment.end:
                at_end = files.read(segment.path, before.physical_offset - segment.start, 8)
                size = int.from_bytes(files.read(segment.path, last - segment.start, 4), "big")
                if at_end == bytes(8) and before.is_exact and last + size == before.physical_offset:
                    return before
            known = [*known, (last, before.physical_offset - last)]
        return find_log_end(store.commitlog, files, known)

    def _find_position(self, look: _StoreNow) -> None:
        """Find where checking continues; a log that was cut or replaced, or whose start expired, counts as it is."""
        store, position = look.store, self.state.position
        if not store.commitlog:
            return
        if position is None:
            at = store.log_start
            if not self._options.from_start:
                reached = look.newest_unit if look.newest_unit >= 0 else look.dispatched_end
                at = max((one.start for one in store.commitlog if one.start <= reached), default=at)
                self.state.index_file = max((one.name for one in store.index_files[:-1]), default=None)
            self.state.position, self.state.first_offset = Position(at), at
            self._event("started", f"checking starts at physical offset {at}", at)
            return
        lost = what_is_lost(store, position)
        if lost is None:
            return
        self._suspects.clear()
        self._tried = None
        for kind in self._ends:
            kind.firsts.clear()
        at, begin = position.physical_offset, store.log_start
        if begin > at:
            self.state.counts.skipped_bytes += begin - at
            self._event("expired", f"{begin - at} bytes of the log were removed before they were checked", begin)
            self.state.position = Position(begin)
        else:
            back = max((one.start for one in store.commitlog if one.start < at), default=begin)
            self._event("rewound", f"{lost}; checking continues at physical offset {back}", back)
            self.state.position = Position(back)
        self._save()

    # What is checked

    def _check_next(self, look: _StoreNow) -> bool:
        """Check the next range; False where nothing is left to check now."""
        assert self.state.position is not None
        at = self.state.position.physical_offset
        if at >= look.dispatched_end or look.flushed_ms == 0:
            self._suspects.clear()  # what was seen before, of a store that has changed, is not looked at again
            return False
        if self._suspects.is_early(at):
            return False
        segment = look.store.segment_at(at)
        if segment is None:
            return self._check_gap(look, at)
        end = min(at + self._options.chunk_bytes, segment.end, look.dispatched_end)
        newest_index = index_end(look.store, look.files) if look.store.index_slot_count else -1
        with_index = look.newest_unit >= 0 and newest_index >= 0 and newest_index != self._index_stopped_at
        tried = at, end, look.dispatched_end, look.flushed_ms, newest_index
        if tried == self._tried and self._suspects.subject is None:
            return False
        watched = WatchedRange(segment, at, end, look.dispatched_end, look.newest_unit, look.flushed_ms)
        result = self._checker.check(look.store, self._ends, watched, look.files, with_index=with_index)
        self._tried = tried
        if result.end <= at:
            self._suspects.clear()
            return False
        if result.findings:
            if not self._suspects.confirms(at, result.findings):
                return False
            for finding in result.findings:
                self._report(finding, at)
            if any(finding.id == MISSING_KEY for finding in result.findings):
                self._index_stopped_at = newest_index if newest_index < end else None
        else:
            self._suspects.clear()
        if with_index and self._index_stopped_at is None:
            self._indexed_end = result.end
        counts = self.state.counts
        for kind, stops in zip(self._ends, result.stops, strict=True):
            kind.go_on(stops, is_whole=result.end >= end)
        counts.records += result.record_count
        counts.units += result.unit_count
        counts.entries += result.entry_count
        counts.verified_bytes += result.end - at
        self.state.position = Position(result.end, None, mark_of(look.store, result.end))
        self._save()
        return True

    def _check_gap(self, look: _StoreNow, at: int) -> bool:
        """Check for a missing file inside the log."""
        following = min((one.start for one in look.store.commitlog if one.start > at), default=None)
        if following is None:
            self._suspects.clear()
            return False
        findings = [
            one for one in log_file_findings(look.store, None)
            if one.id == MISSING_LOG_FILE and (one.physical_offset or 0) <= at
        ]  # fmt: skip
        if not self._suspects.confirms(at, findings):
            return False
        for finding in findings:
            self._report(finding)
        self.state.position = Position(following)
        self.state.counts.skipped_bytes += following - at
        self._save()
        return True

    def _check_full_index(self, look: _StoreNow) -> None:
        """Check index files that are full, as there is a newer one: header, chains and slots of each, once."""
        slot_count, checked = look.store.index_slot_count, self.state.index_file
        if not slot_count:
            return
        for entry in look.store.index_files[:-1]:
            if checked is not None and entry.name <= checked:
                continue
            if self._index_suspects.is_early(entry.name):
                return
            index_pass = IndexPass(entry, slot_count, look.store.index_entry_count, Account())
            index_pass.run(look.store.view.open)
            findings = index_pass.findings
            if findings and not self._index_suspects.confirms(entry.name, findings):
                return
            self._index_suspects.clear()
            for finding in findings:
                self._report(finding)
            self.state.index_file = entry.name
            self._save()
        self._index_suspects.clear()  # of a file that is gone

    def _report(self, finding: Finding, at: int = 0) -> None:
        """Report a finding, found in the log from an offset on.

        After a crash, brokers delete an index file that is newer than the checkpoint, and enter not all of it again.
        """
        place = at if finding.physical_offset is None else finding.physical_offset
        if finding.id == MISSING_KEY and place < self.state.restart_end:
            self._event("index-dropped", f"a start of the broker has dropped index entries: {finding.message}", place)
            return
        self.state.counts.findings[finding.id] += 1
        self._on_row({"type": "finding", **finding.as_json()})

    # Lags

    def _measure(self, look: _StoreNow) -> Lags:
        if not look.store.commitlog or self._log_end is None:
            return Lags()
        end = self._log_end.physical_offset
        index_lag = flush_lag = None
        if look.newest_unit >= 0 and look.store.index_files:
            # Up to where the log was checked, what is not in the index has no key.
            index_lag = max(0, look.newest_unit - max(index_end(look.store, look.files), self._indexed_end - 1))
        if look.checkpoint is not None and self._log_end.last_record is not None:
            log = Log(look.store, self._options.rules, look.files)
            last = read_record(log, self._log_end.last_record)
            self._last_ms = self._last_ms if last is None else last.store_timestamp_ms
            flush_lag = 0 if look.flushed_ms is None else max(0, self._last_ms - look.flushed_ms)
        return Lags(
            end,
            None if look.store.queue_kind == "rocksdb" else max(0, end - look.dispatched_end),
            flush_lag,
            index_lag,
        )


# Findings that are not reported yet: beside a running broker, what looks wrong once may only be half written.


LOOKS_MAX: Final = 4
"""Looks after which findings that change from look to look are reported as they are."""


_OF_A_FINDING: Final = attrgetter("id", "file", "file_position", "physical_offset", "topic", "queue_id", "queue_offset")
"""What distinguishes a finding from others."""


@dataclass
class Suspects:
    """The findings of one thing that is looked at again.

    Attributes:
        settle_seconds: the least time between two looks.
    """

    settle_seconds: float
    clock: Callable[[], float] = time.monotonic
    subject: Hashable = None
    _keys: frozenset[Hashable] = frozenset()
    _looks: int = 0
    _next_at: float = field(default=0.0, init=False)

    def clear(self) -> None:
        """Forget them."""
        self.subject, self._keys, self._looks = None, frozenset(), 0

    def is_early(self, subject: Hashable) -> bool:
        """True if it is too early to check the subject again."""
        return self.subject == subject and self.clock() < self._next_at

    def confirms(self, subject: Hashable, findings: Iterable[Finding]) -> bool:
        """True if the findings are those of the last check, so that they are reported; else it is checked again."""
        keys = frozenset(map(_OF_A_FINDING, findings))
        if self.subject != subject:
            self.subject, self._keys, self._looks = subject, frozenset(), 0
        is_same = self._looks > 0 and keys <= self._keys
        self._keys, self._looks = keys, self._looks + 1
        self._next_at = self.clock() + self.settle_seconds
        if is_same or self._looks >= LOOKS_MAX:
            self.clear()
            return True
        return False


# How far dispatch, flush and index are behind the log, and the alerts where that is too far.


@dataclass(frozen=True)
class Lags:
    """Lags at one look; None where a store does not show them.

    Attributes:
        log_end: physical offset after the last record, as far as the broker has written.
        dispatch_bytes: from the last record with a unit to the end of the log.
        flush_ms: from the store time of the last flushed record, by the checkpoint, to that of the last one.
        index_bytes: from the last record with an index entry to the last one with a unit.
    """

    log_end: int | None = None
    dispatch_bytes: int | None = None
    flush_ms: int | None = None
    index_bytes: int | None = None


@dataclass(frozen=True)
class Alert:
    """A limit that was passed, or no longer is."""

    name: str
    is_raised: bool
    value: int | None
    limit: int | None
    message: str

    def as_json(self) -> dict[str, Any]:
        """The alert with JSON's types."""
        fields = asdict(self)
        state = "raised" if fields.pop("is_raised") else "cleared"
        return {"alert": fields.pop("name"), "state": state, **fields}


_TEXTS: Final = {
    "dispatch-lag": "records up to {value} bytes before the end of the log are in no queue yet",
    "flush-lag": "the last flushed record is {value} ms older than the last one",
    "index-lag": "records up to {value} bytes before the last one with a unit are not in the index",
}


@dataclass
class Alarms:
    """Passed limits; one counts once two looks in a row see it passed.

    Attributes:
        limits: by the name of an alert; None without one.
    """

    limits: dict[str, int | None]
    _passed: set[str] = field(default_factory=set)
    raised: set[str] = field(default_factory=set)

    def look(self, lags: Lags) -> Iterator[Alert]:
        """The alerts that this look raises and clears."""
        values = {
            "dispatch-lag": lags.dispatch_bytes,
            "flush-lag": lags.flush_ms,
            "index-lag": lags.index_bytes,
        }
        for name, value in values.items():
            limit = self.limits.get(name)
            if limit is None:
                continue
            text = _TEXTS[name].format(value=value)
            if value is None or value <= limit:
                self._passed.discard(name)
                if name in self.raised:
                    self.raised.discard(name)
                    yield Alert(name, False, value, limit, f"{text}: within the limit of {limit} again")
                continue
            if name in self._passed and name not in self.raised:
                self.raised.add(name)
                yield Alert(name, True, value, limit, f"{text}, the limit is {limit}")
            self._passed.add(name)

    @property
    def is_uncertain(self) -> bool:
        """True if a limit is newly passed, so that another look decides."""
        return bool(self._passed - self.raised)
