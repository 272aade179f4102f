"""What a person asks of any repair: the shared options, checked against each other before anything is looked at."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rmqtool.commands.options.output_files import demand_directory, demand_own_files
from rmqtool.commands.options.store import OpenedStore
from rmqtool.errors import UnreadableError, UsageError
from rmqtool.report.own_file import OwnFile
from rmqtool.report.writers import OutputFormat
from rmqtool.verdict.presence import missing_log


@dataclass(frozen=True)
class RepairRequest:
    """What a person said about any repair."""

    command: str
    store: Path
    dry_run: bool
    save: Path | None
    apply: Path | None
    is_agreed: bool
    accept_loss: bool
    undo_dir: Path | None
    output: OutputFormat
    copy: Path | None = None

    def check(self) -> None:
        """Refuse options that contradict each other.

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

    def demand_own_log(self, opened: OpenedStore) -> None:
        """Refuse a store whose log is another store's, of which a directory is not there, or with a FIFO for a file.

        Raises:
            RefusedError: the log is not to be changed, or for a copy of it, somebody uses it.
            UnreadableError: a directory that was named is not there.
        """
        if opened.foreign is not None:
            opened.foreign.demand_usable(self.store, self.command, is_copied=self.copy is not None)
        if opened.store.commitlog and opened.store.problems and (missing := missing_log(opened.store)) is not None:
            raise UnreadableError(f"{self.store}: {missing.text}")
        for node in opened.store.nodes:
            raise UnreadableError(f"{node.not_a_file}: move it out of the store, and run this again")

    @property
    def looks_at_files_for_queues(self) -> bool:
        """Whether files tell where the consume queues are: around a conversion `storeType` is that of either side."""
        return self.command == "convert"

    @property
    def names_a_file(self) -> bool:
        """Whether a person names a file of the store, and not the store."""
        return self.command == "patch"

    @property
    def only_looks(self) -> bool:
        """Whether nothing is to be changed, or nobody can be asked."""
        return self.dry_run or self.save is not None or not (self.is_agreed or sys.stdin.isatty())
