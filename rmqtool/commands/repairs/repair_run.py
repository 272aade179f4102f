"""What a person asks of any repair, and one run of a repair command about the store as it was opened for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rmqtool.answer.opened_store import CommandLine, OpenedStore
from rmqtool.commands.messages import Messages
from rmqtool.commands.options.memory import thread_count
from rmqtool.commands.options.output_files import demand_directory, demand_own_files
from rmqtool.errors import UsageError
from rmqtool.repair.delays import DelayTimes, delay_times
from rmqtool.repair.derived.request import BuildOptions
from rmqtool.repair.machine.plan import PlannedRepair
from rmqtool.repair.machine.session import Session
from rmqtool.repair.machine.store_paths import DEFAULT_LOG, StorePaths
from rmqtool.report.own_file import OwnFile
from rmqtool.report.writers import OutputFormat
from rmqtool.scan.log_digest import LogDigest
from rmqtool.scan.runner import OnProgress
from rmqtool.store.directory import Store
from rmqtool.store.dledger_files import with_dledger_log

Planner = Callable[[Store, Path, OnProgress], PlannedRepair]
"""Makes a plan for a store; what is built lies in the given directory, which stays until the plan is applied."""


@dataclass(frozen=True, kw_only=True)
class RepairCommand:
    """What the frame of all repair commands has to know about one.

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
    """What a person said about any repair."""

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
    digest: LogDigest | None = None
    """What planning sees of the log, so that checks and forecasts of the plan need not read it again."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The own options as a saved plan has them."""

    def with_store(self, store: Store) -> RepairRun:
        """The same run, about the store as it is now or with other sizes."""
        return replace(self, opened=replace(self.opened, store=store))

    @cached_property
    def delays(self) -> DelayTimes:
        """The delays of the delay levels."""
        return delay_times(self.opened.store, self.opened.rules, self.opened.conf)

    @property
    def build_options(self) -> BuildOptions:
        """What the broker's properties file says of dispatch; a thread for each core."""
        options = BuildOptions(threads=thread_count(), delays_ms=self.delays.delays_ms, digest=self.digest)
        if (conf := self.opened.conf) is None:
            return options
        return replace(
            options,
            multi_dispatch=conf.has_multi_dispatch is not False,
            lmq=conf.has_light_queues is not False,
            extension=conf.has_queue_extension,
            record_crc=bool(conf.has_record_crc),
        )
