"""What a plan comes to: the verdict on the store as the plan leaves it, and the next step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from rmqtool.commands.options.store import OpenedStore
from rmqtool.commands.repairs.consent import stray_file_step
from rmqtool.findings.finding import NOT_READABLE_BY_VERSION, SALVAGE, Finding
from rmqtool.findings.registry import BY_ID
from rmqtool.forecast.unsimulated import unsimulated_settings
from rmqtool.repair.machine.plan import Plan
from rmqtool.report.text import counted
from rmqtool.sides.kinds import unread_files
from rmqtool.sides.unread import UnreadFiles
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.verdict.command_line import CommandLine
from rmqtool.verdict.next_step import NextStep, blocked_step, cut_step, undecoded_step
from rmqtool.verdict.presence import missing_log, reader_command, unreadable_files
from rmqtool.verdict.tally import TAIL, FindingTally
from rmqtool.verdict.verdict import Assessment, StoreVerdict


def plan_assessment(
    plan: Plan,
    damage: tuple[Finding, ...],
    left_out: Iterable[UnreadFiles],
    opened: OpenedStore,
    line: CommandLine,
    *,
    applied: bool,
) -> Assessment:
    """The verdict on the store as a plan leaves it.

    Args:
        damage: what keeps the plan from changing anything.
        left_out: what the planner did not look at.
        applied: whether the losses of the plan have happened.
    """
    store, tally = opened.store, FindingTally()
    for finding in (*damage, *(left.finding for left in plan.remaining)):
        tally.add(finding)
    starts = {name: plan.forecast_after[name] for name in plan.possible_versions}
    given_up = 0 if applied else plan.loss.messages
    return Assessment(
        log_missing=missing_log(store),
        unreadable=tuple(map(str, unreadable_files(store))),
        reader=reader_command(store, line(plan.command)),
        start_failures={name: start.why_not or "" for name, start in starts.items() if not start.starts},
        lost=given_up + (max((start.lost for start in starts.values()), default=0) if not damage else 0),
        damaged=tally.damaged,
        missing_files=tally.missing_files,
        inconsistent=tally.inconsistent(is_log_decoded=True),
        not_looked_at=(*left_out, *unsimulated_settings(opened.conf, store)),
    )


def step_after_plan(
    plan: Plan, damage: tuple[Finding, ...], assessment: Assessment, line: CommandLine, store: str, own: str
) -> NextStep:
    """What to do after a plan, or where it changes nothing.

    Args:
        own: the command of the plan with its own options.
    """
    if (step := stray_file_step(damage, store) or blocked_step(assessment)) is not None:
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
    repairs = {left.finding.repair for left in plan.remaining}
    if len(repairs) == 1 and (repair := repairs.pop()) is not None and repair not in (plan.command, own):
        return NextStep(line(repair), "repair what is left:")
    if plan.remaining:
        return NextStep(None, plan.remaining[0].why, needs_decision=True)
    if not tuple(unread_files_in(assessment)):
        return NextStep(line("verify"), "check what the plan did not look at:")
    return undecoded_step(assessment, line)


def step_to_apply(plan: Plan, assessment: Assessment, line: CommandLine, flags: str | None) -> NextStep:
    """What to do with a plan that changes something.

    Args:
        flags: the command's own options; None where a person has to type them again.
    """
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


def unread_files_in(assessment: Assessment) -> Iterator[UnreadFiles]:
    """What no command decodes, of all that was not looked at."""
    return (files for files in assessment.not_looked_at if files.kind != FileKind.COMMITLOG.value)


def ending(assessment: Assessment, step: NextStep) -> dict[str, Any]:
    """What the JSON of every plan ends with."""
    return {**assessment.as_json(), **step.as_json()}


def left_out_files(store: Store, begin: int | None, looked_at: Collection[FileKind]) -> Iterator[UnreadFiles]:
    """What a planner did not look at.

    Args:
        begin: physical offset from which on it looked; None where it looked at all.
        looked_at: kinds of files beside log, queues and index that were checked.
    """
    yield from unread_files(store, looked_at)
    if begin is not None:
        text = f"only names and lengths below physical offset {begin}; --full checks all of it"
        yield UnreadFiles("commitlog", FileKind.COMMITLOG.value, text)
