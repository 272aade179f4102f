"""Findings that a check of the store, as the plan leaves it, still has, each with the reason.

A repair ends with exit code 0 only where nothing is left. The check runs over the planned store, before anything is
changed, and reads a bounded part of the log: all of a log that is small, else what the plan looked at. Where that is
large too, queues and index are checked alone, and what the planner's own check has found in the log and no step
changes is left as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.findings.finding import BACKUP_BETTER, Finding, Severity
from rmqtool.findings.registry import BY_ID
from rmqtool.repair.derived.log_window import window_of
from rmqtool.repair.machine.plan import PlannedRepair, Remaining
from rmqtool.repair.machine.steps import Step, WriteRange
from rmqtool.scan.row_cache import RowCache
from rmqtool.sides.kinds import PLANS, side_kinds
from rmqtool.store.config.config_kinds import TOPICS
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.verify.match.removed_messages import DELETED, MAY_BE_DELETED
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import Depth, VerifyOptions

READ_AGAIN_MAX: Final = 1 << 30
"""Bytes of the log that are read once more, a second or two."""
ABORT: Final = "store.abort-present"
FULL: Final = "recover --full"
"""The command that repairs the rest after a bounded plan."""
OWN: Final = ".rmqtool/"
"""Where the repair itself keeps its files, which are none of the store."""


@dataclass(frozen=True)
class PlanCheck:
    """Result of a check of a store as a plan leaves it.

    Attributes:
        left: what it still has.
        begin: physical offset from which on the log was read, for the plan or for this check; None where all of it was.
        looked_at: kinds of files beside log, queues and index that were checked too.
        explained: kinds and files of what is no more than a note.
    """

    left: tuple[Remaining, ...]
    begin: int | None
    looked_at: frozenset[FileKind] = frozenset()
    explained: frozenset[tuple[str, str]] = frozenset()


def scope_of(store: Store, begin: int | None, read_again_max: int = READ_AGAIN_MAX) -> tuple[Store, Depth]:
    """The part of a repaired store that is checked, and how deep."""
    window = store if begin is None else window_of(store, begin).store
    for part in (store, window):
        if sum(segment.entry.allocated_bytes for segment in part.commitlog) <= read_again_max:
            return part, Depth.FULL
    return window, Depth.STRUCTURE


def check_planned(
    after: Store,
    rules: BrokerRules,
    planned: PlannedRepair,
    *,
    threads: int = 1,
    read_again_max: int = READ_AGAIN_MAX,
    cache: RowCache | None = None,
) -> PlanCheck:
    """Check a store as a plan leaves it.

    Args:
        read_again_max: bytes of the log that may be read.
        cache: is told what is seen of the log.
    """
    part, depth = scope_of(after, planned.begin, read_again_max)
    findings: list[Finding] = []
    is_all = part is after and depth is Depth.FULL
    options = VerifyOptions(depth=depth, threads=threads, cache=cache, timer=part is after)
    verify_store(part, rules, options, findings.append)
    if depth is not Depth.FULL:
        findings += [
            finding
            for finding in planned.findings
            if finding.id.startswith("commitlog.") and not _is_changed(finding, planned.steps)
        ]
    unanswered = {finding.topic for finding in findings if finding.id == DELETED}
    # A repaired configuration no longer shows that nobody knows it.
    findings += [one for one in planned.findings if one.id == MAY_BE_DELETED and one.topic in unanswered]
    left = {
        (finding.id, finding.file, finding.file_position, finding.message): finding
        for finding in findings
        if finding.severity is not Severity.NOTE and not finding.file.startswith(OWN)
    }
    begin = None if is_all else planned.begin
    looked_at = side_kinds(after, rules, PLANS) if is_all else frozenset[FileKind]()
    explained = frozenset((finding.id, finding.file) for finding in findings if finding.severity is Severity.NOTE)
    return PlanCheck(tuple(_left(finding, planned) for finding in left.values()), begin, looked_at, explained)


def check_applied(
    store: Store,
    rules: BrokerRules,
    begin: int | None,
    named: Sequence[Remaining],
    explained: AbstractSet[tuple[str, str]] = frozenset(),
    cache: RowCache | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """Check queues and index of a repaired store; return a summary, and ids of findings that the plan did not name.

    Args:
        begin, explained: see `PlannedRepair`.
        cache: recalls what was seen of files that nobody has touched since.
    """
    part, _ = scope_of(store, begin)
    findings: list[Finding] = []
    summary = verify_store(part, rules, VerifyOptions(depth=Depth.STRUCTURE, cache=cache), findings.append)
    known = explained | {(left.finding.id, left.finding.file) for left in named}
    wrong = (
        finding for finding in findings if finding.severity is not Severity.NOTE and not finding.file.startswith(OWN)
    )
    return summary.as_json(), sorted({finding.id for finding in wrong if (finding.id, finding.file) not in known})


def _is_changed(finding: Finding, steps: Sequence[Step]) -> bool:
    begin = finding.file_position or 0
    end = begin + max(1, finding.length or 0)
    for step in steps:
        if step.path == finding.file and not (
            isinstance(step, WriteRange) and (step.end <= begin or end <= step.file_position)
        ):
            return True
    return False


def _left(finding: Finding, planned: PlannedRepair) -> Remaining:
    """A finding that is left, with the reason and the command that fixes it."""
    if finding.id == ABORT and planned.abort_stays is not None:
        return Remaining(finding, planned.abort_stays)
    known = {(before.id, before.file) for before in planned.findings}
    if planned.begin is not None and (finding.id, finding.file) not in known:
        why = f"the plan repairs nothing before physical offset {planned.begin}; {FULL} does"
        return Remaining(finding, why, FULL)
    is_asked = any(one.id == MAY_BE_DELETED for one in planned.findings)
    if is_asked and (finding.id, finding.file) == (BACKUP_BETTER, TOPICS):
        return Remaining(finding, "it names a topic that may have been deleted: decide about that first")
    is_chosen = finding.repair is not None and finding.repair != BY_ID[finding.id].repair
    return Remaining(finding, BY_ID[finding.id].remedy, finding.repair if is_chosen else None)
