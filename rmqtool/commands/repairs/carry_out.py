"""The walk of every repair command: open, lock, plan, ask, apply, check. `repair` decides what is in a plan."""

from __future__ import annotations

import errno
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from enum import Enum
from inspect import Parameter
from pathlib import Path
from typing import Any, Final

import typer
from typer.models import OptionInfo

from rmqtool.answer.answer import NAMED_MAX
from rmqtool.answer.opened_store import OpenedStore
from rmqtool.answer.presence import denied_files, missing_log, reader_command
from rmqtool.commands.closed_pipe import reader_needed
from rmqtool.commands.messages import Messages
from rmqtool.commands.options import store as shared
from rmqtool.commands.repairs.repair_plan import PlannedRun, Planner, RepairRequest, RepairRun, make_plan
from rmqtool.engine.reading.log_presence import is_log_missing
from rmqtool.engine.rules.versions import NEWEST
from rmqtool.errors import RefusedError, UnreadableError, UsageError, WriteError
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.output import apply_to_copy
from rmqtool.repair.machine.plan import Plan, demand_same, read_saved
from rmqtool.repair.machine.session import Session
from rmqtool.repair.machine.store_paths import DEFAULT_LOG, StorePaths
from rmqtool.repair.machine.undo import is_unsettled, settle
from rmqtool.repair.remaining import check_applied
from rmqtool.report.own_file import OwnFile, replace_own
from rmqtool.report.writers import OutputFormat, json_text
from rmqtool.store.acquire_lock import demand_free
from rmqtool.store.directory import Store, survey
from rmqtool.store.location import relative_to_store
from rmqtool.store.log_owner import doubtful_link
from rmqtool.store.view import open_directory


def open_for_repair(
    request: RepairRequest, options: shared.StoreOptions, messages: Messages, stack: ExitStack
) -> tuple[OpenedStore, Session | None]:
    """The store, once nobody else uses it and its version is known, and what holds it; None where it is only read.

    Args:
        stack: closes the session at the end of the command.

    Raises:
        RefusedError: a broker or another rmqtool uses it, a repair is unfinished, or nothing tells its version.
        UsageError, NotAStoreError, UnreadableError: see `open_store`.
    """

    def as_owner(store: Store) -> str:
        """How to run the command as a user who may read and write the store, as a sentence."""
        command = request.command
        names_file = command.store_of is not None
        line = (
            f"rmqtool {command.name} ..." if names_file else shared.command_line(request.store, options)(command.name)
        )
        return reader_command(store, line)

    request.check()
    shared.refuse_bundle(request.store)
    open_directory(request.store)
    named = tuple(relative_to_store(directory, request.store) for directory in options.commitlog or ())
    session: Session | None = None
    if not request.only_looks and request.copy is None:
        # Before anything is looked at: what another run does until then is seen, and afterwards it is kept out.
        try:
            session = stack.enter_context(Session(StorePaths(request.store, named or DEFAULT_LOG), makes_file=False))
        except WriteError as error:
            if isinstance(error.__cause__, PermissionError):
                raise WriteError(f"{error}. {as_owner(shared.open_store(request.store, options).store)}") from error
            raise
    opened = shared.open_store(request.store, options)
    if denied := denied_files(opened.store):
        raise UnreadableError(f"{'; '.join(map(str, denied[:NAMED_MAX]))}. {as_owner(opened.store)}")
    _demand_own_log(request, opened)
    places = request.places(opened.store)
    if session is None:
        _demand_idle(request, places)
    else:
        session.lock.demand_unused(places.outer_logs)
        if is_unsettled(places):
            session.places = places
            settle(places, session=session)
            messages.warn("an earlier repair was unfinished and has been rolled back")
            opened = shared.open_store(request.store, options)
    if not opened.is_version_known:
        if not request.may_ask:
            _demand_version(request, opened)
        version = typer.prompt(
            "The store does not show its broker version. Which version is it", default=NEWEST, err=True
        )
        opened = shared.open_store(request.store, replace(options, broker_version=version))
    opened.demand_read_sizes()
    if session is not None:
        session.places = request.places(opened.store)
    if request.command.infers_queue_kind:
        settings = replace(opened.store.settings, queue_kind=None)
        opened = replace(opened, store=survey(opened.store.view, settings))
    shared.tell_opened(opened, messages)
    if request.copy is None:
        for warning in filter(None, (shared.foreign_owner(opened.store), doubtful_link(request.store))):
            messages.warn(warning)
    return opened, session


def carry_out(run: RepairRun, planner: Planner) -> None:
    """Plan, show, ask, apply and check. Ends with the exit code of the contract.

    Raises:
        RefusedError: consent is missing, or the store or the saved plan is another one.
        RmqtoolError: something fails; see `apply_plan`.
    """
    request, session, messages = run.request, run.session, run.messages
    name = request.command.name
    if request.apply is not None:
        read_saved(request.apply)  # before hours of planning
    places = request.places(run.opened.store) if session is None else session.places
    with _staging(session) as staging:
        try:
            planned = make_plan(run, planner, places, staging, may_ask=request.may_ask)
        except WriteError as error:
            cause = error.__cause__
            is_full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
            room = "; make room on that disk" if session is not None else "; set TMPDIR to a directory with more room"
            raise WriteError(f"{error}; the store was not changed{room if is_full else ''}") from error
        plan, repair = planned.plan, planned.repair
        if request.save is not None:
            saved = {**plan.to_json(), "options": dict(run.options)}
            replace_own(request.save, OwnFile.PLAN, json_text(saved, indent=2) + "\n")
        is_idle = plan.is_empty and request.copy is None
        if is_idle or request.dry_run or request.save is not None or repair.damage:
            answer = planned.answer()
            planned.show(answer)
            raise typer.Exit(answer.exit_code)
        demand_agreement(planned)

        if request.copy is not None:
            messages.interrupted = f"the store was not changed; {request.copy} may be incomplete"
            with messages.progress(f"{name}: copy") as progress:
                copied = apply_to_copy(plan, places, request.copy, on_progress=progress.show)
            if repair.keep is not None:
                with Session(copied) as session_of_copy, session_of_copy.staging() as kept:
                    session_of_copy.keep(repair.keep, kept)
            answer = planned.answer(applied=True)
            if request.output is OutputFormat.TABLE:
                sys.stdout.write(f"\nDone. The repaired copy is {request.copy}; the store is unchanged.\n")
            else:
                planned.show(answer, applied=True, output=str(request.copy))
            raise typer.Exit(answer.exit_code)

        assert session is not None, "a plan is carried out under the store's lock"
        if repair.keep is not None:
            session.keep(repair.keep, staging)
        # Said where the error itself does not: only what was rolled back is called so.
        messages.interrupted = f"rmqtool undo {request.store} --list shows whether the repair was made"
        with messages.progress(f"{name}: repair"):
            applied = apply_plan(plan, places, session=session)

    messages.interrupted = f"the repair was made; rmqtool undo {request.store} rolls it back"
    sized = planned.run.opened.store
    repaired = survey(sized.view, sized.settings, sized)
    if run.cache is not None:
        run.cache.know_again(applied.read_back)
    with messages.progress(f"{name}: check of the repaired store"):
        rules = run.opened.rules
        checked, surprises = check_applied(repaired, rules, repair.begin, plan.remaining, repair.explained, run.cache)
    if surprises:
        messages.warn(f"after the repair, verify reports findings that the plan did not name: {', '.join(surprises)}")
    planned = replace(planned, run=planned.run.with_store(repaired))
    answer = planned.answer(applied=True, surprises=surprises)
    if request.output is OutputFormat.TABLE:
        sys.stdout.write(
            f"\nDone. rmqtool undo {request.store} rolls the repair back; the old files are in {applied.undo}\n"
        )
    else:
        planned.show(answer, **applied.to_json(checked))
    raise typer.Exit(answer.exit_code)


def preview(run: RepairRun, planner: Planner) -> dict[str, Any]:
    """The plan as --dry-run writes it in JSON; nothing is shown, nobody is asked, and the store is only read.

    Raises:
        RefusedError: somebody else uses the store, an earlier repair is unfinished, or nothing tells its version.
        RmqtoolError: no plan can be made.
    """
    request, opened = run.request, run.opened
    places = request.places(opened.store)
    if denied := denied_files(opened.store):
        raise UnreadableError("; ".join(map(str, denied[:NAMED_MAX])))
    _demand_own_log(request, opened)
    _demand_idle(request, places)
    _demand_version(request, opened)
    opened.demand_read_sizes()
    with _staging(None) as staging:
        planned = make_plan(run, planner, places, staging, may_ask=False)
        return planned.as_json(planned.answer())


def _demand_own_log(request: RepairRequest, opened: OpenedStore) -> None:
    """Refuse a store whose log is another store's, of which a directory is not there, or with a FIFO for a file.

    Raises:
        RefusedError: the log is not to be changed, or for a copy of it, somebody uses it.
        UnreadableError: a directory that was named is not there.
    """
    if opened.foreign is not None:
        opened.foreign.demand_usable(request.store, request.command.name, is_copied=request.copy is not None)
    if opened.store.commitlog and opened.store.problems and (missing := missing_log(opened.store)) is not None:
        raise UnreadableError(f"{request.store}: {missing.text}")
    for node in opened.store.nodes:
        raise UnreadableError(f"{node.not_a_file}: move it out of the store, and run this again")


def _demand_idle(request: RepairRequest, places: StorePaths) -> None:
    """Refuse a store that is only read, if somebody uses it or an earlier repair is unfinished."""
    demand_free(request.store, places.outer_logs)
    if is_unsettled(places):
        raise RefusedError(f"{request.store}: an earlier repair is unfinished; roll it back with rmqtool undo")


def _demand_version(request: RepairRequest, opened: OpenedStore) -> None:
    if not opened.is_version_known:
        raise RefusedError(
            f"{request.store}: nothing in the store shows its broker version; pass --broker-version X.Y.Z"
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


# What a repair must not do without a person's consent: the plan is shown, its losses are named, and asked about.


def demand_agreement(planned: PlannedRun) -> None:
    """Show the plan and ask; a program is shown one that is refused, as RefusedError, for want of consent or as another
    one than was saved.
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
    """Ask whether the plan is to be carried out, and its losses accepted; RefusedError where nobody agrees."""
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


# A saved plan: written whole, and with the command's own options, so that `--apply` need not be given them again.

_LEAVES_PLAN_ALONE: Final = frozenset({"master", "conf", "show_lost"})
"""Options that say where a plan is made or how it is shown, and not what it is."""


def options_to_save(own: Iterable[Parameter], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a person gave, by the names that are typed; paths are absolute."""
    return {flag: _as_json(options[name]) for name, flag in _flags(own) if _is_given(options[name])}


def add_saved_options(own: Iterable[Parameter], options: dict[str, Any], path: Path) -> None:
    """Take the options that are not given from a saved plan.

    Raises:
        UnreadableError: the file is no saved plan.
        UsageError: a given option has another value than in the plan.
    """
    own = tuple(own)
    saved = read_saved(path).get("options", {})
    flags = dict(_flags(own))
    if not isinstance(saved, dict):
        raise UnreadableError(f"{path}: not a saved plan")
    for parameter in own:
        if (flag := flags.get(parameter.name)) not in saved:
            continue
        value = _from_json(parameter.annotation, saved[flag], path)
        given = options[parameter.name]
        if _is_given(given) and _as_json(given) != _as_json(value):
            raise UsageError(f"{flag}: the saved plan has another value; leave it out, or make the plan again")
        options[parameter.name] = value


def _flags(own: Iterable[Parameter]) -> Iterable[tuple[str, str]]:
    """Name and flag of each option that belongs to a plan."""
    for parameter in own:
        info = parameter.annotation.__metadata__[0]
        if isinstance(info, OptionInfo) and parameter.name not in _LEAVES_PLAN_ALONE:
            declared = (info.default, *(info.param_decls or ()), f"--{parameter.name.replace('_', '-')}")
            yield parameter.name, next(text for text in map(str, declared) if text.startswith("--"))


def _is_given(value: Any) -> bool:
    return value is not None and value is not False


def _as_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_json(part) for part in value]
    if isinstance(value, Enum):
        return value.value
    return str(value.absolute()) if isinstance(value, Path) else value


def _from_json(annotation: Any, value: Any, path: Path) -> Any:
    """A value of the plan as the command line gives it; UnreadableError where no option takes it."""
    import msgspec

    def of_text(kind: type, text: Any) -> Any:
        if not isinstance(text, str) or "\0" in text:
            raise ValueError(text)
        return kind(text)

    try:
        converted = msgspec.convert(value, annotation.__origin__, dec_hook=of_text)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise UnreadableError(f"{path}: not a saved plan") from error
    if isinstance(converted, int) and converted < 0:
        raise UnreadableError(f"{path}: not a saved plan")
    return converted
