"""How far a long run is: a bar with rate and time left, on standard error, and only on a terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class _Bar:
    """A bar; nothing at all where standard error is no terminal, or the run is a quiet one."""

    columns: tuple[ProgressColumn, ...]
    """What stands beside the bar."""

    def __init__(self, what: str, *, quiet: bool) -> None:
        self._progress: Progress | None = None
        if not quiet and sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), *self.columns, TimeRemainingColumn())
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task(what, total=None) if self._progress is not None else None

    def show(self, done: int, total: int) -> None:
        """How much is done, and how much there is in all."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=total)

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()


class ByteProgress(_Bar):
    """A bar over bytes."""

    columns = (DownloadColumn(binary_units=True), TransferSpeedColumn())


class TaskProgress(_Bar):
    """A bar over the tasks of a Spark job."""

    columns = (MofNCompleteColumn(),)
