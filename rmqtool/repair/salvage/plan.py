"""Plans `salvage`: every good record is kept, whatever lies between; then the store is handed over as by `recover`.

What cannot be read is replaced by records that no broker stumbles over. What a donor, a checksum or the queues know of
it is used first, in this order; only the rest is given up, and each message of it is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from rmqtool.engine.reading.record import Record, read_record
from rmqtool.engine.rules.versions import BrokerRules
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import WriteError
from rmqtool.repair.build.builder import dispatch_settings
from rmqtool.repair.build.request import BuildOptions
from rmqtool.repair.machine.steps import Step
from rmqtool.repair.recover.log_steps import damage_in, is_misnamed, shape_steps
from rmqtool.repair.recover.plan import RecoverOptions, Recovery, plan_recover
from rmqtool.repair.salvage.damage_context import DamageContext, Neighbor, scan_context
from rmqtool.repair.salvage.damaged_ranges import DamagedRange, damaged_ranges, is_too_far
from rmqtool.repair.salvage.draft import LogDraft
from rmqtool.repair.salvage.header_repair import DOUBTFUL, corrected_record, moved_record
from rmqtool.repair.salvage.layout import Filling, lay_out, parts_of
from rmqtool.repair.salvage.lost_records import LostInRange, LostRecord, LostRecords, place_missing
from rmqtool.repair.salvage.multi_dispatch import add_further
from rmqtool.repair.salvage.record_repair import NEEDS_CONSENT, RepairedRecord, possible_repairs
from rmqtool.repair.salvage.replica import Replica
from rmqtool.repair.salvage.result import SalvageResult
from rmqtool.repair.salvage.tombstones import TombstoneEncoder
from rmqtool.scan.log import ScanOptions, carries_record_crc, plan_segments
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.scan.runner import OnProgress
from rmqtool.store.directory import Store, survey
from rmqtool.store.source import read_range, reason
from rmqtool.verify.catalog.finding import Finding, Severity
from rmqtool.verify.match.queue_order import MisplacedRecord
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import VerifyOptions

WHY = "replace unreadable records with tombstones"
UNREADABLE: Final = FINDING_IDS[Verdict.UNREADABLE_RANGE]
NAMED_MAX: Final = 20
"""Heads that are left and named one by one."""
ROUNDS_MAX: Final = 4
"""How often heads that turn out to be wrong only once what lies around them is mended are set right."""


@dataclass(frozen=True)
class SalvageOptions:
    """What a person may choose.

    Attributes:
        donors: other copies of the log, tried in this order.
        mending: ways of keeping damaged records that a person agreed to; the others need no consent.
        show_lost: leave tombstones to be seen by consumers, instead of hiding them behind units that cannot be read.
        threads: of the check.
    """

    build: BuildOptions = field(default_factory=BuildOptions)
    donors: tuple[Replica, ...] = ()
    mending: frozenset[RepairedRecord] = frozenset()
    show_lost: bool = False
    threads: int = 2


@dataclass(frozen=True)
class Salvage:
    """The steps of both parts, and what a person should know beside them.

    Attributes:
        drafted_from: the store with all its files of the right size, before the log was mended.
        drafted: the store with its log mended.
    """

    steps: tuple[Step, ...]
    recovery: Recovery
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

    Args:
        staging: an empty directory, which must stay until the plan is applied.

    Raises:
        UnsupportedError: the log is kept by DLedger.
        UnreadableError, WriteError: a file of the store, or the staging directory, fails.
    """
    options = options or SalvageOptions()
    shape = tuple(shape_steps(store, staging, keep_empty=True))
    with LogDraft(store.view, shape, staging, store.commitlog_file_size or 0) as draft:
        run = _Salvage(store, rules, options, draft)
        before = run.drafted
        run.mend_log(on_progress)
        build = replace(options.build, shows_tombstones=options.show_lost)
        for round_number in range(ROUNDS_MAX + 1):
            recovery = plan_recover(
                run.drafted,
                rules,
                _made(staging / f"round-{round_number}"),
                RecoverOptions(
                    build, full=True, threads=options.threads, built_anew=run.queues, tolerates=run.tolerates
                ),
                on_progress,
            )
            if not recovery.damage or not run.mend_heads(recovery.damage, is_last=round_number >= ROUNDS_MAX - 1):
                break
        # A bridge that does not carry all the way is no use.
        steps: tuple[Step, ...] = ()
        if not recovery.damage:
            rest = tuple(draft.take_over(recovery.steps))
            steps = (*draft.steps(WHY), *rest)
        return Salvage(steps, recovery, run.outcome, tuple(run.notes), before, run.drafted)


class _Salvage:
    """One run; see `plan_salvage`."""

    def __init__(self, store: Store, rules: BrokerRules, options: SalvageOptions, draft: LogDraft) -> None:
        self._rules, self._options, self._draft = rules, options, draft
        self._settings = replace(store.settings, commitlog_file_size=store.commitlog_file_size)
        self._dispatch = dispatch_settings(store, rules, options.build)
        self._record_crc = False
        self.drafted = survey(draft.view(), self._settings)
        self.outcome = SalvageResult()
        self.notes: list[str] = []
        self.queues: set[tuple[str, int]] = set()
        """Queues that lost a message, which are built again in any case."""
        self._left: set[int | None] = set()
        """Physical offsets of records whose heads are wrong, and stay as they are."""
        self._tolerates_all = False

    def tolerates(self, finding: Finding) -> bool:
        """Whether damage stays that does not matter to whoever walks over the log."""
        return finding.id == DOUBTFUL and (self._tolerates_all or finding.physical_offset in self._left)

    def mend_heads(self, damage: Sequence[Finding], *, is_last: bool) -> bool:
        """Set heads right that were found to be wrong behind all else; whether there is nothing else, so that it helps.

        Args:
            is_last: let be what else turns up.
        """
        if any(finding.id != DOUBTFUL for finding in damage):
            return False
        with OpenFiles(self.drafted.view) as files:
            self._correct_all(Log(self.drafted, self._rules, files), damage)
        self._renew()
        self._tolerates_all = is_last
        return True

    def mend_log(self, on_progress: OnProgress | None) -> None:
        """Draft the log."""
        findings: list[Finding] = []
        build = self._options.build
        checked = VerifyOptions(threads=self._options.threads, compiled=build.compiled, digest=build.digest)
        verify_store(self.drafted, self._rules, checked, findings.append, on_progress)
        damage = damage_in(findings)
        ranges = damaged_ranges(self.drafted, findings, self._options.build.delays_ms)
        self.outcome.ranges = ranges
        self._note_unreadable(findings)
        self.notes += [
            f"{defect.message}: too many to rebuild; more likely the next file has a wrong name; brokers skip the gap"
            for defect in findings
            if is_too_far(defect, self.drafted.commitlog_file_size or 1)
        ]
        doubtful = [defect for defect in damage if defect.id == DOUBTFUL]
        is_content = not ranges and not doubtful and not any(map(_is_about_queues, findings))
        if is_content or any(map(is_misnamed, findings)):  # without a right name nobody knows where bytes belong
            return
        self._record_crc = (self._options.build.record_crc and self._rules.record_crc) or self._finds_record_crc()
        with OpenFiles(self.drafted.view) as files:
            log = Log(self.drafted, self._rules, files)
            self._correct_all(log, doubtful)
            lost = LostRecords(self.drafted, log, ranges, record_crc=self._record_crc)
            rest = self._from_donors(ranges)
            rest = [part for each in rest for part in each.without(self._mended(lost, each))]
            self._renew()
            self._bridge(lost, rest)
        self._renew()

    def _renew(self) -> None:
        """Look at the draft as it is now."""
        self.drafted = survey(self._draft.view(), self._settings)

    def _finds_record_crc(self) -> bool:
        with closing(plan_segments(self.drafted.view.open, self.drafted.commitlog)) as plan:
            return carries_record_crc(plan.splits)

    def _note_unreadable(self, findings: Sequence[Finding]) -> None:
        count = sum(finding.length or 0 for finding in findings if finding.id == UNREADABLE)
        if count:
            self.notes.append(
                f"the disk cannot read all of {count} bytes of the commit log: undo restores zeros for the rest"
            )

    def _correct_all(self, log: Log, doubtful: Sequence[Finding]) -> None:
        """Set doubtful heads right where it is known what is right."""
        unknown = 0
        for finding in doubtful:
            record = corrected_record(log, finding, record_crc=self._record_crc)
            if record is not None and finding.physical_offset is not None:
                is_named = finding.topic is not None and finding.queue_id is not None
                queues = [(finding.topic or "", finding.queue_id or 0)] if is_named else []
                self._put_in_place(log, finding.physical_offset, record, queues)
                continue
            unknown += 1
            self._left.add(finding.physical_offset)
            stored = read_record(log, finding.physical_offset) if finding.physical_offset is not None else None
            if stored is not None:
                self.queues.add((stored.topic, stored.queue_id))  # there its message is served, if anywhere
            if unknown <= NAMED_MAX:
                self.notes.append(f"{finding.message}: left as it is, because nothing shows the right value")
        if unknown > NAMED_MAX:
            self.notes.append(f"{unknown - NAMED_MAX} more records with wrong headers are left for the same reason")

    def _put_in_place(self, log: Log, physical_offset: int, record: bytes, queues: Sequence[tuple[str, int]]) -> None:
        """Draft a record with another head."""
        place = log.place(physical_offset)
        assert place is not None, "it was copied from there"
        start, stop = physical_offset, physical_offset + len(record)
        one = DamagedRange(place.path, start - place.file_position, log.file_size, start, stop, (start,))
        self._draft.claim(one)
        self._draft.write(one, start, record)
        self.outcome.mended[RepairedRecord.HEAD] += 1
        self.queues.update(queues)

    def _moves_misled(self, lost: LostRecords, misled: Sequence[MisplacedRecord]) -> bool:
        """Set the heads of good records right that their neighbours contradict; whether there are any."""
        moved = 0
        with OpenFiles(self.drafted.view) as files:
            log = Log(self.drafted, self._rules, files)
            for each in misled:
                was = read_record(log, each.physical_offset)
                if was is None or lost.has_unit(was.topic, was.queue_id, was.queue_offset, each.physical_offset):
                    continue
                record = moved_record(log, each, record_crc=self._record_crc)
                if record is not None:
                    queues = [(was.topic, was.queue_id), (each.topic.decode("utf-8", "surrogateescape"), each.queue_id)]
                    self._put_in_place(log, each.physical_offset, record, queues)
                    moved += 1
        return moved > 0

    # From donors

    def _from_donors(self, ranges: Sequence[DamagedRange]) -> list[DamagedRange]:
        """Fill what other copies of the log hold; the parts that stay damaged."""
        for each in ranges:
            self._draft.claim(each)
        if not self._options.donors:
            return list(ranges)
        around = self._look_around(ranges)
        rest: list[DamagedRange] = []
        for each, neighbours in zip(ranges, around.neighbours, strict=True):
            parts = [each]
            for donor in self._options.donors:
                if self._fits(donor, each, neighbours):
                    parts = [part for one in parts for part in one.without(self._filled(donor, one))]
            rest += parts
        return rest

    def _fits(self, donor: Replica, each: DamagedRange, neighbours: tuple[Neighbor | None, Neighbor | None]) -> bool:
        """Whether a donor holds the same log here: the same records next to the damage, as far as its files reach."""
        answers = [donor.knows(neighbour, self._read(neighbour)) for neighbour in neighbours if neighbour is not None]
        if False in answers:
            self.notes.append(f"{donor.name}: it has another commit log around {each.start}; not used there")
            return False
        return True in answers or each.length == each.file_size

    def _read(self, neighbour: Neighbor) -> bytes:
        segment = next(one for one in reversed(self.drafted.commitlog) if one.start <= neighbour.physical_offset)
        with closing(self.drafted.view.open(segment.path)) as source:
            return read_range(source, neighbour.physical_offset - segment.start, neighbour.size)

    def _filled(self, donor: Replica, damaged: DamagedRange) -> Iterator[tuple[int, int]]:
        """Copy a donor's records into a range; the parts that are filled."""
        for run in donor.records(damaged, self._scan):
            self._draft.claim(damaged, run.end)
            self._draft.write(damaged, run.start, run.read())
            self.outcome.donated_bytes += run.end - run.start
            yield run.start, run.end

    # By what the damaged bytes themselves say

    def _mended(self, lost: LostRecords, damaged: DamagedRange) -> Iterator[tuple[int, int]]:
        """Keep the records of a range that can be mended; their places."""
        for record in lost.heads_and_units(damaged):
            mended = self._kept(damaged, record)
            if mended is None:
                continue
            start, end = record.place
            self._draft.claim(damaged, end)
            self._draft.write(damaged, start, mended)
            yield start, end

    def _kept(self, damaged: DamagedRange, record: LostRecord) -> bytes | None:
        """The record's bytes, if they tell what they were or a person agreed to keep them as they are."""
        if record.restored is not None:
            ways = [(RepairedRecord.FRAME, record.restored)]
        elif record.head is not None:
            ways = self._ways(damaged, record.place[0], record.head)
        else:
            return None
        for how, raw in ways:
            if how not in NEEDS_CONSENT or how in self._options.mending:
                self.outcome.mended[how] += 1
                self.queues.update(record.queues)
                return raw
        if ways:
            self.outcome.mendable[ways[0][0]] += 1
        return None

    def _ways(self, damaged: DamagedRange, physical_offset: int, head: Record) -> list[tuple[RepairedRecord, bytes]]:
        with closing(self.drafted.view.open(damaged.path)) as source:
            position = physical_offset - damaged.file_start
            return list(possible_repairs(source, position, physical_offset, head, record_crc=self._record_crc))

    # Over what is lost

    def _bridge(self, lost: LostRecords, ranges: Sequence[DamagedRange]) -> None:
        around = self._look_around(ranges)
        if around.misled and self._moves_misled(lost, around.misled):
            self._renew()
            around = self._look_around(ranges)
        stand_in = TombstoneEncoder(self._rules, self._record_crc)
        lost_in_ranges, missing = lost.of(ranges, around)
        unfilled = add_further(ranges, lost_in_ranges, missing, stand_in.least, self._rules.dispatch_keeps_out)
        place_missing(ranges, lost_in_ranges, unfilled)
        for damaged, casualties, neighbours in zip(ranges, lost_in_ranges, around.neighbours, strict=True):
            fillings = lay_out(damaged, casualties, stand_in.least)
            if fillings is None:
                self.notes.append(f"{damaged.path}: no record fits into the {damaged.length} bytes at {damaged.start}")
                continue
            near = next((each for each in neighbours if each is not None), None)
            time_ms = near.store_timestamp_ms if near is not None else 1
            if fillings:
                self._draft.claim(damaged, fillings[-1].end)
            for part in parts_of(fillings):
                self._draft.write(damaged, part[0].start, stand_in.records(part, time_ms), time_ms)
            self._note_lost(casualties, fillings)

    def _note_lost(self, casualties: LostInRange, fillings: Sequence[Filling]) -> None:
        records = [*casualties.placed, *casualties.unplaced]
        self.outcome.lost += records
        self.outcome.unknown_bytes += sum(
            filling.length for filling in fillings if filling.lost is None and not filling.is_blank
        )
        for record in records:
            self.queues.update(record.queues)

    def _look_around(self, ranges: Sequence[DamagedRange]) -> DamageContext:
        known = replace(self._scan, digest=self._options.build.digest, columns_only=True)
        return scan_context(self.drafted, ranges, self._dispatch, known)

    @property
    def _scan(self) -> ScanOptions:
        """How logs are scanned, a donor's too, now that it is known whether records carry a CRC of their own."""
        build = self._options.build
        return ScanOptions(build.delays_ms, self._record_crc, build.compiled)


def _made(place: Path) -> Path:
    """A directory of its own for each round of planning."""
    try:
        place.mkdir()
    except OSError as error:
        raise WriteError(f"{place}: {reason(error)}") from error
    return place


def _is_about_queues(finding: Finding) -> bool:
    """Whether a queue is not as the log says: perhaps it is the log's head of a record that is wrong."""
    return finding.id.startswith("consumequeue.") and finding.severity is not Severity.NOTE
