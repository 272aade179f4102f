"""What every repair command does with a plan: show it, save it, ask, apply it. `repair` decides what is in it."""

from __future__ import annotations

import errno
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import typer

from rmqtool.commands.closed_pipe import reader_needed
from rmqtool.commands.exit_codes import ExitCode
from rmqtool.commands.messages import Messages
from rmqtool.commands.options.memory import thread_count
from rmqtool.commands.options.store import (
    OpenedStore,
    StoreOptions,
    command_line,
    foreign_owner,
    open_store,
    refuse_bundle,
)
from rmqtool.commands.repairs.consent import demand_consent, plan_with_sizes
from rmqtool.commands.repairs.plan_judgement import (
    ending,
    left_out_files,
    plan_assessment,
    step_after_plan,
    step_to_apply,
)
from rmqtool.commands.repairs.repair_request import RepairRequest
from rmqtool.commands.repairs.repair_run import Planner, RepairRun
from rmqtool.commands.repairs.saved_plan import save_plan
from rmqtool.commands.screen import screen
from rmqtool.engine.reading.log_presence import is_log_missing
from rmqtool.engine.rules.versions import NEWEST
from rmqtool.errors import RefusedError, UnreadableError, WriteError
from rmqtool.forecast.options import forecast_options
from rmqtool.forecast.unsimulated import unsimulated_settings
from rmqtool.memory import memory_budget
from rmqtool.repair.machine.apply import Applied, apply_plan
from rmqtool.repair.machine.fingerprint import unchanged
from rmqtool.repair.machine.journal_writer import copied_files
from rmqtool.repair.machine.output import apply_to_copy
from rmqtool.repair.machine.plan import Plan, PlannedRepair, demand_same, read_saved, view_over
from rmqtool.repair.machine.session import Session
from rmqtool.repair.machine.steps import synced_meanwhile
from rmqtool.repair.machine.store_paths import DEFAULT_LOG, StorePaths
from rmqtool.repair.machine.undo import is_unsettled, settle
from rmqtool.repair.plan_forecasts import PlanForecasts
from rmqtool.repair.remaining import check_applied, check_planned
from rmqtool.report.screens.repair_screen import plan_lines
from rmqtool.report.writers import OutputFormat, json_text
from rmqtool.store.acquire_lock import demand_free
from rmqtool.store.directory import Store, survey
from rmqtool.store.dledger_files import with_dledger_log
from rmqtool.store.location import relative_to_store
from rmqtool.store.log_owner import doubtful_link
from rmqtool.store.view import open_directory
from rmqtool.verdict.presence import denied_files, missing_log, reader_command
from rmqtool.verdict.verdict import NAMED_MAX, StoreVerdict

UNREADABLE: Final = "commitlog.unreadable-range"


@dataclass(frozen=True)
class _PlannedRun:
    """A run whose store has the sizes that a person gave, with its plan and what the planner came to."""

    run: RepairRun
    plan: Plan
    repair: PlannedRepair

    def as_json(self, *, applied: bool = False) -> dict[str, Any]:
        """The plan with its verdict and the next step.

        Args:
            applied: whether it has been carried out.
        """
        run, plan, damage = self.run, self.plan, self.repair.damage
        line, store, flags, copy = run.line, str(run.request.store), run.flags, run.request.copy
        if copy is not None and applied:
            line, store = replace(line, store=shlex.quote(str(copy)), is_local=True), str(copy)
        elif copy is not None and flags is not None:
            flags = f"{flags} --output {shlex.quote(str(copy))}".lstrip()
        left_out = left_out_files(run.opened.store, self.repair.begin, self.repair.looked_at)
        assessment = plan_assessment(plan, damage, left_out, run.opened, line, applied=applied)
        if damage or applied or not plan.steps:
            own = plan.command if flags is None else f"{plan.command} {flags}".rstrip()
            step = step_after_plan(plan, damage, assessment, line, store, own)
        else:
            step = step_to_apply(plan, assessment, line, flags)
        rows = [finding.as_json() for finding in damage]
        return {**plan.to_json(), "damage": rows, **ending(assessment, step), **self.repair.details}

    def show(self, plan_json: dict[str, Any]) -> None:
        request = self.run.request
        if request.output is OutputFormat.TABLE:
            terminal, store, chosen = screen(), str(request.store), self.run.opened.chosen
            lines = plan_lines(
                plan_json, store, chosen, terminal.width, color=terminal.color, all_rows=terminal.shows_all
            )
            sys.stdout.writelines(f"{line}\n" for line in lines)
            sys.stdout.flush()
        else:
            sys.stdout.write(json_text(plan_json, indent=2 if request.output is OutputFormat.JSON else None) + "\n")

    def exit_code(self, plan_json: dict[str, Any], *, to_do: bool) -> int:
        if any(finding.id == UNREADABLE for finding in self.repair.damage):
            return ExitCode.FAILED
        is_bad = plan_json["verdict"] != StoreVerdict.OK
        is_left = to_do or self.repair.damage or self.plan.remaining or is_bad
        return ExitCode.FINDINGS if is_left else ExitCode.OK


def opened_for_repair(
    request: RepairRequest,
    options: StoreOptions,
    messages: Messages,
    stack: ExitStack,
) -> tuple[OpenedStore, Session | None]:
    """The store, once nobody else uses it and its version is known, and what holds it; None where it is only read.

    Args:
        stack: closes the session at the end of the command.

    Raises:
        RefusedError: a broker or another rmqtool uses it, a repair is unfinished, or nothing tells its version.
        UsageError, NotAStoreError, UnreadableError: see `open_store`.
    """
    request.check()
    refuse_bundle(request.store)
    open_directory(request.store)
    named = tuple(relative_to_store(directory, request.store) for directory in options.commitlog or ())
    session: Session | None = None
    if not request.only_looks and request.copy is None:
        # Before anything is looked at: what another run does until then is seen, and afterwards it is kept out.
        try:
            session = stack.enter_context(Session(StorePaths(request.store, named or DEFAULT_LOG), makes_file=False))
        except WriteError as error:
            if isinstance(error.__cause__, PermissionError):
                opened = open_store(request.store, options)
                raise WriteError(f"{error}. {_as_owner(request, opened, options)}") from error
            raise
    opened = open_store(request.store, options)
    if denied := denied_files(opened.store):
        raise UnreadableError(f"{'; '.join(map(str, denied[:NAMED_MAX]))}. {_as_owner(request, opened, options)}")
    request.demand_own_log(opened)
    places = places_of(request, opened.store)
    if session is None:
        demand_free(request.store, places.outer_logs)
    else:
        session.lock.demand_unused(places.outer_logs)
    if session is None:
        _demand_settled(request, places)
    elif is_unsettled(places):
        session.places = places
        settle(places, session=session)
        messages.warn("an earlier repair was unfinished and has been rolled back")
        opened = open_store(request.store, options)
    if not opened.is_version_known:
        if request.is_agreed or not sys.stdin.isatty():
            _demand_version(request, opened)
        asked = typer.prompt(
            "The store does not show its broker version. Which version is it", default=NEWEST, err=True
        )
        opened = open_store(request.store, replace(options, broker_version=asked))
    opened.demand_read_sizes()
    if session is not None:
        session.places = places_of(request, opened.store)
    if request.looks_at_files_for_queues:
        settings = replace(opened.store.settings, queue_kind=None)
        opened = replace(opened, store=survey(opened.store.view, settings))
    opened.tell(messages)
    if request.copy is None:
        for warning in filter(None, (foreign_owner(opened.store), doubtful_link(request.store))):
            messages.warn(warning)
    return opened, session


def _as_owner(request: RepairRequest, opened: OpenedStore, options: StoreOptions) -> str:
    """How to run the command as the user who may read and write the store, as a sentence."""
    line = "rmqtool patch ..." if request.names_a_file else command_line(request.store, options)(request.command)
    return reader_command(opened.store, line)


def places_of(request: RepairRequest, store: Store) -> StorePaths:
    """Where the store's files lie."""
    holding = (file.path.rpartition("/")[0] for file in with_dledger_log(store).commitlog)
    folders = dict.fromkeys((*store.settings.commitlog_directories, *holding))
    if request.copy is not None:  # which has a plain log: data of DLedger outside of the store is only read
        outer = {folder for folder in store.settings.dledger_directories if folder.startswith("/")}
        folders = dict.fromkeys(folder for folder in folders if folder not in outer)
    return StorePaths(request.store, tuple(folders) or DEFAULT_LOG, request.undo_dir)


def carry_out(run: RepairRun, planner: Planner) -> None:
    """Plan, show, ask and apply. Ends with the exit code of the contract.

    Raises:
        RefusedError: consent is missing, or the store or the saved plan is another one.
        RmqtoolError: something fails; see `apply_plan`.
    """
    request, session = run.request, run.session
    if request.apply is not None:
        read_saved(request.apply)  # before hours of planning
    places = places_of(request, run.opened.store) if session is None else session.places
    with _staging(session) as staging:
        may_ask = not request.is_agreed and sys.stdin.isatty()
        try:
            planned = _planned(run, planner, places, staging, may_ask=may_ask)
        except WriteError as error:
            room = "; make room on that disk" if session is not None else "; set TMPDIR to a directory with more room"
            raise WriteError(f"{error}; the store was not changed{room if _is_full(error) else ''}") from error
        if request.save is not None:
            save_plan(request.save, planned.plan, run.options)
        is_idle = planned.plan.is_empty and request.copy is None
        if is_idle or request.dry_run or request.save is not None or planned.repair.damage:
            plan_json = planned.as_json()
            planned.show(plan_json)
            raise typer.Exit(planned.exit_code(plan_json, to_do=bool(planned.plan.steps)))
        _agree(planned)
        if request.copy is not None:
            raise typer.Exit(_repair_copy(planned, request.copy, places))
        assert session is not None, "a plan is carried out under the store's lock"
        if planned.repair.keep is not None:
            session.keep(planned.repair.keep, staging)
        # Said where the error itself does not: only what was rolled back is called so.
        run.messages.interrupted = f"rmqtool undo {request.store} --list shows whether the repair was made"
        with run.messages.progress(f"{request.command}: repair"):
            applied = apply_plan(planned.plan, places, session=session)
    raise typer.Exit(_check_applied(planned, applied))


def _is_full(error: WriteError) -> bool:
    """Whether a disk has no room for what was to be written."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT)


def preview(run: RepairRun, planner: Planner) -> dict[str, Any]:
    """The plan as --dry-run writes it in JSON; nothing is shown, nobody is asked, and the store is only read.

    Raises:
        RefusedError: somebody else uses the store, an earlier repair is unfinished, or nothing tells its version.
        RmqtoolError: no plan can be made.
    """
    request, opened = run.request, run.opened
    places = places_of(request, opened.store)
    if denied := denied_files(opened.store):
        raise UnreadableError("; ".join(map(str, denied[:NAMED_MAX])))
    request.demand_own_log(opened)
    demand_free(request.store, places.outer_logs)
    _demand_settled(request, places)
    _demand_version(request, opened)
    opened.demand_read_sizes()
    with _staging(None) as staging:
        return _planned(run, planner, places, staging, may_ask=False).as_json()


def _demand_settled(request: RepairRequest, places: StorePaths) -> None:
    if is_unsettled(places):
        raise RefusedError(f"{request.store}: an earlier repair is unfinished; roll it back with rmqtool undo")


def _demand_version(request: RepairRequest, opened: OpenedStore) -> None:
    if not opened.is_version_known:
        raise RefusedError(
            f"{request.store}: nothing in the store shows its broker version; pass --broker-version X.Y.Z"
        )


def _planned(run: RepairRun, planner: Planner, places: StorePaths, staging: Path, *, may_ask: bool) -> _PlannedRun:
    messages, command, opened = run.messages, run.request.command, run.opened
    with unchanged(places) as before:
        with messages.progress(command) as progress:
            store, repair = plan_with_sizes(
                # A broker may have come since it was opened.
                survey(opened.store.view, opened.store.settings, opened.store),
                lambda store, directory: planner(store, directory, progress.show),
                staging,
                messages,
                may_ask=may_ask,
            )
        in_place = repair.steps if run.session is not None else ()
        with messages.progress(f"{command}: check of the plan"), synced_meanwhile(in_place):
            return _with_outlook(run.with_store(store), repair, before)


def _agree(planned: _PlannedRun) -> None:
    """Show the plan and ask; a program is shown one that is refused.

    Raises:
        RefusedError: consent is missing, or a saved plan is another one.
    """
    request, plan, plan_json = planned.run.request, planned.plan, planned.as_json()
    if request.output is OutputFormat.TABLE:
        _show_first(planned, plan_json)
    try:
        if request.apply is not None:
            demand_same(plan, read_saved(request.apply))
        _demand_harmless(plan, planned.repair, request)
        _demand_unrestored(plan, planned.repair)
        if request.copy is None and not request.accept_loss:
            _demand_whole_log(planned)
        demand_consent(plan, is_agreed=request.is_agreed, accept_loss=request.accept_loss)
    except RefusedError as error:
        if request.output is not OutputFormat.TABLE:
            planned.show({**plan_json, "applied": False, "refused": str(error)})
        raise


def _demand_harmless(plan: Plan, repair: PlannedRepair, request: RepairRequest) -> None:
    """Refuse a plan that leaves the broker worse off, unless a person chose the change and agrees to that."""
    if repair.is_chosen and request.accept_loss:
        return
    try:
        plan.demand_harmless()
    except RefusedError as error:
        if repair.is_chosen:
            raise RefusedError(f"{error}; pass --accept-loss to apply it all the same") from error
        raise


def _demand_unrestored(plan: Plan, repair: PlannedRepair) -> None:
    """Refuse a plan that brings back what somebody deleted, unless a person asked for it."""
    topics = plan.floor.restored_topics if plan.floor is not None and repair.restored is not None else ()
    if back := [topic for topic in topics if repair.restored is not None and topic not in repair.restored]:
        raise RefusedError(
            f"the plan brings back topics that were deleted: {', '.join(back[:NAMED_MAX])}; pass --restore-deleted to "
            "agree, or rebuild one of them with rebuild --topic"
        )


def _demand_whole_log(planned: _PlannedRun) -> None:
    """Refuse a store of which a directory of the commit log is empty: that of a disk which is not mounted.

    A repair would take what is left for the whole log and remove `abort`, and the messages that the disk has would not
    be dispatched when it is back.
    """
    store = planned.run.opened.store
    is_asked_for = is_log_missing(store) and planned.plan.loss.without_log > 0  # without any file of it
    if not is_asked_for and (missing := missing_log(store)) is not None:
        command = planned.plan.command
        raise RefusedError(f"{missing.text}; pass --accept-loss to {command} the store without those files")


def _repair_copy(planned: _PlannedRun, copy: Path, places: StorePaths) -> int:
    """Write the repaired copy, and say so; the exit code."""
    run, plan_json = planned.run, planned.as_json(applied=True)
    run.messages.interrupted = f"the store was not changed; {copy} may be incomplete"
    with run.messages.progress(f"{run.request.command}: copy") as progress:
        copied = apply_to_copy(planned.plan, places, copy, on_progress=progress.show)
    if planned.repair.keep is not None:
        with Session(copied) as session, session.staging() as staging:
            session.keep(planned.repair.keep, staging)
    if run.request.output is OutputFormat.TABLE:
        sys.stdout.write(f"\nDone. The repaired copy is {copy}; the store is unchanged.\n")
    else:
        planned.show({**plan_json, "applied": True, "output": str(copy)})
    return planned.exit_code(plan_json, to_do=False)


def _check_applied(planned: _PlannedRun, applied: Applied) -> int:
    """Check the repaired store, and say what was done; the exit code."""
    request, opened, messages = planned.run.request, planned.run.opened, planned.run.messages
    digest = planned.run.digest
    messages.interrupted = f"the repair was made; rmqtool undo {request.store} rolls it back"
    store = survey(opened.store.view, opened.store.settings, opened.store)
    if digest is not None:
        digest.know_again(applied.read_back)
    with messages.progress(f"{request.command}: check of the repaired store"):
        repair, remaining = planned.repair, planned.plan.remaining
        checked, surprises = check_applied(store, opened.rules, repair.begin, remaining, repair.explained, digest)
    if surprises:
        messages.warn(f"after the repair, verify reports findings that the plan did not name: {', '.join(surprises)}")
    plan_json = replace(planned, run=planned.run.with_store(store)).as_json(applied=True)
    if request.output is OutputFormat.TABLE:
        sys.stdout.write(
            f"\nDone. rmqtool undo {request.store} rolls the repair back; the old files are in {applied.undo}\n"
        )
    else:
        planned.show({**plan_json, **applied.to_json(checked)})
    return planned.exit_code(plan_json, to_do=bool(surprises))


@contextmanager
def _staging(session: Session | None) -> Iterator[Path]:
    """An empty directory; in the store, if its files are to be renamed into place, else a temporary one."""
    if session is not None:
        with session.staging() as staging:
            yield staging
        return
    with tempfile.TemporaryDirectory(prefix="rmqtool-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _with_outlook(run: RepairRun, repair: PlannedRepair, before: str) -> _PlannedRun:
    """The plan with what it leaves and leads to, and the planned repair with what was looked at in the end."""
    request, opened, digest = run.request, run.opened, run.digest
    places = places_of(request, opened.store)
    plan = Plan(
        request.command,
        before,
        opened.rules.version,
        repair.steps,
        repair.loss,
        abort_stays=repair.abort_stays,
        copied_files=copied_files(repair.steps, places) if request.copy is None else {},
    )
    plan.check(places.log_directories)
    settings = repair.settings or opened.store.settings
    after = survey(view_over(opened.store.view, plan.steps), settings, opened.store) if plan.steps else opened.store
    options = replace(forecast_options(opened.conf), digest=digest)
    others = opened.possible_versions
    with PlanForecasts(opened.store, after, opened.rules, options, run.messages.note, repair, others) as forecasts:
        # The forecast of the store as it is needs nothing of the check: where memory has no limit, both continue at
        # once.
        if plan.steps and repair.begin is None and memory_budget().limit is None:
            forecasts.look_now(None)
        if not repair.damage:
            checked = check_planned(after, opened.rules, repair, threads=thread_count(), digest=digest)
            plan = replace(plan, remaining=checked.left)
            repair = replace(repair, looked_at=repair.looked_at | checked.looked_at, explained=checked.explained)
            if checked.begin is None:
                repair = replace(repair, begin=None, left_out=())
        of_delays = run.delays.notes(plan.steps)
        of_settings = [unread.reason for unread in unsimulated_settings(opened.conf, after)]
        plan = replace(plan, not_looked_at=(*repair.notes, *of_delays, *repair.left_out, *of_settings))
        if not plan.is_empty or repair.damage:
            plan = forecasts.completed(plan, repair.begin)
    return _PlannedRun(run, plan, repair)


def _show_first(planned: _PlannedRun, plan_json: dict[str, Any]) -> None:
    """Show a plan before it is carried out; where a person is to be asked about it, somebody must see it."""
    request = planned.run.request
    try:
        with nullcontext() if request.is_agreed else reader_needed():
            planned.show(plan_json)
            sys.stdout.flush()
    except BrokenPipeError as error:
        raise RefusedError(f"{request.store}: the plan could not be shown; nothing was changed") from error
