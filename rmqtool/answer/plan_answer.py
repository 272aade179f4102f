"""The answer of a repair: the verdict on the store as its plan leaves it, and the next step."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rmqtool.answer.answer import (
    TAIL,
    Answer,
    Assessment,
    FindingTally,
    NextStep,
    blocked_step,
    cut_step,
    undecoded_step,
)
from rmqtool.answer.exit_codes import ExitCode
from rmqtool.answer.opened_store import CommandLine, OpenedStore
from rmqtool.answer.presence import missing_log, reader_command, unreadable_files
from rmqtool.findings.finding import NOT_READABLE_BY_VERSION, SALVAGE, Finding, StoreVerdict
from rmqtool.findings.registry import BY_ID
from rmqtool.forecast.unsimulated import unsimulated_settings
from rmqtool.repair.machine.plan import Plan, PlannedRepair
from rmqtool.report.text import counted
from rmqtool.sides.kinds import unread_files
from rmqtool.sides.unread import UnreadFiles
from rmqtool.store.file_kinds import FileKind

_UNREADABLE: Final = "commitlog.unreadable-range"


def answer_of_plan(
    plan: Plan,
    repair: PlannedRepair,
    opened: OpenedStore,
    line: CommandLine,
    *,
    root: Path,
    flags: str | None,
    applied: bool,
    surprises: Sequence[str] = (),
) -> Answer:
    """Answer about a plan: `root` is the store's, or that of the copy which is repaired. Once it was applied its losses
    have happened; surprises are kinds of findings in the repaired store that the plan does not name.

    The command's own options are flags as typed, or None where a person has to type them again.
    """
    store, tally = opened.store, FindingTally()
    for finding in (*repair.damage, *(left.finding for left in plan.remaining)):
        tally.add(finding)
    starts = {name: plan.forecast_after[name] for name in plan.possible_versions}
    given_up = 0 if applied else plan.loss.messages
    lost_by_start = max((start.lost for start in starts.values()), default=0) if not repair.damage else 0
    not_looked_at = [*unread_files(store, repair.looked_at)]
    if repair.begin is not None:
        text = f"only names and lengths below physical offset {repair.begin}; --full checks all of it"
        not_looked_at.append(UnreadFiles("commitlog", FileKind.COMMITLOG.value, text))
    assessment = Assessment(
        log_missing=missing_log(store),
        unreadable=tuple(map(str, unreadable_files(store))),
        reader=reader_command(store, line(plan.command)),
        start_failures={name: start.why_not or "" for name, start in starts.items() if not start.starts},
        lost=given_up + lost_by_start,
        damaged=tally.damaged,
        missing_files=tally.missing_files,
        inconsistent=tally.inconsistent(is_log_decoded=True),
        not_looked_at=(*not_looked_at, *unsimulated_settings(opened.conf, store)),
    )

    if repair.damage or applied or not plan.steps:
        step = _step_after(plan, repair.damage, assessment, line, root, flags)
    else:
        step = _step_to_apply(plan, assessment, line, flags)

    is_to_do = bool(surprises if applied else plan.steps)
    is_left = is_to_do or repair.damage or plan.remaining or assessment.verdict is not StoreVerdict.OK
    code = ExitCode.FINDINGS if is_left else ExitCode.OK
    if any(finding.id == _UNREADABLE for finding in repair.damage):
        code = ExitCode.FAILED
    return Answer(assessment, step, code)


def _step_after(
    plan: Plan, damage: Sequence[Finding], assessment: Assessment, line: CommandLine, root: Path, flags: str | None
) -> NextStep:
    stray = next((finding for finding in damage if finding.id == "commitlog.stray-file"), None)
    if stray is not None:
        return _stray_file_step(stray, root)
    if (step := blocked_step(assessment)) is not None:
        return step
    if damage:
        # What salvage has left, and what only a newer version reads, it does not repair the next time either.
        left = next((finding for finding in damage if finding.id == NOT_READABLE_BY_VERSION), damage[0])
        if plan.command == SALVAGE or all(finding.id == NOT_READABLE_BY_VERSION for finding in damage):
            return NextStep(None, f"{left.id}: {BY_ID[left.id].remedy}", needs_decision=True)
        return NextStep(line(SALVAGE), "keep what lies after the damage:")
    if assessment.verdict is StoreVerdict.OK:
        return NextStep(None, "nothing to do; the broker can be started")
    chosen = next((left for left in plan.remaining if left.command), None)
    if chosen is not None and chosen.command is not None:
        if chosen.finding.id == TAIL:
            return cut_step(line, chosen.command)
        return NextStep(line(chosen.command), "repair what is left:")
    own = plan.command if flags is None else f"{plan.command} {flags}".rstrip()
    repairs = {left.finding.repair for left in plan.remaining}
    if len(repairs) == 1 and (repair := repairs.pop()) is not None and repair not in (plan.command, own):
        return NextStep(line(repair), "repair what is left:")
    if plan.remaining:
        return NextStep(None, plan.remaining[0].why, needs_decision=True)
    if all(files.kind == FileKind.COMMITLOG.value for files in assessment.not_looked_at):
        return NextStep(line("verify"), "check what the plan did not look at:")
    return undecoded_step(assessment, line)


def _stray_file_step(stray: Finding, root: Path) -> NextStep:
    """Decision of a person about a log file under a wrong name."""
    command = None
    reason = f"{stray.file} is not part of the commit log under this name. "
    if stray.expected is not None:
        is_missing = not Path(root, stray.expected).exists()  # else an empty file has the right name
        reason += f"Its records belong to {stray.expected}, which is "
        reason += "missing: rename it" if is_missing else "empty: replace that file with it"
        keep = ["-n"] if is_missing else []
        command = shlex.join(["mv", *keep, f"{root}/{stray.file}", f"{root}/{stray.expected}"])
    else:
        reason += (
            "The commit log has no free offset for it: move it out of the store, and keep it until messages are served"
        )
    reason += f". Then run rmqtool recover {shlex.quote(str(root))} again"
    return NextStep(command, reason, needs_decision=True)


def _step_to_apply(plan: Plan, assessment: Assessment, line: CommandLine, flags: str | None) -> NextStep:
    if (step := blocked_step(assessment)) is not None:
        return step
    losses = plan.loss.messages + plan.lowers_floor_by
    reason = f"a person must agree to the loss of {counted(losses, 'message')}" if losses else "apply the plan"
    if flags is None:
        again = "run the same command without --dry-run"
        return NextStep(
            None, f"{reason}: {again}{' and with --accept-loss' if losses else ''}", needs_decision=bool(losses)
        )
    command = " ".join(part for part in (plan.command, flags, "--accept-loss" if losses else "") if part)
    return NextStep(line(command), f"{reason}:", needs_decision=bool(losses))
