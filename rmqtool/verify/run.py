"""Verifies a store: every check in order, findings as they come, a summary at the end.

First each queue and each index file alone, then the log split by split next to what points into it, then what only all
splits together can say. Memory, beside the maps of queues and index: for each thread a block, 131,072 rows with what
they dispatch (about 60 MB), and the units and entries of the same chunk.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from rmqtool.engine.dispatch.queue_entries import DispatchSettings
from rmqtool.engine.queues.kinds import shown_topics
from rmqtool.engine.reading.version_evidence import has_indexed_tags
from rmqtool.engine.rules.broker_rules import BrokerRules, MultiDispatch
from rmqtool.engine.rules.topic_names import LMQ_PREFIX
from rmqtool.engine.rules.versions import NEWEST, rules_for
from rmqtool.errors import RefusedError
from rmqtool.findings.account import Account
from rmqtool.findings.finding import Finding, Severity
from rmqtool.findings.registry import BY_ID, finding
from rmqtool.formats.queue_name import QueueKey, queue_key, topic_bytes, topic_text
from rmqtool.quantities import JAVA_LONG_MAX, OFFSETS_END
from rmqtool.report.own_file import OwnFile, read_own, replace_own
from rmqtool.scan.log import DISPATCH_BLOCK_SIZE, RecordTable, ScanOptions, open_log
from rmqtool.scan.runner import OnProgress, Runner, ThreadRunner
from rmqtool.sides.controller import epochs_ahead
from rmqtool.sides.delays import delay_findings
from rmqtool.sides.dledger import OF_ENTRIES, for_dledger, why_no_log
from rmqtool.sides.kinds import VERIFY, left_out_files, side_findings, side_kinds
from rmqtool.sides.pop import PopCheck
from rmqtool.sides.rocksdb_tables import SideDatabaseCheck
from rmqtool.sides.transactions import transaction_findings
from rmqtool.sides.unread import ReadBy, UnreadFiles
from rmqtool.store.checkpoint_file import readable_checkpoint
from rmqtool.store.config.config_json import ConfigFile, batch_topics, compacted_topics, topics, whole_topics
from rmqtool.store.config.config_kinds import TOPICS
from rmqtool.store.databases.queue_database import QueueDatabase
from rmqtool.store.directory import SIZE_UNKNOWN, Segment, Store, is_log_file_size_known
from rmqtool.store.dledger_files import with_dledger_log
from rmqtool.store.file_kinds import FileKind
from rmqtool.verify.files import reach
from rmqtool.verify.files.config_files import config_findings, queue_ends, read_store_configs
from rmqtool.verify.files.log_files import log_file_findings, missing_begin, missing_end, openable_segments
from rmqtool.verify.files.lost_configs import lost_configs, topics_of_nobody
from rmqtool.verify.files.small_files import checkpoint_findings, extension_findings, state_findings
from rmqtool.verify.match.missing_units import missing_findings, missing_in_files, second_findings, zero_queues
from rmqtool.verify.match.removed_messages import RemovedMessages, removed_messages
from rmqtool.verify.match.split_check import SplitCheck, check_in_parallel
from rmqtool.verify.match.undispatched_headers import Doubts, undispatched_header_findings
from rmqtool.verify.survey.context import Depth, VerifyContext, VerifyOptions
from rmqtool.verify.survey.database_pass import DatabaseQueues, database_findings, log_end_findings
from rmqtool.verify.survey.log_order import LogOrder
from rmqtool.verify.survey.queue_map import QueueMap, QueueMaps
from rmqtool.verify.survey.queue_pass import QueueLook
from rmqtool.verify.survey.recall import SeenSplits
from rmqtool.verify.survey.result import Missing, SplitResult, Summary, merge

OnFinding = Callable[[Finding], None]

_LOG: Final = "commitlog"
FILLER, ORDER = "consumequeue.filler-readable", "consumequeue.order"
"""Findings that the log decides: if messages belong where filler is, and if records are in another order too."""


def verify_store(
    store: Store,
    rules: BrokerRules,
    options: VerifyOptions | None = None,
    on_finding: OnFinding | None = None,
    on_progress: OnProgress | None = None,
    runner: Runner | None = None,
) -> Summary:
    """Check a store; nothing in it is changed. Each finding is told, file by file within each step. The splits of the
    log are checked by as many threads as the options say, or by the runner.

    RefusedError or UnreadableError if the state file is none, lies in the store, or cannot be used; AssertionError if
    the program lost count of a file's bytes.
    """
    options = options or VerifyOptions()
    threads = ThreadRunner(options.threads)
    return _Verifier(store, rules, options, on_finding, on_progress, threads, runner or threads).run()


@dataclass(frozen=True)
class _CheckedQueues:
    """Maps of a store's queues; `order` has their units by physical offset where they are in a database."""

    plain: Mapping[QueueKey, QueueMap]
    order: LogOrder | None = None
    batch: Mapping[QueueKey, QueueMap] = field(default_factory=dict)
    dispatched: int = 0


@dataclass
class _Log:
    merged: SplitResult
    complete: bool
    done_paths: frozenset[str]


class _Verifier:
    def __init__(
        self,
        store: Store,
        rules: BrokerRules,
        options: VerifyOptions,
        on_finding: OnFinding | None,
        on_progress: OnProgress | None,
        threads: ThreadRunner,
        runner: Runner,
    ) -> None:
        self.rules, self.options = rules, options
        self.store = with_dledger_log(store) if rules.dledger else store
        self._threads, self._runner = threads, runner
        self._on_finding, self._on_progress = on_finding, on_progress
        self._account, self._summary, self._doubts = Account(), Summary(), Doubts()
        self._seen_files: list[object] = []
        self._held: list[Finding] = []
        self._begun = time.monotonic()

    def run(self) -> Summary:
        state = State.load(self.options.state_file, self.rules.version, self.options.depth.value, self.store.view.label)
        self._say(state_findings(self.store, self.rules, broker_runs=self.options.broker_runs))
        self._say(extension_findings(self.store))
        if self.options.broker_runs:
            self._say([finding("store.lock-held", "lock", "a broker is using the store")])
        for files in left_out_files(self.store, self._side_kinds):
            self._leave_out(files)
        configs = read_store_configs(self.store)
        database = self.store.queue_database
        plain = self._check_database(database) if database else _CheckedQueues(self._check_queue_files(is_batch=False))
        queues, index = replace(plain, batch=self._check_queue_files(is_batch=True)), self._check_index()
        second = self.store.second_database if self._looks_beside else None
        of_second = self._check_database(second) if second is not None else None
        context = self._context(configs, queues, index, of_second)
        if context.live_end is not None:
            self._leave_out(_part_of_log("a broker is writing to the end of the log"))
        newest = [reach.newest_record(context)]
        self._say(log_file_findings(self.store, lambda begin, end: reach.units_into(context, begin, end), newest))
        if not is_log_file_size_known(self.store):
            self._leave_out(_part_of_log(SIZE_UNKNOWN, ReadBy.SIZES))
        if (why := why_no_log(self.store, self.rules)) is not None:
            context = replace(context, options=replace(self.options, depth=Depth.STRUCTURE))
            self._leave_out(_part_of_log(why))
        elif context.options.depth is not Depth.FULL:
            self._leave_out(_part_of_log(f"left out by --depth {context.options.depth.value}"))
        self._say(side_findings(self.store, self.rules, self._account, self._side_kinds))
        self._say(delay_findings(self.store, self.rules) if self._looks_beside and self.options.timer else ())
        log = self._check_log(context, state) if context.options.depth is not Depth.STRUCTURE else None
        self._finish(context, configs, log)
        side_database, pop = SideDatabaseCheck(self.store, self.rules), PopCheck(self.store, self.rules)
        whole = log.merged if log is not None and log.complete else None
        is_compared = FileKind.ROCKSDB in self._side_kinds and side_database.is_used
        self._say(
            side_database.findings((whole.begin, whole.end) if whole is not None else None) if is_compared else ()
        )
        self._say(pop.findings(is_whole=whole is not None) if self._looks_beside else ())
        for files in (*side_database.left_out, *pop.left_out):
            self._leave_out(files)
        scanned = log.done_paths if log is not None else ()
        for segment in self.store.commitlog:
            account = self._account.file(segment.path, segment.size)
            account.left_out += 0 if segment.path in scanned else max(0, account.open_bytes)
        self._account.settle()
        self._summary.checked_bytes = self._account.checked_bytes
        self._summary.left_out_bytes = sum(file_account.left_out for file_account in self._account.files.values())
        self._summary.seconds = time.monotonic() - self._begun
        return self._summary

    @property
    def _looks_beside(self) -> bool:
        """True if more than log, queues and index is checked, which a running broker changes."""
        return self.options.depth is Depth.FULL and not self.options.broker_runs

    @property
    def _side_kinds(self) -> frozenset[FileKind]:
        if not self._looks_beside:
            return frozenset()
        return side_kinds(self.store, self.rules, VERIFY, timer=self.options.timer)

    def _leave_out(self, files: UnreadFiles) -> None:
        """Leave out files because a broker uses them."""
        self._summary.not_looked_at = (*self._summary.not_looked_at, files)
        self._summary.complete = False

    def _say(self, new_findings: Iterable[Finding]) -> None:
        for one in sorted(new_findings, key=lambda one: one.place):
            known = for_dledger(one) if self.store.has_dledger_log else one
            self._summary.add(known)
            self._doubts.add(known)
            if self._on_finding is not None:
                self._on_finding(known)

    def _context(
        self,
        configs: dict[str, ConfigFile],
        queues: _CheckedQueues,
        index: reach.IndexFiles,
        second: _CheckedQueues | None,
    ) -> VerifyContext:
        known = topics(configs[TOPICS]) if TOPICS in configs else {}
        whole = whole_topics(configs[TOPICS]) if TOPICS in configs else None
        batch = frozenset(map(topic_bytes, batch_topics(known, (topic for topic, _ in self.store.batch_queues))))
        rules = self.rules
        has_light_queues = any(topic.startswith(LMQ_PREFIX) for topic, _ in self.store.queues)
        if rules.multi_dispatch is MultiDispatch.NONE and has_light_queues:  # written by a version that knows them
            rules = replace(rules, multi_dispatch=rules_for(NEWEST).multi_dispatch)
        context = VerifyContext(
            self.store,
            self.rules,
            self.options,
            DispatchSettings(rules, batch_topics=frozenset() if self.store.queue_database else batch).with_entered(
                self.store
            ),
            queues.plain,
            queues.batch,
            queues.order,
            index=tuple(index.maps),
            unchecked_topics=frozenset(map(topic_bytes, compacted_topics(known))),
            shown_topics=shown_topics(self.store) if self._looks_beside else None,
            whole_topics=None if whole is None else frozenset(map(topic_bytes, whole)),
            is_index_known=index.is_known,
            has_indexed_tags=not self.rules.index_tags and has_indexed_tags(self.store),
        )
        newest, size = reach.newest_record(context)
        context = replace(context, newest_unit=newest, dispatched_end=self._dispatched_end(context, newest))
        if self.options.broker_runs:
            context = replace(context, live_end=newest + size if newest >= 0 else self.store.log_start)
        if second is None or second.order is None:  # no database beside files, or none that can be compared
            return context
        of_second = replace(context, queues=second.plain, order=second.order, dispatched_end=second.dispatched)
        return replace(context, second=replace(of_second, batch_queues={}, index=()))

    def _dispatched_end(self, context: VerifyContext, newest: int) -> int:
        """Offset after the start of the last record that was dispatched, as far as queues and index show it."""
        end = context.store.log_end
        database = context.store.queue_database
        if database is not None and context.has_all_queues:
            return database.dispatched or 0
        if newest < 0 and not context.store.has_abort:
            return end  # a clean stop waits until all is dispatched
        indexed = (reach.newest_start(file.entries, end)[1] for file in context.index)
        return max((newest, *indexed)) + 1

    # Queues and index alone

    def _check_queue_files(self, *, is_batch: bool) -> QueueMaps:
        look = QueueLook(self.store, self._account, self.options.cache, self.store.log_start, is_batch=is_batch)
        maps = QueueMaps()
        held = {FILLER} if is_batch else {FILLER, ORDER}  # a batch unit fits its record wherever it stands
        for seen in self._threads.map(look, look.queues):
            queue = seen.result
            self._say(one for one in seen.findings if one.id not in held)
            self._held += [one for one in seen.findings if one.id in held]
            self._summary.unit_count += queue.unit_count
            look.note(seen)
            maps.add(queue_key(queue.topic, queue.queue_id), queue)
        self._seen_files += look.seen
        return maps

    def _check_database(self, database: QueueDatabase) -> _CheckedQueues:
        self._say(database_findings(database, self.store.log_start))
        self._summary.unit_count += sum(units.unit_count for units in database.units.values())
        if database.failure is not None:
            return _CheckedQueues({})
        order = LogOrder(database, self.store.log_start, self.store.log_end)
        return _CheckedQueues(DatabaseQueues(database), order, dispatched=database.dispatched or 0)

    def _check_index(self) -> reach.IndexFiles:
        index = reach.read_index(self.store, self._account, self.options.cache)
        self._say(index.findings)
        self._seen_files += index.seen
        self._summary.entry_count += sum(file.count for file in index.maps)
        if not index.is_known:
            text = "nothing shows the number of its hash slots"
            self._leave_out(UnreadFiles("index", FileKind.INDEX.value, text))
        return index

    # The log

    def _check_log(self, context: VerifyContext, state: State) -> _Log:
        segments, findings = openable_segments(self.store, self._account)
        self._say(findings)
        scan = ScanOptions(
            compiled=self.options.compiled,
            block_size=DISPATCH_BLOCK_SIZE,
            cache=self.options.cache,
            columns_only=context.live_end is None,
            keys_of=context.index_rules.version if context.crosses else None,
        )
        with open_log(self.store.view.open, segments, scan, finds_crc=True) as table:
            results = list(self._splits(context, state, table, segments))
        self._summary.splits = len(table.splits)
        self._summary.splits_done = len(results)
        for result in results:
            account = self._account.file(result.path, result.file_size)
            account.checked += result.checked_bytes
            account.reported += result.reported_bytes
            account.zero_tail += result.tail_bytes
            account.left_out += result.left_out_bytes
            self._summary.record_count += result.record_count
        for segment in segments[len(table.splits) :]:
            account = self._account.file(segment.path, segment.size)
            account.zero_tail += max(0, account.open_bytes)
        complete = len(results) == len(table.splits) and len(segments) == len(self.store.commitlog)
        if not complete:
            text = f"{len(results)} of {len(self.store.commitlog)} files were checked"
            self._leave_out(_part_of_log(text))
        return _Log(merge(results), complete, frozenset(result.path for result in results))

    def _splits(
        self, context: VerifyContext, state: State, table: RecordTable, segments: list[Segment]
    ) -> Iterator[SplitResult]:
        """Results of the chosen splits in the order of the log; findings are emitted at once."""
        numbers = self._chosen(len(table.splits))
        limit = self.options.duration_max_s
        until = None if limit is None else time.time() + limit - (time.monotonic() - self._begun)
        seen_before = SeenSplits(context, table, self._seen_files)
        known = {
            number: state.result(segments[number]) or seen_before.result(table.splits[number]) for number in numbers
        }
        fresh = [(table.splits[number], segments[number].path) for number in numbers if known[number] is None]
        done_bytes, total = 0, sum(split.source.size for split, _ in fresh)
        check = SplitCheck(context, table.scan, until)
        results: Iterator[SplitResult | None]
        if self._runner is self._threads:  # of this process, which share a large split; other runners get it whole
            results = check_in_parallel(check, fresh, self._threads, self.options.parts)
        else:
            results = self._runner.map(check, fresh)
        for number in numbers:
            known_result = known.pop(number)
            result = known_result or next(results)
            if result is None:
                continue
            state.add(segments[number], result)
            seen_before.keep(table.splits[number], result)
            has_entries = segments[number].has_entries
            self._say(one for one in result.findings if not (has_entries and one.id in OF_ENTRIES))
            result.findings = []
            done_bytes += result.file_size if known_result is None else 0
            if self._on_progress is not None:
                self._on_progress(done_bytes, total)
            yield result

    def _chosen(self, count: int) -> list[int]:
        """Numbers of the splits that slice and sample leave."""
        options = self.options
        numbers = list(range(options.slice_number - 1, count, options.slice_count))
        sample_size = max(1, round(len(numbers) * options.sample)) if numbers else 0
        return [numbers[at * len(numbers) // sample_size] for at in range(sample_size)]

    # What all splits together say

    def _held_findings(
        self, removed: RemovedMessages, outside: Iterable[Finding], *, is_compared: bool
    ) -> Iterator[Finding]:
        """Findings about queues alone, but for those that the log explains: a rebuild changes nothing there.

        Args:
            outside: findings about units that lead out of the log, whose records say nothing.
        """
        unknown = {queue_key(one.topic or "", one.queue_id or 0) for one in outside} | self._doubts.queues
        for one in self._held:
            is_wrong = not is_compared or queue_key(one.topic or "", one.queue_id or 0) in unknown
            if one.id == ORDER:
                text = f"{one.message}, as the records themselves say"
                yield one if is_wrong else replace(one, severity=Severity.NOTE, message=text, repair=None)
            elif removed.explains(one):
                text = f"{one.message}, where the messages were removed"
                yield replace(one, severity=Severity.NOTE, message=text, repair=None)
            else:
                yield one

    def _finish(self, context: VerifyContext, configs: dict[str, ConfigFile], log: _Log | None) -> None:
        whole = log.merged if log is not None and log.complete else None
        removed = RemovedMessages()
        if log is not None and context.crosses:
            removed = removed_messages(context, missing_in_files(context, log.merged.missing))
            log.merged.missing = removed.lacking
            log.merged.last_unseen = max(log.merged.last_unseen, removed.last_physical_offset)
            self._summary.removed_before = {topic_text(topic): end for topic, end in removed.ends.items()}
            self._say(removed.findings(context))
            self._say(missing_findings(context, removed.lacking))
            if context.second is not None:
                lacking = removed_messages(context.second, log.merged.missing_in_second).lacking
                self._say(second_findings(context.second, lacking, whole))
        below, ahead = list(reach.units_below(context)), list[Finding]()
        if whole is not None and context.live_end is None:
            ahead = list(reach.units_ahead(context, max(whole.scanned_end, whole.end)))
        is_compared = whole is not None and context.crosses
        self._say(self._held_findings(removed, [*below, *ahead], is_compared=is_compared))
        self._say(below)
        if whole is not None:
            self._summary.log_begin, self._summary.log_end = whole.begin, whole.end
            if context.live_end is None:
                end = max(whole.scanned_end, whole.end)
                self._say(ahead)
                self._say(
                    new_finding for file in context.index for new_finding in reach.entries_outside(context, file, end)
                )
                self._say(epochs_ahead(self.store, whole.end))
                self._say(log_end_findings(self.store.queue_database, whole.end))
                if not self.store.has_dledger_log:
                    into = partial(reach.units_into, context)
                    self._say(missing_begin(self.store, whole.end, reach.newest_record(context), into))
                    self._say(missing_end(self.store, whole.end, into))
                if context.crosses:
                    unconfigured = [run for run in removed.removed if removed.ends[run.topic] == OFFSETS_END]
                    unqueued = [*whole.missing, *unconfigured, *removed.doubtful]
                    self._say(undispatched_header_findings(context, unqueued, self._doubts))
                    self._say(zero_queues(context, whole.missing))
            if context.crosses:
                self._say(reach.index_findings(context, whole, readable_checkpoint(self.store)))
        self._say(checkpoint_findings(context, self._account, whole))
        self._say(lost_configs(self.store, self.rules, configs))
        self._say(topics_of_nobody(self.store, self.rules, configs))
        self._say(config_findings(context, configs, whole))
        if self._looks_beside and whole is not None:
            self._say(transaction_findings(self.store, self.rules, queue_ends(context.queues, whole)))


def _part_of_log(reason: str, read_by: ReadBy = ReadBy.BROKER) -> UnreadFiles:
    return UnreadFiles(_LOG, FileKind.COMMITLOG.value, reason, read_by)


# Remembers which splits of the log are done, so that a run with a time limit continues where the last one stopped.
# The file is JSON and lies wherever the person wants it, never in the store. A split counts as done as long as its file
# has the same size and modification time.

_FORMAT: Final = "rmqtool-verify-state-2"
_SIZE_MAX: Final = 1 << 30
_MISSING: Final = ("missing", "missing_in_second")


_Number = Annotated[int, msgspec.Meta(ge=0, le=JAVA_LONG_MAX)]
_Signed = Annotated[int, msgspec.Meta(ge=-JAVA_LONG_MAX - 1, le=JAVA_LONG_MAX)]
_Run = tuple[str, _Signed, bool, _Signed, _Number, _Number, _Number, _Number, bool, bool]


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    physical_offset: _Number
    path: str
    begin: _Number
    end: _Number
    last_record: tuple[_Number, _Signed] | None
    first_timestamp_ms: _Signed
    last_unseen: _Signed
    newest_ms: _Signed
    scanned_end: _Number
    findings: list[Finding]
    missing: list[_Run]
    missing_in_second: list[_Run]
    missing_keys: list[tuple[_Number, _Number, _Number, bool, bool]]
    record_count: _Number
    keyed_count: _Number
    file_size: _Number
    checked_bytes: _Number
    tail_bytes: _Number
    reported_bytes: _Number
    left_out_bytes: _Number


@dataclass
class State:
    """The splits that are done, by path, for the `rules` and the `depth`."""

    path: Path | None
    rules: str
    depth: str
    done: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path | None, rules: str, depth: str, root: str) -> State:
        """The state in a file; an empty one where there is none, or it is of other rules. RefusedError if the file is
        no state of `verify`, or would lie in the store, UnreadableError if it may not be read.
        """
        state = cls(path, rules, depth)
        if path is None:
            return state
        if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
            raise RefusedError(f"{path}: the state file must be outside the store, because verify never writes to it")
        raw = read_own(path, OwnFile.VERIFY_STATE, _SIZE_MAX)
        if raw is None:
            return state
        try:
            document = json.loads(raw)
            known, made_for = document["format"] == _FORMAT, (document["rules"], document["depth"])
            if known and made_for == (rules, depth):
                state.done = dict(document["done"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise RefusedError(f"{path}: the state file of verify is damaged; remove it to start again") from error
        if not known:
            raise RefusedError(f"{path}: a state file of another version of verify; remove it to start again")
        return state

    def result(self, segment: Segment) -> SplitResult | None:
        """The result of a split that is done; None where there is none, or it cannot be: the split is checked again."""
        entry = self.done.get(segment.path)
        try:
            if entry is None or entry["file"] != [segment.size, segment.entry.mtime_ns]:
                return None
            stored = msgspec.convert(entry["result"], _Stored)
            runs = {
                name: [Missing(run[0].encode("latin-1"), *run[1:]) for run in getattr(stored, name)]
                for name in _MISSING
            }
        except (KeyError, TypeError, ValueError, RecursionError):
            return None
        result = SplitResult(**{**msgspec.structs.asdict(stored), **runs})
        return result if _can_be(result, segment) else None

    def add(self, segment: Segment, result: SplitResult) -> None:
        """Remember a split and write the file; errors as of `replace_own`."""
        if self.path is None:
            return
        stored = {
            **{name: value for name, value in asdict(result).items() if name != "placed"},
            "findings": [finding.as_json() for finding in result.findings],
            **{name: [[run[0].decode("latin-1"), *run[1:]] for run in getattr(result, name)] for name in _MISSING},
        }
        self.done[segment.path] = {"file": [segment.size, segment.entry.mtime_ns], "result": stored}
        document = {"format": _FORMAT, "rules": self.rules, "depth": self.depth, "done": self.done}
        replace_own(self.path, OwnFile.VERIFY_STATE, json.dumps(document))


def _can_be(result: SplitResult, segment: Segment) -> bool:
    """True if a result accounts for the file that it is of, and names no place outside it."""
    accounted = result.checked_bytes + result.tail_bytes + result.reported_bytes + result.left_out_bytes
    first, end = segment.start, segment.start + segment.size
    places = [result.begin, result.end, result.scanned_end, *(result.last_record or ())[:1]]
    for missing in (*result.missing, *result.missing_in_second):
        places += missing.physical_offset, missing.last_physical_offset
    places += [place for keys in result.missing_keys for place in keys[:2]]
    return (
        (result.path, result.file_size, accounted) == (segment.path, segment.size, segment.size)
        and result.physical_offset == first
        and all(first <= place <= end or place == 0 for place in places)
        and all(finding.id in BY_ID for finding in result.findings)
    )
