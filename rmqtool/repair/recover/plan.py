"""Plans `recover`: repairs the effects of a crash, and all derived files, without losing a message.

What is wrong is found by `verify`; each finding is answered, and nothing else is touched. Damage inside the log is not
repaired here: it is named, and the log stays as it is unless a person agrees to cut it there as the broker would.

Unless all is asked for, a window of the store is looked at: what the broker would read at its start, and below it what
a queue or the index lacks. It grows until nothing incomplete begins before it; nothing that it leaves out is changed.
"""

from __future__ import annotations

import re
import shutil
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

from rmqtool.engine.dispatch.queue_entries import DispatchSettings, batch_bytes, queue_entries
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.versions import first_with
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnknownSizeError, UnreadableError, UnsupportedError, UsageError
from rmqtool.findings.account import Account
from rmqtool.findings.finding import (
    BACKUP_BETTER,
    MISSING_LOG_FILE,
    REBUILD_COMPACTION,
    REBUILD_DELAYS,
    REBUILD_TIMER,
    Finding,
    Severity,
)
from rmqtool.forecast.load import blocking_configs
from rmqtool.forecast.options import ForecastOptions
from rmqtool.formats.queue_name import QueueName
from rmqtool.repair.compaction import plan_compaction
from rmqtool.repair.delays import plan_delays
from rmqtool.repair.derived.build import build
from rmqtool.repair.derived.builder import dispatch_settings
from rmqtool.repair.derived.database_build import build_database
from rmqtool.repair.derived.log_window import (
    LogWindow,
    WindowTooSmall,
    demand_generations_known,
    demand_told,
    first_window,
    larger_window,
    named_queues,
    queues_reaching,
    window_of,
)
from rmqtool.repair.derived.result import (
    BuildOptions,
    BuildRequest,
    BuildResult,
    abort_reason,
    abort_steps,
    checkpoint_steps,
)
from rmqtool.repair.machine.plan import ABORT_NAME, Loss, PlannedRepair, view_over
from rmqtool.repair.machine.steps import Remove, Step, WriteRange, create_file, remove_file, replace_file
from rmqtool.repair.missing_log import unmounted_text
from rmqtool.repair.recover import log_steps
from rmqtool.repair.recover.log_steps import MISNAMED
from rmqtool.repair.timer import plan_timer
from rmqtool.repair.topics import plan_topics
from rmqtool.scan.log import LogFile, RecordTable, ScanOptions, open_log
from rmqtool.scan.row_columns import message_rows
from rmqtool.scan.rules import Verdict
from rmqtool.scan.runner import OnProgress
from rmqtool.sides.compaction import compaction_findings
from rmqtool.sides.delays import REPEATS, delay_findings
from rmqtool.sides.timer.check import timer_findings
from rmqtool.store.config.config_json import ConfigState, config_bytes, named_topics, table_of
from rmqtool.store.config.config_kinds import CONFIG_KINDS, CONSUMER_OFFSETS, TOPICS
from rmqtool.store.config.read_config import StoreConfigs, read_config
from rmqtool.store.directory import Store, survey
from rmqtool.store.dledger_files import demand_dledger_data, demand_plain_log
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.index_file import index_headers
from rmqtool.store.relaxed_json import JsonError, parse_relaxed_json
from rmqtool.store.source import Literal, read_range
from rmqtool.verify.files.log_files import log_file_findings
from rmqtool.verify.files.lost_configs import lost_configs, topics_without_entry
from rmqtool.verify.match.queue_order import QueueOrder
from rmqtool.verify.match.removed_messages import MAY_BE_DELETED
from rmqtool.verify.match.undispatched_headers import Doubts, misplaced_finding, record_off_by_one
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import VerifyOptions

BEYOND = "config.consumer-offset-beyond-queue"
_REBUILT: Final = frozenset(kind.path for kind in CONFIG_KINDS if kind.rebuild is not None)
_FROM_BACKUP: Final = "the backup can be read, the file cannot"
_ENTRY: Final = re.compile(r'"(?P<name>[^"\\]+@[^"\\]+)"\s*:\s*\{(?P<queues>[\s0-9:,"]*)\}')
_OFFSET: Final = re.compile(r'"?([0-9]{1,9})"?\s*:\s*"?([0-9]{1,18})"?')

CATCHES_UP: Final = frozenset({"consumequeue.behind-log", "index.missing-key", "index.missing-file"})
"""Findings that a start after a crash corrects by itself."""
NOT_BUILT: Final = frozenset(
    {
        "consumequeue.stray-file", "consumequeue.unsafe-name",
        "index.directory", "index.misnamed-file", "index.zero-file",
    }
)  # fmt: skip
"""Findings about queues and index that are repaired without building them again, or not at all."""

_QUEUE_DEPTH: Final = 4
"""Names in the path of a queue's file; a stray file there keeps a broker from starting."""


@dataclass(frozen=True)
class RecoverOptions:
    """Options of a person.

    Attributes:
        cut_at_damage: end the log at the first damage, as a broker would.
        cut_at: end the log at this physical offset, where a record begins; None leaves the end where it is.
        clamp_offsets: set consumer offsets that lie beyond a queue's end to that end.
        full: look at all of the store.
        threads: of the check.
        forecast: what the broker's configuration says of its start.
        rebuilt: (topic, queue id) of queues that are built again whatever the check says of them.
        tolerates: whether a finding of damage is left, without keeping anything else from being repaired.
    """

    build: BuildOptions = field(default_factory=BuildOptions)
    cut_at_damage: bool = False
    clamp_offsets: bool = False
    full: bool = False
    threads: int = 2
    forecast: ForecastOptions = field(default_factory=ForecastOptions)
    rebuilt: AbstractSet[QueueName] = frozenset()
    tolerates: Callable[[Finding], bool] = lambda _found: False
    cut_at: int | None = None

    @property
    def cuts(self) -> bool:
        """True if a person has agreed that the log ends earlier."""
        return self.cut_at_damage or self.cut_at is not None


def plan_recover(
    store: Store,
    rules: BrokerRules,
    staging: Path,
    options: RecoverOptions | None = None,
    on_progress: OnProgress | None = None,
) -> PlannedRepair:
    """Check the store, and find the steps that repair it.

    Raises:
        UsageError: no record begins where the log is to be cut.
        UnsupportedError: the log or its end is kept by DLedger.
    """
    options = options or RecoverOptions()
    demand_plain_log(store, repairs=True)
    demand_dledger_data(store)
    # A file of the wrong length changes what every record in it seems to be, so the rest is judged as if it were right.
    shape, base = tuple(log_steps.shape_steps(store, staging)), store.view
    if shape:
        settings = replace(store.settings, commitlog_file_size=store.commitlog_file_size)
        store = survey(view_over(store.view, shape), settings)
    if options.cut_at is not None and store.commitlog:
        options = replace(options, cut_at=cut_offset(store, options.cut_at, options.build.delays_ms))
    if options.full or not store.commitlog or store.queue_database is not None:
        window = window_of(store, 0)
    else:
        window = first_window(store, rules, options.forecast, [step.path for step in shape])
    for attempt in count():
        place = staging / f"attempt-{attempt}"
        place.mkdir()
        try:
            recovery = _planned(store, window, rules, place, options, shape, on_progress)
            return replace(recovery, steps=tuple(log_steps.over_store(base, step) for step in recovery.steps))
        except WindowTooSmall as too_small:
            window = larger_window(store, window, too_small.physical_offset)
            shutil.rmtree(place)
    raise AssertionError  # the largest window is the whole store, which is never too small


def _planned(
    store: Store,
    window: LogWindow,
    rules: BrokerRules,
    staging: Path,
    options: RecoverOptions,
    shape: tuple[Step, ...],
    on_progress: OnProgress | None,
) -> PlannedRepair:
    findings: list[Finding] = []
    checked = VerifyOptions(
        threads=options.threads, compiled=options.build.compiled, cache=options.build.cache, timer=window.is_whole
    )
    summary = verify_store(window.store, rules, checked, findings.append, on_progress)
    if not window.is_whole:
        # Which name is wrong, and which one is free, only all files together tell.
        findings = [finding for finding in findings if finding.id not in ("consumequeue.below-log", MISNAMED)]
        below = window.begin
        findings += [
            finding
            for finding in log_file_findings(store, None)
            if finding.id == MISNAMED or (finding.physical_offset or 0) < below
        ]
    demand_told(window, findings)
    recover = _Recover(window, rules, staging, options, tuple(findings), shape, summary.removed_before, on_progress)
    recovery = recover.run()
    left_out = {entry.path for entry in window.left_out}
    if any(step.path in left_out for step in recovery.steps):
        raise WindowTooSmall(0)
    begin = None if window.is_whole else window.begin
    return replace(recovery, left_out=window.notes(), begin=begin)


class _Recover:
    def __init__(
        self,
        window: LogWindow,
        rules: BrokerRules,
        staging: Path,
        options: RecoverOptions,
        findings: tuple[Finding, ...],
        shape: tuple[Step, ...],
        again: Mapping[str, int],
        on_progress: OnProgress | None,
    ) -> None:
        store = window.store
        self._window = window
        self._store, self._rules, self._staging, self._options = store, rules, staging, options
        self._findings = findings
        self._wrong = tuple(finding for finding in findings if finding.severity is not Severity.NOTE)
        self._on_progress = on_progress
        self._steps: list[Step] = list(shape)
        self._notes: list[str] = []
        self._again = again
        """Physical offsets at which topics begin again: from the check, then from the build."""
        self._stays = abort_reason(store, rules) if store.has_abort else None

    def run(self) -> PlannedRepair:
        damage = tuple(finding for finding in log_steps.damage_in(self._wrong) if not self._options.tolerates(finding))
        if not self._store.commitlog:
            lost = tuple(finding for finding in self._wrong if finding.id == MISSING_LOG_FILE)
            notes = (unmounted_text(self._store, 0),) if lost else ()
            return PlannedRepair(() if lost else tuple(self._steps), notes, self._findings, lost)
        if (cut_at := self._options.cut_at) is not None:
            damage = tuple(finding for finding in damage if (finding.physical_offset or 0) < cut_at)
        if damage and not self._options.cut_at_damage:
            return PlannedRepair((), (), self._findings, damage, abort_stays=self._why_abort_stays(damage))
        log_end, loss = self._log_end(damage)
        self._repair_log(log_end, damage)
        doubtful = {finding.topic for finding in self._findings if finding.id == MAY_BE_DELETED and finding.topic}
        self._steps += rescue_steps(self._store, self._wrong, clamp=self._options.clamp_offsets, doubtful=doubtful)
        # Files that keep a broker from starting and hold nothing.
        view = self._store.view
        for entry in self._store.files.get(FileKind.STRAY_QUEUE, ()):
            if entry.is_file and len(entry.path.split("/")) == _QUEUE_DEPTH:
                why = "a file that does not belong to the queue may keep a broker from starting"
                self._steps.append(remove_file(view, entry.path, why))
        for finding in self._wrong:
            if finding.id in ("compaction.leftover-file", "index.misnamed-file"):
                self._steps.append(remove_file(view, finding.file, finding.message))
        built = self._build_derived(log_end)
        if not self._options.cuts and (misplaced := self._misplaced(built)):
            stays = self._why_abort_stays(misplaced)
            return PlannedRepair((), (), self._findings, misplaced, abort_stays=stays)
        # Index files that never got an entry, unless the index is built again and they are part of it.
        changed = {step.path for step in self._steps}
        for finding in self._wrong:
            if finding.id == "index.zero-file" and finding.file not in changed:
                self._steps.append(remove_file(view, finding.file, finding.message))
        if built is not None and self._stays is None:
            if built.bad is None:
                self._cut_tail(built.log_end, "nothing is after the end of the commit log")
            self._steps += checkpoint_steps(self._store, self._rules, built.last_record, built.log_end)
            self._steps += abort_steps(self._store)
        return PlannedRepair(
            tuple(self._steps), tuple(self._notes), self._findings, loss=loss, abort_stays=self._stays,
            again=self._again,
        )  # fmt: skip

    def _log_end(self, damage: tuple[Finding, ...]) -> tuple[int | None, Loss]:
        """Offset at which the log has to be cut, None for no cut, and the resulting loss."""
        places = [finding.physical_offset for finding in damage if finding.physical_offset is not None]
        chosen = (log_steps.tail_begin(self._wrong), self._options.cut_at)
        log_end = min([*places, *(end for end in chosen if end is not None)], default=None)
        if log_end is None:
            return None, Loss()
        self._demand_larger_than(log_end)
        loss = log_steps.loss_behind(self._store, log_end, self._options.build.delays_ms)
        if loss.messages and not self._options.cuts:
            # Cut inside its properties: brokers do not notice, enter and serve it.
            self._notes.append(
                f"the last record, at {log_end}, is incomplete, but brokers serve the part that is there: it is kept "
                "(on a replica use --cut-at-damage, and the master sends it again)"
            )
            return None, Loss()
        return log_end, loss

    def _demand_larger_than(self, log_end: int) -> None:
        """Refuse a window in which the log has no record: what comes before its end must be known."""
        if not self._window.is_whole and log_end <= self._window.begin:
            raise WindowTooSmall(self._window.begin - 1)

    def _why_abort_stays(self, damage: tuple[Finding, ...]) -> str | None:
        if not self._store.has_abort:
            return None
        return self._stays or f"the commit log is damaged at {damage[0].physical_offset}"

    def _repair_log(self, log_end: int | None, damage: tuple[Finding, ...]) -> None:
        first = first_with("skips_directories")
        self._notes += [
            f"{path}: a directory in commitlog/, which keeps brokers before {first} from starting; move it away by hand"
            for path in self._store.stray_log_directories
        ]
        for finding in self._wrong:
            if finding.id == MISSING_LOG_FILE:
                then = (
                    "a broker skips it" if finding.length is not None else "the end of the commit log is lost with it"
                )
                self._notes.append(f"{finding.file}: {finding.message}; {then}")
        if log_end is not None:
            why = "after the end of the commit log, where it could come back"
            if damage:
                why = "after the damage, discarded"
            elif log_end == self._options.cut_at:
                why = f"after physical offset {log_end}, discarded"
            self._cut_tail(log_end, why)

    def _cut_tail(self, log_end: int, why: str) -> None:
        """Steps after the log's end, but for those of earlier steps; a file that goes needs no other step."""
        whole = {step.path for step in self._steps if not isinstance(step, WriteRange)}
        ranges = {(step.path, step.file_position) for step in self._steps if isinstance(step, WriteRange)}
        for step in log_steps.tail_steps(self._store, log_end, why):
            if isinstance(step, Remove):
                self._steps = [other for other in self._steps if other.path != step.path] + [step]
            elif step.path not in whole and (step.path, step.file_position) not in ranges:
                self._steps.append(step)

    def _build_derived(self, log_end: int | None) -> BuildResult | None:
        """Build files that are wrong; None where nothing has to be known of the log."""
        about = [
            finding
            for finding in self._wrong
            # A broker loads a stray file of a queue as one of its own, so the queue has to be built without it.
            if finding.id not in NOT_BUILT or (finding.id == "consumequeue.stray-file" and finding.topic is not None)
        ]
        if self._stays is not None:
            about = [finding for finding in about if finding.id not in CATCHES_UP]
        queues = [finding for finding in about if finding.id.startswith(("consumequeue.", "rocksdb."))]
        with_index = any(finding.id.startswith("index.") for finding in about)
        checkpoint = any(finding.id.startswith("checkpoint.") for finding in about)
        names = named_queues(queues, self._options.rebuilt)
        if log_end is not None and self._stays is None:
            names = names.union(queues_reaching(self._store, log_end)) if names is not None else None
            with_index = with_index or any(
                header.end_physical_offset >= log_end
                for header in index_headers(self._store.view, self._store.index_files)
            )

        def is_built(topic: str, queue_id: int) -> bool:
            return names is None or (topic, queue_id) in names

        selector = None if names is not None and not names else is_built
        topics = frozenset(topic for topic, _ in names or ())
        queue_ids = sorted({finding.id for finding in queues})
        why = f"fix {', '.join(queue_ids)}" if queue_ids else "the consume queue does not match the commit log"
        ends_clean = self._store.has_abort and self._stays is None
        if not (queues or selector or with_index or checkpoint or ends_clean or log_end is not None):
            return None
        if self._store.queue_database is not None:
            if queues or (self._stays is None and (selector is not None or log_end is not None)):
                database = build_database(
                    self._store, self._rules, None, log_end, self._staging, self._options.build, self._on_progress,
                    incomplete_topics=topics,
                )  # fmt: skip
                self._steps += database.steps(why)
                self._notes += database.notes
                self._again = database.again
            selector = None
        if selector is not None and self._store.extensions and not self._window.is_whole:
            raise WindowTooSmall(0)  # the addresses of an extension's units count from its first one
        if selector is not None:
            demand_generations_known(self._window, names or ())
        request = BuildRequest(selector, with_index, log_end, self._window.earlier, topics)
        built = build(self._store, self._rules, request, self._staging, self._options.build, self._on_progress)
        self._demand_larger_than(built.log_end)
        if built.needs is not None:
            raise WindowTooSmall(built.needs)
        self._steps += built.steps(why, "the index does not match the commit log")
        if with_index and not self._store.index_files and not self._window.is_whole:
            self._notes.append(
                f"there is no index: recover rebuilds it from physical offset {self._window.begin}, as a "
                "broker would; rmqtool rebuild --index rebuilds all of it"
            )
        self._notes += built.notes()
        self._again = {**self._again, **built.again}
        return built

    def _misplaced(self, built: BuildResult | None) -> tuple[Finding, ...]:
        """Records whose wrong headers give other messages another queue offset, or take theirs."""
        if built is None or not (built.displaced or built.repeated):
            return ()
        settings = dispatch_settings(self._store, self._rules, self._options.build)
        delays_ms = self._options.build.delays_ms
        misplaced = misplaced_records(self._store, settings, self._findings, built.log_end, delays_ms)
        return tuple(finding for finding in misplaced if not self._options.tolerates(finding))


# Checks the physical offset at which a person wants the log to end: only where a record begins can it be cut.


def cut_offset(store: Store, physical_offset: int, delays_ms: tuple[int, ...]) -> int | None:
    """Where to cut the log; None where no record comes after that offset, so that it ends there already.

    Raises:
        UsageError: no record begins there.
    """
    around = [segment for segment in store.commitlog if segment.start <= physical_offset <= segment.end]
    edges: set[int] = set()
    with open_log(store.view.open, around, ScanOptions(delays_ms), finds_crc=True) as table:
        for batch in table.batches():
            rows = batch.as_array()
            rows = rows[rows["verdict"] == Verdict.GOOD]
            edges.update(rows["physical_offset"].tolist())
            edges.update((rows["physical_offset"] + rows["size"]).tolist())
    offsets = sorted(edges)
    if not offsets:
        begin, end = store.commitlog[0].start, store.commitlog[-1].end
        raise UsageError(
            f"--cut-at {physical_offset}: no record starts there; the commit log files go from {begin} to {end}"
        )
    at = bisect_left(offsets, physical_offset)
    if at == len(offsets) or offsets[at] != physical_offset:
        near = " and ".join(str(offset) for offset in offsets[max(0, at - 1) : at + 1])
        raise UsageError(f"--cut-at {physical_offset}: no record starts there; the nearest ones start at {near}")
    is_end = at == len(offsets) - 1 and not any(segment.start >= physical_offset for segment in store.commitlog[1:])
    return None if is_end else physical_offset


# Finds the records with wrong headers that would move other messages of a queue when it is built again.


MISSING: Final = "commitlog.missing-message"


def misplaced_records(
    store: Store, settings: DispatchSettings, findings: Iterable[Finding], log_end: int, delays_ms: tuple[int, ...]
) -> Iterator[Finding]:
    """Findings about records that stand where the log lacks exactly one other message; reads all of the log.

    Args:
        findings: what a check has about the log; where it has anything, nothing is sure.
        log_end: physical offset of what counts no more.
    """
    doubts = Doubts()
    for known in findings:
        if known.id != MISSING:  # told by the order itself
            doubts.add(known)
    records, _ = _order(store, settings, log_end, delays_ms).misplaced(doubts.counter())
    with OpenFiles(store.view) as files:
        log = Log(store, settings.rules, files)
        for misplaced in records:
            record = record_off_by_one(log, misplaced)
            if record is not None:
                yield misplaced_finding(store, misplaced, record)


def _order(store: Store, settings: DispatchSettings, log_end: int, delays_ms: tuple[int, ...]) -> QueueOrder:
    order = QueueOrder(begins_at_zero=bool(store.commitlog) and store.commitlog[0].start == 0)
    files = [LogFile(partial(store.view.open, segment.path), segment.start) for segment in store.commitlog]
    with RecordTable.of(files, ScanOptions(delays_ms), finds_crc=True) as table:
        for batch in table.batches():
            rows = batch.as_array()
            rows = message_rows(rows[rows["physical_offset"] < log_end])
            if not rows.size:
                continue
            for entries in queue_entries(rows, batch.topics, batch_bytes(batch), settings, by_bytes=True):
                order.take(entries)
    return order


def rescue_steps(
    store: Store, findings: Iterable[Finding], *, clamp: bool, doubtful: Collection[str]
) -> Iterator[Step]:
    """One step for each file.

    Args:
        clamp: set consumer offsets beyond a queue's end to that end.
        doubtful: topics that may have been deleted; a copy that names one is not made the file before a person decides.

    Raises:
        UnsupportedError: the consumer offsets are in RocksDB.
    """
    beyond, wrong = [], list(findings)
    for finding in wrong:
        if finding.id == BACKUP_BETTER and finding.file == CONSUMER_OFFSETS:
            if not (clamp and any(other.id == BEYOND for other in wrong)):
                yield _newest_offsets(store)
        elif finding.id == BACKUP_BETTER:
            if finding.file == TOPICS and not named_topics(read_config(store.view, TOPICS)).isdisjoint(doubtful):
                continue
            yield _content_step(store, finding.file, _bytes(store, f"{finding.file}.bak"), _FROM_BACKUP)
        elif finding.id == BEYOND:
            beyond.append(finding)
    if clamp and beyond:
        yield _clamped(store, beyond)


def _newest_offsets(store: Store) -> Step:
    """The step that writes the backup of the consumer offsets, with newer ones of the broken file.

    A cut file still has the offsets before the cut, and a broker writes each file later than its backup.
    """
    config = read_config(store.view, CONSUMER_OFFSETS)
    if config.state is not ConfigState.BROKEN:
        return _content_step(store, CONSUMER_OFFSETS, _bytes(store, f"{CONSUMER_OFFSETS}.bak"), _FROM_BACKUP)
    value = config.value or {}
    table = {key: dict(queues) for key, queues in table_of(config, "offsetTable").items()}
    newer = 0
    for name, queues in offsets_before_cut(_bytes(store, CONSUMER_OFFSETS)).items():
        of_name = table.setdefault(name, {})
        keys = {str(queue_id): queue_id for queue_id in of_name}
        for queue_id, queue_offset in queues.items():
            key = keys.get(str(queue_id), queue_id)
            newer += max(0, queue_offset - int(of_name.get(key, 0)))
            of_name[key] = max(queue_offset, int(of_name.get(key, queue_offset)))
    if not newer:
        return _content_step(store, CONSUMER_OFFSETS, _bytes(store, f"{CONSUMER_OFFSETS}.bak"), _FROM_BACKUP)
    why = f"{_FROM_BACKUP}; what is whole in the file is newer, so consumers get {newer} messages fewer again"
    return _content_step(store, CONSUMER_OFFSETS, config_bytes({**value, "offsetTable": table}), why)


def offsets_before_cut(content: bytes) -> dict[str, dict[int, int]]:
    """The consumer offsets in a file that was cut off: of each topic and group whose entry is whole.

    None of a file that is broken in another way: a wrong offset would let consumers skip messages.
    """
    text = content.decode("utf-8", "surrogateescape")
    begin = text.find('"offsetTable"')
    end = text.find('"pullOffsetTable"', begin)
    entries = [*_ENTRY.finditer(text, begin, len(text) if end < 0 else end)] if begin >= 0 else []
    try:
        parse_relaxed_json(text[: entries[-1].end()] + "}}" if entries else "")
    except JsonError:
        return {}
    return {
        entry["name"]: {int(queue_id): int(queue_offset) for queue_id, queue_offset in _OFFSET.findall(entry["queues"])}
        for entry in entries
    }


def _clamped(store: Store, beyond: list[Finding]) -> Step:
    config = read_config(store.view, CONSUMER_OFFSETS)
    if config.is_database:
        raise UnsupportedError(
            f"{config.read_path}: the consumer offsets are in RocksDB, where rmqtool does not change them: leave out "
            "--clamp-offsets, and set them with mqadmin once the broker runs"
        )
    value = config.value or {}
    ends = {(finding.topic, finding.queue_id, finding.queue_offset): finding.expected for finding in beyond}
    table: dict[Any, Any] = {}
    for key, queues in value.get("offsetTable", {}).items():
        topic = str(key).partition("@")[0]
        table[key] = queues
        if isinstance(queues, dict):
            table[key] = {queue: _limited(ends, topic, queue, consumed) for queue, consumed in queues.items()}
    why = f"{len(beyond)} consumer offsets are past the end of their queue"
    return _content_step(store, CONSUMER_OFFSETS, config_bytes({**value, "offsetTable": table}), why)


def _limited(ends: dict[Any, str | None], topic: str, queue: Any, queue_offset: Any) -> Any:
    try:
        expected = ends.get((topic, int(queue), int(queue_offset)))
    except (TypeError, ValueError):
        return queue_offset
    return int(expected.rpartition(" ")[2]) if expected else queue_offset


def _content_step(store: Store, path: str, content: bytes, why: str) -> Step:
    if read_config(store.view, path).state is ConfigState.ABSENT:
        return create_file(store.view, path, Literal(content), why)
    return replace_file(store.view, path, Literal(content), why)


def _bytes(store: Store, path: str) -> bytes:
    entry = store.view.stat(path)
    if entry is None:
        raise UnreadableError(f"{path}: no longer exists")
    with closing(store.view.open(path)) as source:
        return read_range(source, 0, entry.size)


# The steps of `recover` that concern timers, delay levels, compacted topics and configuration that was lost.
# They are planned for the store as the other steps leave it: only complete queues show what waits. Of two copies of a
# state, the backup that a broker would read and what log and queues show, the one that repeats or loses less is taken.


def with_side_state(
    store: Store, rules: BrokerRules, recovery: PlannedRepair, staging: Path, on_progress: OnProgress | None = None
) -> PlannedRepair:
    """A recovery with the steps for timer, delay levels and compacted topics, where a check of them has findings."""
    if recovery.damage or not store.commitlog:
        return recovery
    # Their backups are read as well.
    earlier = tuple(step for step in recovery.steps if step.path not in _REBUILT)
    view = view_over(store.view, earlier)
    after = survey(view, store.settings) if earlier else store

    def asks(findings: Iterable[Finding], command: str) -> bool:
        return any(finding.repair == command for finding in findings)

    def are_delays_wrong() -> bool:
        return asks(chain(lost_configs(after, rules), delay_findings(after, rules)), REBUILD_DELAYS)

    def lacks_backup_topics() -> bool:
        """True if a broker reads the topics from a backup that lacks topics with queues."""
        config = read_config(after.view, TOPICS)
        return config.is_backup and bool(topics_without_entry(after, config))

    # By the name of a folder for what is built: whether something is wrong, and what plans its repair.
    parts: dict[str, tuple[Callable[[], bool], Callable[[Path], PlannedRepair]]] = {
        "timer": (
            lambda: asks(timer_findings(after, rules, Account()), REBUILD_TIMER),
            partial(plan_timer, after, rules, on_progress=on_progress),
        ),
        "delays": (are_delays_wrong, lambda _folder: plan_delays(after, rules, on_progress)),
        "repeats": (  # some messages are delivered a second time, and that is all
            lambda: not are_delays_wrong() and any(one.id == REPEATS for one in delay_findings(after, rules)),
            lambda _folder: plan_delays(after, rules, on_progress, whole=False),
        ),
        "compaction": (
            lambda: asks(compaction_findings(after, rules, Account()), REBUILD_COMPACTION),
            partial(plan_compaction, after, rules),
        ),
        "topics": (lacks_backup_topics, lambda _folder: plan_topics(after, rules)),
        "blocked": (lambda: bool(_blocking(after, rules)), lambda _folder: _unblocked(after, rules)),
    }
    steps, notes = list[Step](), list[str]()
    for name, (is_wrong, plan) in parts.items():
        try:
            if is_wrong():
                folder = staging / name
                folder.mkdir()
                planned = plan(folder)
                steps += planned.steps
                notes += planned.notes
        except (UnknownSizeError, UnsupportedError) as error:
            notes.append(f"not repaired: {error}")
    changed = {step.path for step in steps}
    kept = [step for step in recovery.steps if step.path not in changed]
    last = [step for step in kept if step.path == ABORT_NAME]
    steps = (
        [step for step in kept if step not in last] + [log_steps.over_store(store.view, step) for step in steps] + last
    )
    return replace(recovery, steps=tuple(steps), notes=(*recovery.notes, *notes))


def _blocking(store: Store, rules: BrokerRules) -> list[str]:
    """Configuration files that keep a broker from starting, and that nothing rebuilds."""
    blocking = blocking_configs(store, rules, StoreConfigs(store.view))
    return [path for path in blocking if path not in _REBUILT]


def _unblocked(store: Store, rules: BrokerRules) -> PlannedRepair:
    """Steps that remove a file and its backup where a broker does not start because it can read neither."""
    paths = _blocking(store, rules)
    copies = [copy for path in paths for copy in (path, f"{path}.bak") if store.view.stat(copy) is not None]
    why = "a broker cannot read it, and does not start while a backup is there that is not JSON"
    notes = tuple(
        f"{path}: neither it nor its backup can be read; without both a broker starts, with defaults. Restore the file "
        "from another copy instead if there is one"
        for path in paths
    )
    return PlannedRepair(tuple(remove_file(store.view, copy, why) for copy in copies), notes)
