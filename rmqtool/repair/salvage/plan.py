"""Plans `salvage`: every good record is kept, whatever lies between; then the store is handed over as by `recover`.

What cannot be read is replaced by records that no broker stumbles over. What a replica, a checksum or the queues know
of it is used first, in this order; only the rest is discarded, and each message of it is named.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Self

from rmqtool.engine.dispatch.queue_entries import DispatchSettings
from rmqtool.engine.reading.record import read_record
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import WriteError
from rmqtool.findings.finding import Finding, Severity
from rmqtool.formats.queue_name import topic_text
from rmqtool.repair.derived.builder import dispatch_settings
from rmqtool.repair.derived.result import BuildOptions
from rmqtool.repair.machine.plan import PlannedRepair
from rmqtool.repair.machine.steps import Step
from rmqtool.repair.recover.log_steps import damage_in, is_misnamed, shape_steps
from rmqtool.repair.recover.plan import RecoverOptions, plan_recover
from rmqtool.repair.salvage.damaged_ranges import (
    DamageContext,
    DamagedRange,
    Neighbor,
    damaged_ranges,
    is_too_far,
    scan_context,
)
from rmqtool.repair.salvage.draft import LogDraft
from rmqtool.repair.salvage.layout import TombstoneEncoder, add_further, lay_out, parts_of
from rmqtool.repair.salvage.lost_records import Belief, LostRecord, LostRecords, place_missing
from rmqtool.repair.salvage.record_repair import (
    DOUBTFUL,
    NEEDS_CONSENT,
    RepairedRecord,
    corrected_record,
    moved_record,
    possible_repairs,
)
from rmqtool.repair.salvage.replica import Replica
from rmqtool.repair.salvage.report import SalvageResult
from rmqtool.scan.log import ScanOptions, open_log
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.scan.runner import OnProgress
from rmqtool.store.directory import Settings, Store, survey
from rmqtool.store.dledger_files import demand_dledger_data, demand_plain_log
from rmqtool.store.source import read_range, reason
from rmqtool.verify.match.queue_order import MisplacedRecord
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import VerifyOptions

UNREADABLE: Final = FINDING_IDS[Verdict.UNREADABLE_RANGE]
NAMED_MAX: Final = 20
"""Headers that are left and named one by one."""
ROUNDS_MAX: Final = 4
"""Limit of repetitions for headers that show as wrong only once the ranges around them are repaired."""


@dataclass(frozen=True)
class SalvageOptions:
    """Options of a person.

    Attributes:
        replicas: other copies of the log, tried in this order.
        agreed: ways of keeping damaged records that a person agreed to; the others need no consent.
        show_lost: leave tombstones to be seen by consumers, instead of hiding them behind units that cannot be read.
        threads: of the check.
    """

    build: BuildOptions = field(default_factory=BuildOptions)
    replicas: tuple[Replica, ...] = ()
    agreed: frozenset[RepairedRecord] = frozenset()
    show_lost: bool = False
    threads: int = 2


@dataclass(frozen=True)
class Salvage:
    """The steps of both parts, with notes for a person.

    Attributes:
        drafted_from: the store with all its files of the right size, before the log was repaired.
        drafted: the store with its log repaired.
    """

    steps: tuple[Step, ...]
    recovery: PlannedRepair
    outcome: SalvageResult
    notes: tuple[str, ...]
    drafted_from: Store
    drafted: Store


def plan_salvage(
    store: Store,
    rules: BrokerRules,
    staging: Path,
    options: SalvageOptions | None = None,
    on_progress: OnProgress | None = None,
) -> Salvage:
    """Check the store, and find the steps that keep all good records and leave it as `recover` does.

    Raises:
        UnsupportedError: the log or its end is kept by DLedger.
    """
    options = options or SalvageOptions()
    demand_plain_log(store, repairs=True)
    demand_dledger_data(store)
    shape = tuple(shape_steps(store, staging, keep_empty=True))
    with LogDraft(store.view, shape, staging, store.commitlog_file_size or 0) as draft:
        planner = _Planner.of(store, rules, options, draft)
        before = planner.survey_draft()
        result, drafted = planner.draft_log(before, on_progress)
        build = replace(options.build, shows_tombstones=options.show_lost)
        for round_number in range(ROUNDS_MAX + 1):
            tolerates = partial(_tolerates, frozenset(result.left), tolerates_all=round_number >= ROUNDS_MAX)
            place = staging / f"round-{round_number}"
            try:
                place.mkdir()
            except OSError as error:
                raise WriteError(f"{place}: {reason(error)}") from error
            rebuilt = frozenset(result.queues)
            recover = RecoverOptions(build, full=True, threads=options.threads, rebuilt=rebuilt, tolerates=tolerates)
            recovery = plan_recover(drafted, rules, place, recover, on_progress)
            if not recovery.damage or any(finding.id != DOUBTFUL for finding in recovery.damage):
                break
            # Headers that were found to be wrong only after all else was repaired.
            with OpenFiles(drafted.view) as files:
                result += planner.correct_headers(Log(drafted, rules, files), recovery.damage)
            drafted = planner.survey_draft()
        # A bridge that does not carry all the way is no use.
        steps: tuple[Step, ...] = ()
        if not recovery.damage:
            rest = tuple(draft.take_over(recovery.steps))
            steps = (*draft.steps(result.why), *rest)
        return Salvage(steps, recovery, result, tuple(result.notes), before, drafted)


def _tolerates(left: AbstractSet[int | None], finding: Finding, *, tolerates_all: bool) -> bool:
    """True if damage stays that does not matter to a walk over the log."""
    return finding.id == DOUBTFUL and (tolerates_all or finding.physical_offset in left)


@dataclass(frozen=True)
class _Planner:
    """Steps that draft a log: each takes the store of the last survey, writes into the draft, and returns its result.
    What it wrote is seen in the next `survey_draft`.

    Attributes:
        dispatch: how the store's broker dispatches.
        scan: how logs are scanned, a replica's too.
    """

    rules: BrokerRules
    options: SalvageOptions
    draft: LogDraft
    settings: Settings
    dispatch: DispatchSettings
    scan: ScanOptions

    @classmethod
    def of(cls, store: Store, rules: BrokerRules, options: SalvageOptions, draft: LogDraft) -> Self:
        build = options.build
        settings = replace(store.settings, commitlog_file_size=store.commitlog_file_size)
        drafted = survey(draft.view(), settings)
        scan = ScanOptions(build.delays_ms, build.record_crc and rules.record_crc, build.compiled)
        if not scan.record_crc:
            with open_log(drafted.view.open, drafted.commitlog, scan, finds_crc=True) as table:
                scan = replace(scan, record_crc=table.scan.record_crc)
        return cls(rules, options, draft, settings, dispatch_settings(store, rules, build), scan)

    def survey_draft(self) -> Store:
        return survey(self.draft.view(), self.settings)

    def draft_log(self, store: Store, on_progress: OnProgress | None) -> tuple[SalvageResult, Store]:
        """Draft the log; return the result, and the store with it."""
        findings: list[Finding] = []
        build = self.options.build
        checked = VerifyOptions(threads=self.options.threads, compiled=build.compiled, cache=build.cache)
        verify_store(store, self.rules, checked, findings.append, on_progress)
        ranges = damaged_ranges(store, findings, build.delays_ms)
        result = SalvageResult(ranges=ranges, notes=list(_notes(findings, store.commitlog_file_size or 1)))
        doubtful = [defect for defect in damage_in(findings) if defect.id == DOUBTFUL]
        # Where a queue does not match the log, perhaps the header of a record in the log is wrong.
        about_queues = [finding for finding in findings if finding.id.startswith("consumequeue.")]
        is_content = not ranges and not doubtful and all(one.severity is Severity.NOTE for one in about_queues)
        if is_content or any(map(is_misnamed, findings)):  # without a right name nobody knows where bytes belong
            return result, store
        with OpenFiles(store.view) as files:
            log = Log(store, self.rules, files)
            result += self.correct_headers(log, doubtful)
            lost = LostRecords(store, log, ranges, record_crc=self.scan.record_crc)
            rest, given = self.copy_from_replicas(store, ranges)
            rest, kept = self.keep_damaged(store, lost, rest)
            result += given + kept
            result += self.fill_with_tombstones(self.survey_draft(), lost, rest)
        return result, self.survey_draft()

    def correct_headers(self, log: Log, doubtful: Sequence[Finding]) -> SalvageResult:
        result, unknown = SalvageResult(), 0
        for finding in doubtful:
            record = corrected_record(log, finding, record_crc=self.scan.record_crc)
            if record is not None and finding.physical_offset is not None:
                is_named = finding.topic is not None and finding.queue_id is not None
                self._draft_record(log, finding.physical_offset, record)
                result.repaired[RepairedRecord.HEAD] += 1
                result.queues += [(finding.topic or "", finding.queue_id or 0)] if is_named else []
                continue
            unknown += 1
            result.left.append(finding.physical_offset)
            stored = read_record(log, finding.physical_offset) if finding.physical_offset is not None else None
            if stored is not None:
                result.queues.append((stored.topic, stored.queue_id))  # there its message is served, if anywhere
            if unknown <= NAMED_MAX:
                result.notes.append(f"{finding.message}: left as it is, because nothing shows the right value")
        if unknown > NAMED_MAX:
            result.notes.append(f"{unknown - NAMED_MAX} more records with wrong headers are left for the same reason")
        return result

    def correct_misplaced(
        self, store: Store, lost: LostRecords, misplaced_records: Sequence[MisplacedRecord]
    ) -> SalvageResult:
        """Correct the headers of good records that their neighbors contradict."""
        result = SalvageResult()
        with OpenFiles(store.view) as files:
            log = Log(store, self.rules, files)
            for misplaced in misplaced_records:
                was = read_record(log, misplaced.physical_offset)
                if was is None or lost.has_unit(was.topic, was.queue_id, was.queue_offset, misplaced.physical_offset):
                    continue
                record = moved_record(log, misplaced, record_crc=self.scan.record_crc)
                if record is not None:
                    self._draft_record(log, misplaced.physical_offset, record)
                    result.repaired[RepairedRecord.HEAD] += 1
                    topic = topic_text(misplaced.topic)
                    result.queues += [(was.topic, was.queue_id), (topic, misplaced.queue_id)]
        return result

    def _draft_record(self, log: Log, physical_offset: int, record: bytes) -> None:
        place = log.place(physical_offset)
        assert place is not None, "it was read from there"
        start, stop = physical_offset, physical_offset + len(record)
        one = DamagedRange(place.path, start - place.file_position, log.file_size, start, stop, (start,))
        self.draft.write(one, start, record)

    def copy_from_replicas(
        self, store: Store, ranges: Sequence[DamagedRange]
    ) -> tuple[list[DamagedRange], SalvageResult]:
        """Fill ranges from other copies of the log; return the parts that stay damaged."""
        result = SalvageResult()
        for damaged in ranges:
            self.draft.claim(damaged)
        if not self.options.replicas:
            return list(ranges), result
        around = self._context(store, ranges)
        rest: list[DamagedRange] = []
        for damaged, neighbors in zip(ranges, around.neighbors, strict=True):
            parts = [damaged]
            records = [(one, _bytes_of(store, one)) for one in neighbors if one is not None]
            for replica in self.options.replicas:
                answers = [replica.knows(*record) for record in records]
                if False in answers:
                    result.notes.append(
                        f"{replica.name}: it has another commit log around {damaged.start}; not used there"
                    )
                elif True in answers or damaged.length == damaged.file_size:
                    still_damaged: list[DamagedRange] = []
                    for part in parts:
                        filled: list[tuple[int, int]] = []
                        for run in replica.records(part, self.scan):
                            self.draft.write(part, run.start, run.read())
                            filled.append((run.start, run.end))
                        result.replica_bytes += sum(end - start for start, end in filled)
                        still_damaged += part.without(filled)
                    parts = still_damaged
            rest += parts
        return rest, result

    def keep_damaged(
        self, store: Store, lost: LostRecords, ranges: Sequence[DamagedRange]
    ) -> tuple[list[DamagedRange], SalvageResult]:
        """Keep damaged records that their own bytes identify, or as a person agreed to; return the parts that stay."""
        result, rest = SalvageResult(), list[DamagedRange]()
        belief = functools.cache(lambda: Belief(self._context(store, ranges)))
        for damaged in ranges:
            places: list[tuple[int, int]] = []
            for record in lost.heads_and_units(damaged):
                if record.tells_earlier_place and not belief().has_room(record):
                    continue  # an old record's bytes, and no message of this place
                ways = self._possible_ways(store, damaged, record)
                agreed = [way for way in ways if way[0] not in NEEDS_CONSENT or way[0] in self.options.agreed]
                if not agreed:
                    result.repairable.update(how for how, _ in ways[:1])
                    continue
                how, raw = agreed[0]
                result.repaired[how] += 1
                result.queues += record.queues
                places.append(record.place)
                self.draft.write(damaged, record.place[0], raw)
            rest += damaged.without(places)
        return rest, result

    def _possible_ways(
        self, store: Store, damaged: DamagedRange, record: LostRecord
    ) -> list[tuple[RepairedRecord, bytes]]:
        if record.restored is not None:
            return [(RepairedRecord.FRAME, record.restored)]
        if record.head is None:
            return []
        start = record.place[0]
        with closing(store.view.open(damaged.path)) as source:
            position = start - damaged.file_start
            return list(possible_repairs(source, position, start, record.head, record_crc=self.scan.record_crc))

    def fill_with_tombstones(self, store: Store, lost: LostRecords, ranges: Sequence[DamagedRange]) -> SalvageResult:
        """Lay tombstones and bridges over what is lost, once headers are right that good records contradict."""
        around, result = self._context(store, ranges), SalvageResult()
        if around.misplaced and (moved := self.correct_misplaced(store, lost, around.misplaced)).repaired:
            result += moved
            around = self._context(self.survey_draft(), ranges)
        encoder = TombstoneEncoder(self.rules, self.scan.record_crc)
        lost_in_ranges, missing = lost.of(ranges, around)
        unfilled = add_further(ranges, lost_in_ranges, missing, encoder.least, self.rules.dispatch_keeps_out)
        place_missing(ranges, lost_in_ranges, unfilled)
        for damaged, losses, neighbors in zip(ranges, lost_in_ranges, around.neighbors, strict=True):
            fillings = lay_out(damaged, losses, encoder.least)
            if fillings is None:
                text = f"no record fits into the {damaged.length} bytes at {damaged.start}"
                result.notes.append(f"{damaged.path}: {text}")
                continue
            near = next((neighbor for neighbor in neighbors if neighbor is not None), None)
            time_ms = near.store_timestamp_ms if near is not None else 1
            for part in parts_of(fillings):
                self.draft.write(damaged, part[0].start, encoder.records(part, time_ms), time_ms, part[-1].end)
            records = [*losses.placed, *losses.unplaced]
            result.lost += records
            result.queues.extend(name for record in records for name in record.queues)
            bridges = (filling for filling in fillings if filling.lost is None and not filling.is_blank)
            result.unknown_bytes += sum(bridge.length for bridge in bridges)
        return result

    def _context(self, store: Store, ranges: Sequence[DamagedRange]) -> DamageContext:
        known = replace(self.scan, cache=self.options.build.cache, columns_only=True)
        return scan_context(store, ranges, self.dispatch, known)


def _bytes_of(store: Store, record: Neighbor) -> bytes:
    segment = next(one for one in reversed(store.commitlog) if one.start <= record.physical_offset)
    with closing(store.view.open(segment.path)) as source:
        return read_range(source, record.physical_offset - segment.start, record.size)


def _notes(findings: Sequence[Finding], file_size: int) -> Iterator[str]:
    """Remaining problems of the log, with their reasons."""
    count = sum(finding.length or 0 for finding in findings if finding.id == UNREADABLE)
    if count:
        yield f"the disk cannot read all of {count} bytes of the commit log: undo restores zeros for the rest"
    for finding in findings:
        if is_too_far(finding, file_size):
            text = "too many to rebuild; more likely the next file has a wrong name; brokers skip the gap"
            yield f"{finding.message}: {text}"
