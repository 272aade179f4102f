"""A plan in the hands of a repair command: with what it leaves, what brokers would do after it, and its answer."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar

import typer

from rmqtool.answer.answer import Answer
from rmqtool.answer.opened_store import CommandLine, OpenedStore
from rmqtool.answer.plan_answer import answer_of_plan
from rmqtool.commands.messages import Messages
from rmqtool.commands.options.output_files import demand_directory, demand_own_files
from rmqtool.commands.options.run import thread_count
from rmqtool.commands.screen import screen
from rmqtool.errors import UnknownSizeError, UsageError
from rmqtool.forecast.options import forecast_options
from rmqtool.forecast.unsimulated import unsimulated_settings
from rmqtool.memory import memory_budget
from rmqtool.repair.delays import DelayTimes, delay_times
from rmqtool.repair.derived.result import BuildOptions
from rmqtool.repair.machine.fingerprint import unchanged
from rmqtool.repair.machine.journal_writer import copied_files
from rmqtool.repair.machine.plan import Plan, PlannedRepair, view_over
from rmqtool.repair.machine.session import Session
from rmqtool.repair.machine.steps import synced_meanwhile
from rmqtool.repair.machine.store_paths import DEFAULT_LOG, StorePaths
from rmqtool.repair.plan_forecasts import PlanForecasts
from rmqtool.repair.remaining import check_planned
from rmqtool.report.own_file import OwnFile
from rmqtool.report.screens.repair_screen import plan_lines
from rmqtool.report.writers import OutputFormat, json_text
from rmqtool.scan.row_cache import RowCache
from rmqtool.scan.runner import OnProgress
from rmqtool.store.directory import Store, survey, with_settings
from rmqtool.store.dledger_files import with_dledger_log

Planner = Callable[[Store, Path, OnProgress], PlannedRepair]
"""Makes a plan for a store; what is built lies in the given directory, which stays until the plan is applied."""


@dataclass(frozen=True, kw_only=True)
class RepairCommand:
    """Properties of a repair command for the frame of all of them.

    Attributes:
        store_of: the store of the file that a person names, the option `file`; None where the store is named.
        infers_queue_kind: whether files tell where the consume queues are, and not `storeType`: around a conversion
            that is the setting of either side.
    """

    name: str
    store_of: Callable[[Path], Path] | None = None
    infers_queue_kind: bool = False


@dataclass(frozen=True, kw_only=True)
class RepairRequest:
    """Options that all repairs share."""

    command: RepairCommand
    store: Path
    dry_run: bool = False
    save: Path | None = None
    apply: Path | None = None
    is_agreed: bool = False
    accept_loss: bool = False
    undo_dir: Path | None = None
    copy: Path | None = None
    output: OutputFormat

    def check(self) -> None:
        """Refuse options that contradict each other, before anything is looked at.

        Raises:
            UsageError: they do.
            RefusedError: the file for the plan is another one.
            WriteError: a file or directory that they name cannot be written.
        """
        if self.copy is not None and self.undo_dir is not None:
            raise UsageError("--undo-dir has no effect with --output: the store itself is not changed")
        if self.apply is not None and (self.save is not None or self.dry_run):
            raise UsageError("--apply applies a plan; do not combine it with --plan or --dry-run")
        demand_own_files({"--plan": (self.save, OwnFile.PLAN)})
        if self.copy is not None and not self.dry_run:
            demand_directory("--output", self.copy)
        if self.undo_dir is not None and not self.only_looks:
            demand_directory("--undo-dir", self.undo_dir)

    @property
    def may_ask(self) -> bool:
        """Whether there is a person who can answer, and has not agreed in advance."""
        return not self.is_agreed and sys.stdin.isatty()

    @property
    def only_looks(self) -> bool:
        """Whether nothing is to be changed, or nobody can be asked."""
        return self.dry_run or self.save is not None or not (self.is_agreed or sys.stdin.isatty())

    def places(self, store: Store) -> StorePaths:
        """Where the store's files lie."""
        holding = (file.path.rpartition("/")[0] for file in with_dledger_log(store).commitlog)
        folders = dict.fromkeys((*store.settings.commitlog_directories, *holding))
        if self.copy is not None:  # which has a plain log: data of DLedger outside of the store is only read
            outer = {folder for folder in store.settings.dledger_directories if folder.startswith("/")}
            folders = dict.fromkeys(folder for folder in folders if folder not in outer)
        return StorePaths(self.store, tuple(folders) or DEFAULT_LOG, self.undo_dir)


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
    cache: RowCache | None = None
    """Digest of the log from planning, so that checks and forecasts of the plan need not read it again."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The own options as a saved plan has them."""

    def with_store(self, store: Store) -> RepairRun:
        """The same run, about the store as it is now or with other sizes."""
        return replace(self, opened=replace(self.opened, store=store))

    @cached_property
    def delays(self) -> DelayTimes:
        return delay_times(self.opened.store, self.opened.rules, self.opened.conf)

    @property
    def build_options(self) -> BuildOptions:
        """What the broker's properties file says of dispatch; a thread for each core."""
        options = BuildOptions(threads=thread_count(), delays_ms=self.delays.delays_ms, cache=self.cache)
        if (conf := self.opened.conf) is None:
            return options
        return replace(
            options,
            multi_dispatch=conf.has_multi_dispatch is not False,
            lmq=conf.has_light_queues is not False,
            extension=conf.has_queue_extension,
            record_crc=bool(conf.has_record_crc),
        )


Planned = TypeVar("Planned")
_QUESTIONS: Final = {
    "timer_log_file_size": "Bytes of a timer log file (mappedFileSizeTimerLog)",
    "compaction_log_file_size": "Bytes of a log file of compacted topics (compactionMappedFileSize)",
    "commitlog_file_size": "Bytes of a commit log file (mappedFileSizeCommitLog)",
    "consumequeue_file_size": "Bytes of a consume queue file (mappedFileSizeConsumeQueue)",
    "batch_file_size": "Bytes of a batch consume queue file (mapperFileSizeBatchConsumeQueue)",
    "index_slot_count": "Hash slots of an index file (maxHashSlotNum)",
    "index_entry_count": "Entries of an index file (maxIndexNum)",
}


@dataclass(frozen=True)
class PlannedRun:
    """A run whose store has the sizes that a person gave, with its plan and what the planner came to."""

    run: RepairRun
    plan: Plan
    repair: PlannedRepair

    def answer(self, *, applied: bool = False, surprises: Sequence[str] = ()) -> Answer:
        """What the plan comes to, about the copy where one is repaired; see `answer_of_plan`."""
        run, root, line, flags = self.run, self.run.request.store, self.run.line, self.run.flags
        copy = run.request.copy
        if copy is not None and applied:
            line, root = replace(line, store=shlex.quote(str(copy)), is_local=True), copy
        elif copy is not None and flags is not None:
            flags = f"{flags} --output {shlex.quote(str(copy))}".lstrip()
        return answer_of_plan(
            self.plan, self.repair, run.opened, line, root=root, flags=flags, applied=applied, surprises=surprises
        )

    def as_json(self, answer: Answer) -> dict[str, Any]:
        """The plan with its verdict and the next step."""
        damage = [finding.as_json() for finding in self.repair.damage]
        return {**self.plan.to_json(), "damage": damage, **answer.as_json(), **self.repair.details}

    def show(self, answer: Answer, **more: object) -> None:
        """Print the plan; as JSON, with what became of it."""
        request, plan_json = self.run.request, {**self.as_json(answer), **more}
        if request.output is not OutputFormat.TABLE:
            sys.stdout.write(json_text(plan_json, indent=2 if request.output is OutputFormat.JSON else None) + "\n")
            return
        terminal, store, chosen = screen(), str(request.store), self.run.opened.chosen
        lines = plan_lines(plan_json, store, chosen, terminal.width, color=terminal.color, all_rows=terminal.shows_all)
        sys.stdout.writelines(f"{line}\n" for line in lines)
        sys.stdout.flush()


def make_plan(run: RepairRun, planner: Planner, places: StorePaths, staging: Path, *, may_ask: bool) -> PlannedRun:
    """The plan for a store that nothing changes meanwhile, with what it leaves and leads to."""
    messages, name, opened = run.messages, run.request.command.name, run.opened
    with unchanged(places) as before:
        with messages.progress(name) as progress:
            store, repair = plan_with_sizes(
                # A broker may have come since it was opened.
                survey(opened.store.view, opened.store.settings, opened.store),
                lambda store, directory: planner(store, directory, progress.show),
                staging,
                messages,
                may_ask=may_ask,
            )
        in_place = repair.steps if run.session is not None else ()
        with messages.progress(f"{name}: check of the plan"), synced_meanwhile(in_place):
            return _with_outlook(run.with_store(store), repair, before)


def plan_with_sizes(
    store: Store, planner: Callable[[Store, Path], Planned], staging: Path, messages: Messages, *, may_ask: bool
) -> tuple[Store, Planned]:
    """The store with the sizes that a person gave, and the plan for it.

    Args:
        planner: makes the plan, with what it builds in the given directory.
        staging: an empty directory.
        may_ask: whether there is a person who can answer.

    Raises:
        UnknownSizeError: nobody can be asked for a size.
    """
    for number in count():
        directory = staging / f"plan-{number}"
        directory.mkdir()
        try:
            return store, planner(store, directory)
        except UnknownSizeError as error:
            if not may_ask:
                raise
            messages.warn(str(error))
            with messages.asking():
                answer = typer.prompt(_QUESTIONS[error.setting], default=error.default, type=int, err=True)
            if answer > 0:
                store = survey(store.view, with_settings(store.settings, **{error.setting: answer}))
    raise AssertionError  # each answer settles one size, and there are few


def _with_outlook(run: RepairRun, repair: PlannedRepair, before: str) -> PlannedRun:
    """The plan with its remaining findings and forecasts, and the planned repair with the last check."""
    request, opened, cache = run.request, run.opened, run.cache
    places = request.places(opened.store)
    plan = Plan(
        request.command.name,
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
    options = replace(forecast_options(opened.conf), cache=cache)
    others = opened.possible_versions
    with PlanForecasts(opened.store, after, opened.rules, options, run.messages.note, repair, others) as forecasts:
        # The forecast of the store as it is needs nothing of the check: where memory has no limit, both continue at
        # once.
        if plan.steps and repair.begin is None and memory_budget().limit is None:
            forecasts.look_now(None)
        if not repair.damage:
            checked = check_planned(after, opened.rules, repair, threads=thread_count(), cache=cache)
            plan = replace(plan, remaining=checked.left)
            repair = replace(repair, looked_at=repair.looked_at | checked.looked_at, explained=checked.explained)
            if checked.begin is None:
                repair = replace(repair, begin=None, left_out=())
        of_delays = run.delays.notes(plan.steps)
        of_settings = [unread.reason for unread in unsimulated_settings(opened.conf, after)]
        plan = replace(plan, not_looked_at=(*repair.notes, *of_delays, *repair.left_out, *of_settings))
        if not plan.is_empty or repair.damage:
            plan = forecasts.completed(plan, repair.begin)
    return PlannedRun(run, plan, repair)
