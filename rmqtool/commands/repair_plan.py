"""What every repair command does with a plan: show it, save it, ask, apply it. What is in it `repair` decides."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import typer

from rmqtool.commands.consent import demand_consent, plan_with_sizes
from rmqtool.commands.exit_codes import ExitCode
from rmqtool.commands.forecast import forecast_options
from rmqtool.commands.messages import Messages
from rmqtool.commands.options import OpenedStore, StoreOptions, command_line, foreign_owner, open_store
from rmqtool.commands.plan_judgement import ending, left_out_files, plan_assessment, step_after_plan, step_to_apply
from rmqtool.commands.repair_request import RepairRequest
from rmqtool.commands.screen import screen
from rmqtool.engine.rules.versions import NEWEST
from rmqtool.errors import RefusedError, UnreadableError, WriteError
from rmqtool.repair.build.delay_times import DelayTimes, delay_times
from rmqtool.repair.build.request import BuildOptions
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.fingerprint import unchanged
from rmqtool.repair.machine.journal_writer import copied_files
from rmqtool.repair.machine.output import apply_to_copy
from rmqtool.repair.machine.plan import Loss, Plan, demand_same, read_saved
from rmqtool.repair.machine.session import Session
from rmqtool.repair.machine.steps import Step
from rmqtool.repair.machine.store_paths import DEFAULT_LOG, StorePaths
from rmqtool.repair.machine.undo import is_unsettled, settle
from rmqtool.repair.plan_forecasts import with_forecasts
from rmqtool.repair.remaining import PlannedStore, check_applied, check_planned
from rmqtool.report.repair_screen import plan_lines
from rmqtool.report.writers import OutputFormat, json_text
from rmqtool.scan.log_digest import LogDigest
from rmqtool.scan.runner import OnProgress
from rmqtool.store.acquire_lock import demand_free
from rmqtool.store.directory import Store, survey
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.location import relative_to_store
from rmqtool.store.source import reason
from rmqtool.store.view import open_directory
from rmqtool.verdict.command_line import CommandLine
from rmqtool.verdict.presence import denied_files, reader_command
from rmqtool.verdict.verdict import NAMED_MAX, StoreVerdict
from rmqtool.verify.catalog.finding import Finding

UNREADABLE: Final = "commitlog.unreadable-range"


@dataclass(frozen=True)
class PlannedRepair:
    """What a planner came to; `begin` is the physical offset from which on it looked, None where it looked at all."""

    steps: tuple[Step, ...]
    loss: Loss = Loss()  # noqa: RUF009 - Loss is frozen
    notes: tuple[str, ...] = ()
    damage: tuple[Finding, ...] = ()
    abort_stays: str | None = None
    begin: int | None = None
    left_out: tuple[str, ...] = ()
    """Sentences about what lies before `begin`."""
    looked_at: frozenset[FileKind] = frozenset()
    """Kinds of files beside log, queues and index that were checked too."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What only this command says of its plan, beside what every plan has."""
    findings: tuple[Finding, ...] = ()
    """What the planner's own check has found, if it made one."""
    keep: Callable[[Path], None] | None = None
    """Saves what the plan takes away, in the given directory of the tool's own, right before it is carried out."""


Planner = Callable[[Store, Path, OnProgress], PlannedRepair]
"""Makes a plan for a store; what is built lies in the given directory, which stays until the plan is applied."""


@dataclass(frozen=True)
class RepairRun:
    """One run of a repair command: what was asked for, and the store it is about."""

    request: RepairRequest
    opened: OpenedStore
    messages: Messages
    line: CommandLine
    """Makes further commands about the store."""
    flags: str | None = ""
    """The command's own options as they are typed; None where they cannot be repeated."""
    session: Session | None = None
    """Holds the store; None where it is only read."""
    digest: LogDigest | None = None
    """What planning sees of the log, so that checks and forecasts of the plan need not read it again."""

    @cached_property
    def delays(self) -> DelayTimes:
        """The delays of the delay levels."""
        return delay_times(self.opened.store, self.opened.rules, self.opened.conf)

    @property
    def build_options(self) -> BuildOptions:
        """What the broker's properties file says of dispatch; a thread for each core."""
        options = BuildOptions(threads=os.cpu_count() or 1, delays_ms=self.delays.delays_ms, digest=self.digest)
        if (conf := self.opened.conf) is None:
            return options
        return replace(
            options,
            multi_dispatch=conf.has_multi_dispatch is not False,
            lmq=conf.has_light_queues is not False,
            extension=conf.has_queue_extension,
            record_crc=bool(conf.has_record_crc),
        )


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
    open_directory(request.store)
    named = tuple(relative_to_store(directory, request.store) for directory in options.commitlog or ())
    session: Session | None = None
    if not request.only_looks and request.copy is None:
        # Before anything is looked at: what another run does until then is seen, and afterwards it is kept out.
        session = stack.enter_context(Session(StorePaths(request.store, named or DEFAULT_LOG), makes_file=False))
    opened = open_store(request.store, options)
    if denied := denied_files(opened.store):
        reader = reader_command(opened.store, command_line(request.store, options)(request.command))
        raise UnreadableError(f"{'; '.join(denied[:NAMED_MAX])}. {reader}")
    places = places_of(request, opened.store)
    if session is None:
        demand_free(request.store, places.outer_logs)
    else:
        session.lock.demand_unused(places.outer_logs)
    if is_unsettled(places):
        if session is None:
            raise RefusedError(f"{request.store}: an earlier repair is unfinished; roll it back with rmqtool undo")
        session.places = places
        settle(places, session=session)
        messages.warn("an earlier repair was unfinished and has been rolled back")
        opened = open_store(request.store, options)
    if not opened.is_version_known:
        if request.is_agreed or not sys.stdin.isatty():
            raise RefusedError(
                f"{request.store}: nothing in the store shows its broker version; pass --broker-version X.Y.Z"
            )
        asked = typer.prompt(
            "The store does not show its broker version. Which version is it", default=NEWEST, err=True
        )
        opened = open_store(request.store, replace(options, broker_version=asked))
    if session is not None:
        session.places = places_of(request, opened.store)
    if request.looks_at_files_for_queues:
        settings = replace(opened.store.settings, queue_kind=None)
        opened = replace(opened, store=survey(opened.store.view, settings))
    opened.tell(messages)
    if request.copy is None and (warning := foreign_owner(opened.store)) is not None:
        messages.warn(warning)
    return opened, session


def places_of(request: RepairRequest, store: Store) -> StorePaths:
    """Where the store's files lie."""
    directories = tuple(dict.fromkeys(segment.path.rpartition("/")[0] for segment in store.commitlog))
    logs = store.settings.commitlog_directories or directories or DEFAULT_LOG
    return StorePaths(request.store, logs, request.undo_dir)


def carry_out(repair: RepairRun, planner: Planner) -> None:
    """Plan, show, ask and apply. Ends with the exit code of the contract.

    Raises:
        RefusedError: consent is missing, or the store or the saved plan is another one.
        RmqtoolError: something fails; see `apply_plan`.
    """
    request, opened, messages = repair.request, repair.opened, repair.messages
    session = repair.session
    if request.apply is not None:
        read_saved(request.apply)  # before hours of planning
    places = places_of(request, opened.store) if session is None else session.places
    with _staging(session) as staging:
        with unchanged(places) as before:
            with messages.progress(request.command) as progress:
                store, planned_repair = plan_with_sizes(
                    survey(opened.store.view, opened.store.settings),  # a broker may have come since it was opened
                    lambda store, directory: planner(store, directory, progress.show),
                    staging,
                    messages,
                    may_ask=not request.is_agreed and sys.stdin.isatty(),
                )
            opened = replace(opened, store=store)
            with messages.progress(f"{request.command}: check of the plan"):
                plan, planned_repair = _plan(replace(repair, opened=opened), planned_repair, before)
        if request.save is not None:
            _save(request.save, plan)
        if (
            (plan.is_empty and request.copy is None)
            or request.dry_run
            or request.save is not None
            or planned_repair.damage
        ):
            plan_json = _plan_json(repair, plan, planned_repair)
            _show(request, plan_json, opened)
            raise typer.Exit(_exit_code(plan, planned_repair, plan_json, to_do=bool(plan.steps)))
        _agree(replace(repair, opened=opened), plan, planned_repair)
        if request.copy is not None:
            plan_json = _plan_json(repair, plan, planned_repair, applied=True)
            _repair_copy(repair, plan, planned_repair, plan_json, places)
            raise typer.Exit(_exit_code(plan, planned_repair, plan_json, to_do=False))
        assert session is not None, "a plan is carried out under the store's lock"
        if planned_repair.keep is not None:
            session.keep(planned_repair.keep, staging)
        # Said where the error itself does not: only what was rolled back is called so.
        messages.interrupted = f"rmqtool undo {request.store} --list shows whether the repair was made"
        with messages.progress(f"{request.command}: repair"):
            applied = apply_plan(plan, places, session=session)
    messages.interrupted = f"the repair was made; rmqtool undo {request.store} rolls it back"
    store = survey(opened.store.view, opened.store.settings)
    if repair.digest is not None:
        repair.digest.know_again(applied.read_back)
    with messages.progress(f"{request.command}: check of the repaired store"):
        checked, surprises = check_applied(store, opened.rules, planned_repair.begin, plan.remaining, repair.digest)
    if surprises:
        messages.warn(f"after the repair, verify reports findings that the plan did not name: {', '.join(surprises)}")
    plan_json = _plan_json(replace(repair, opened=replace(opened, store=store)), plan, planned_repair, applied=True)
    if request.output is OutputFormat.TABLE:
        sys.stdout.write(
            f"\nDone. rmqtool undo {request.store} rolls the repair back; the old files are in {applied.undo}\n"
        )
    else:
        _show(request, {**plan_json, **applied.to_json(checked)}, opened)
    raise typer.Exit(_exit_code(plan, planned_repair, plan_json, to_do=bool(surprises)))


def _agree(repair: RepairRun, plan: Plan, planned_repair: PlannedRepair) -> None:
    """Show the plan and ask; a program is shown one that is refused.

    Raises:
        RefusedError: consent is missing, or a saved plan is another one.
    """
    request, opened = repair.request, repair.opened
    plan_json = _plan_json(repair, plan, planned_repair)
    if request.output is OutputFormat.TABLE:
        _show_first(request, plan_json, opened)
    try:
        if request.apply is not None:
            demand_same(plan, read_saved(request.apply))
        plan.demand_harmless()
        demand_consent(plan, is_agreed=request.is_agreed, accept_loss=request.accept_loss)
    except RefusedError as error:
        if request.output is not OutputFormat.TABLE:
            _show(request, {**plan_json, "applied": False, "refused": str(error)}, opened)
        raise


def _repair_copy(
    repair: RepairRun,
    plan: Plan,
    planned_repair: PlannedRepair,
    plan_json: dict[str, Any],
    places: StorePaths,
) -> None:
    request, opened, messages = repair.request, repair.opened, repair.messages
    assert request.copy is not None
    messages.interrupted = f"the store was not changed; {request.copy} may be incomplete"
    with messages.progress(f"{request.command}: copy") as progress:
        copied = apply_to_copy(plan, places, request.copy, on_progress=progress.show)
    if planned_repair.keep is not None:
        with Session(copied) as session, session.staging() as staging:
            session.keep(planned_repair.keep, staging)
    if request.output is OutputFormat.TABLE:
        sys.stdout.write(f"\nDone. The repaired copy is {request.copy}; the store is unchanged.\n")
    else:
        _show(
            request,
            {**plan_json, "applied": True, "output": str(request.copy)},
            opened,
        )


@contextmanager
def _staging(session: Session | None) -> Iterator[Path]:
    """An empty directory; in the store, if its files are to be renamed into place, else a temporary one."""
    if session is not None:
        with session.staging() as staging:
            yield staging
        return
    with tempfile.TemporaryDirectory(prefix="rmqtool-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _plan(repair: RepairRun, planned_repair: PlannedRepair, before: str) -> tuple[Plan, PlannedRepair]:
    """The plan with what it leaves and leads to, and the planned repair with what was looked at in the end."""
    request, opened, digest = repair.request, repair.opened, repair.digest
    places = places_of(request, opened.store)
    copied = copied_files(planned_repair.steps, places) if request.copy is None else {}
    plan = Plan(
        request.command,
        before,
        opened.rules.version,
        planned_repair.steps,
        planned_repair.loss,
        abort_stays=planned_repair.abort_stays,
        copied_files=copied,
    )
    plan.check(places.log_directories)
    settings = opened.store.settings
    after = survey(plan.view_over(opened.store.view), settings) if plan.steps else opened.store
    if not planned_repair.damage:
        planned = PlannedStore(
            planned_repair.steps,
            planned_repair.findings,
            planned_repair.begin,
            planned_repair.abort_stays,
        )
        checked = check_planned(after, opened.rules, planned, threads=os.cpu_count() or 1, digest=digest)
        plan = replace(plan, remaining=checked.left)
        planned_repair = replace(planned_repair, looked_at=planned_repair.looked_at | checked.looked_at)
        if checked.begin is None:
            planned_repair = replace(planned_repair, begin=None, left_out=())
    of_delays = repair.delays.notes(plan.steps)
    plan = replace(plan, not_looked_at=(*planned_repair.notes, *of_delays, *planned_repair.left_out))
    if plan.is_empty and not planned_repair.damage:
        return plan, planned_repair
    forecast = replace(forecast_options(opened.conf), digest=digest)
    begin, on_note = planned_repair.begin, repair.messages.note
    return with_forecasts(plan, opened.store, after, opened.rules, forecast, begin, on_note), planned_repair


def _plan_json(
    repair: RepairRun, plan: Plan, planned_repair: PlannedRepair, *, applied: bool = False
) -> dict[str, Any]:
    damage, line, store = planned_repair.damage, repair.line, str(repair.request.store)
    flags, copy = repair.flags, repair.request.copy
    if copy is not None and applied:
        line, store = replace(line, store=shlex.quote(str(copy)), is_local=True), str(copy)
    elif copy is not None and flags is not None:
        flags = f"{flags} --output {shlex.quote(str(copy))}".lstrip()
    left_out = left_out_files(repair.opened.store, planned_repair.begin, planned_repair.looked_at)
    assessment = plan_assessment(plan, damage, left_out, repair.opened, line, applied=applied)
    if damage or applied or not plan.steps:
        own = plan.command if flags is None else f"{plan.command} {flags}".rstrip()
        step = step_after_plan(plan, damage, assessment, line, store, own)
    else:
        step = step_to_apply(plan, assessment, line, flags)
    rows = [finding.as_json() for finding in damage]
    return {**plan.to_json(), "damage": rows, **ending(assessment, step), **planned_repair.details}


def _show_first(request: RepairRequest, plan_json: dict[str, Any], opened: OpenedStore) -> None:
    """Show a plan before it is carried out: one that nobody could see is dropped, and that is no success."""
    try:
        _show(request, plan_json, opened)
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise RefusedError(f"{request.store}: the plan could not be shown; nothing was changed") from error


def _show(request: RepairRequest, plan_json: dict[str, Any], opened: OpenedStore) -> None:
    if request.output is OutputFormat.TABLE:
        here = screen()
        lines = plan_lines(
            plan_json, str(request.store), opened.chosen, here.width, colour=here.colour, all_rows=here.shows_all
        )
        sys.stdout.writelines(f"{line}\n" for line in lines)
        sys.stdout.flush()
    else:
        sys.stdout.write(json_text(plan_json, indent=2 if request.output is OutputFormat.JSON else None) + "\n")


def _save(path: Path, plan: Plan) -> None:
    try:
        path.write_text(json_text(plan.to_json(), indent=2) + "\n", "utf-8")
    except OSError as error:
        raise WriteError(f"{path}: {reason(error)}") from error


def _exit_code(plan: Plan, planned_repair: PlannedRepair, plan_json: dict[str, Any], *, to_do: bool) -> int:
    if any(finding.id == UNREADABLE for finding in planned_repair.damage):
        return ExitCode.FAILED
    is_bad = plan_json["verdict"] != StoreVerdict.OK
    is_left = to_do or planned_repair.damage or plan.remaining or is_bad
    return ExitCode.FINDINGS if is_left else ExitCode.OK
