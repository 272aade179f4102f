"""Reads `epochFileCheckpoint` as a broker in controller mode does: the file, else its backup."""

from __future__ import annotations

from contextlib import closing
from typing import Final, NamedTuple

from rmqtool.errors import UnreadableError
from rmqtool.formats.controller import EPOCHS, Epochs, parse_epochs
from rmqtool.store.source import read_range
from rmqtool.store.view import StoreView

SIZE_MAX: Final = 1 << 20
"""Bytes of such a file that are read: tens of thousands of epochs."""
BACKUP: Final = f"{EPOCHS}.bak"


class EpochFiles(NamedTuple):
    """The two files; None for one that is not there, or not asked."""

    own: Epochs | None
    backup: Epochs | None

    @property
    def used(self) -> Epochs:
        """What the broker uses."""
        return next((file for file in (self.own, self.backup) if file is not None and file.problem is None), Epochs())

    @property
    def why_not(self) -> str | None:
        """Why the broker does not start, as a sentence."""
        for path, file in ((EPOCHS, self.own), (BACKUP, self.backup)):
            if file is not None and file.prevents_start:
                return f"{path}: {file.problem}"
        return None


def read_epochs(view: StoreView) -> EpochFiles:
    """Both files, the backup only where the broker asks for it.

    Raises:
        UnreadableError: a file may not be read, or is too large.
    """
    own = _read(view, EPOCHS)
    asks = own is None or (own.problem is not None and not own.prevents_start)
    return EpochFiles(own, _read(view, BACKUP) if asks else None)


def read_text_file(view: StoreView, path: str) -> bytes | None:
    """A small file; None where there is none.

    Raises:
        UnreadableError: it may not be read, or is too large.
    """
    if view.stat(path) is None:
        return None
    with closing(view.open(path)) as source:
        if source.size > SIZE_MAX:
            raise UnreadableError(f"{path}: {source.size} bytes, too large for such a file")
        return read_range(source, 0, source.size)


def _read(view: StoreView, path: str) -> Epochs | None:
    raw = read_text_file(view, path)
    return None if raw is None else parse_epochs(raw)
