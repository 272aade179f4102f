"""Where the files of a store lie on this machine: a step's path becomes a place, and no link leads it astray."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqtool.errors import WriteError
from rmqtool.repair.plan import OWN_DIRECTORY, check_step_path
from rmqtool.store.kinds import FENCE_NAME, is_broker_directory
from rmqtool.store.source import reason

DEFAULT_LOG: Final = ("commitlog",)
STAGING: Final = "staging"
"""Directory below `.rmqtool` in which planners build files; those that are wanted whole are renamed into place."""


@dataclass(frozen=True)
class Places:
    """A store directory and its commitlog's directories: relative to the store, absolute where they lie elsewhere."""

    root: Path
    log_directories: tuple[str, ...] = DEFAULT_LOG

    @property
    def own(self) -> Path:
        """The directory that holds everything of the tool's own."""
        return self.root / OWN_DIRECTORY

    @property
    def undo(self) -> Path:
        """The directory of the journals, one numbered folder each."""
        return self.own / "undo"

    @property
    def staging(self) -> Path:
        """Where planners may build files; what they leave here is removed once a repair is done."""
        return self.own / STAGING

    @property
    def fences(self) -> tuple[Path, ...]:
        """One in every directory of the log."""
        return tuple(self.root / directory / FENCE_NAME for directory in self.log_directories)

    @property
    def outer_logs(self) -> tuple[Path, ...]:
        """The log's directories that lie outside of the store."""
        return tuple(Path(directory) for directory in self.log_directories if directory.startswith("/"))

    @property
    def identity(self) -> str:
        """A short name for the store, for what lies in a place that several stores may share."""
        return hashlib.sha256(os.fsencode(self.root.resolve())).hexdigest()[:12]

    def file(self, path: str) -> Path:
        """The place of a file of the store, which need not be there.

        Raises:
            WriteError: the path leads elsewhere, or over a link where no broker has a directory, or is no file.
        """
        check_step_path(path, self.log_directories)
        place = self.root / path
        if not path.startswith("/"):
            names = path.split("/")
            for depth in range(1, len(names)):
                above = "/".join(names[:depth])
                if (self.root / above).is_symlink() and not is_broker_directory(above):
                    raise WriteError(f"{path}: leads over a link")
        try:
            mode = place.lstat().st_mode
        except FileNotFoundError:
            return place
        except OSError as error:
            raise WriteError(f"{path}: {reason(error)}") from error
        if not stat.S_ISREG(mode):
            raise WriteError(f"{path}: not a regular file, so it is not changed")
        return place


def device_of(place: Path) -> int:
    """The file system that a place lies on, or would: that of its nearest directory which is there."""
    at = place
    while True:
        try:
            return at.stat().st_dev
        except (FileNotFoundError, NotADirectoryError):
            if at == at.parent:
                raise
            at = at.parent
        except OSError as error:
            raise WriteError(f"{place}: {reason(error)}") from error
