"""What a repair must not do without a person's consent: the plan is shown, its losses are named, and asked about."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import typer

from rmqtool.answer.assessment import NAMED_MAX
from rmqtool.answer.presence import missing_log
from rmqtool.commands.closed_pipe import reader_needed
from rmqtool.commands.repairs.repair_plan import PlannedRun
from rmqtool.engine.reading.log_presence import is_log_missing
from rmqtool.errors import RefusedError
from rmqtool.repair.machine.plan import Plan, demand_same, read_saved
from rmqtool.report.writers import OutputFormat


def demand_agreement(planned: PlannedRun) -> None:
    """Show the plan and ask; a program is shown one that is refused.

    Raises:
        RefusedError: consent is missing, or a saved plan is another one.
    """
    request, plan, answer = planned.run.request, planned.plan, planned.answer()
    if request.output is OutputFormat.TABLE:
        try:
            with nullcontext() if request.is_agreed else reader_needed():  # where a person is asked, one must see it
                planned.show(answer)
        except BrokenPipeError as error:
            raise RefusedError(f"{request.store}: the plan could not be shown; nothing was changed") from error
    try:
        if request.apply is not None:
            demand_same(plan, read_saved(request.apply))
        _demand_floor(planned)
        if request.copy is None and not request.accept_loss:
            _demand_whole_log(planned)
        demand_consent(plan, is_agreed=request.is_agreed, accept_loss=request.accept_loss)
    except RefusedError as error:
        if request.output is not OutputFormat.TABLE:
            planned.show(answer, applied=False, refused=str(error))
        raise


def _demand_floor(planned: PlannedRun) -> None:
    """Refuse a plan that leaves the broker worse off, or brings back what somebody deleted.

    A person may have chosen the change and agree to the first, and may have asked for the second.
    """
    plan, repair = planned.plan, planned.repair
    if not (repair.is_chosen and planned.run.request.accept_loss):
        try:
            plan.demand_harmless()
        except RefusedError as error:
            if repair.is_chosen:
                raise RefusedError(f"{error}; pass --accept-loss to apply it all the same") from error
            raise
    if repair.restored is None or plan.floor is None:
        return
    if topics := [topic for topic in plan.floor.restored_topics if topic not in repair.restored]:
        raise RefusedError(
            f"the plan brings back topics that were deleted: {', '.join(topics[:NAMED_MAX])}; pass --restore-deleted "
            "to agree, or rebuild one of them with rebuild --topic"
        )


def _demand_whole_log(planned: PlannedRun) -> None:
    """Refuse a store of which a directory of the commit log is empty: that of a disk which is not mounted.

    A repair would take what is left for the whole log and remove `abort`, and the messages that the disk has would not
    be dispatched when it is back.
    """
    store = planned.run.opened.store
    is_asked_for = is_log_missing(store) and planned.plan.loss.without_log > 0  # without any file of it
    if not is_asked_for and (missing := missing_log(store)) is not None:
        command = planned.plan.command
        raise RefusedError(f"{missing.text}; pass --accept-loss to {command} the store without those files")


def demand_consent(plan: Plan, *, is_agreed: bool, accept_loss: bool) -> None:
    """Ask whether the plan is to be carried out, and its losses accepted.

    Raises:
        RefusedError: the person does not agree, or nobody can be asked.
    """
    asks = sys.stdin.isatty() and not is_agreed
    for number, what in (
        (
            plan.loss.without_log,
            "messages whose commit log files are missing or too short (is the disk of the commit log mounted?)",
        ),
        (plan.loss.messages - plan.loss.without_log, "messages that can be read now"),
        (plan.lowers_floor_by, "messages that consumers get today (at these queue offsets)"),
    ):
        if number <= 0 or accept_loss:
            continue
        if not asks:
            raise RefusedError(f"the plan discards {number} {what}; pass --accept-loss to agree")
        if not typer.confirm(f"Discard {number} {what}? (yes: the plan is applied; no: nothing is changed)", err=True):
            raise RefusedError("aborted; nothing was changed")
    if asks and not typer.confirm("Apply this plan? (yes: the store is changed; no: nothing is changed)", err=True):
        raise RefusedError("aborted; nothing was changed")
    if not asks and not is_agreed:
        raise RefusedError("confirmation required: pass --yes to apply, or --dry-run to preview")
