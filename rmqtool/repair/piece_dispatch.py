"""What one file of the log puts into queues and index, written down, so that a runner may work it out elsewhere.

What is written into a store depends on nothing but the entries in the order of the log, so the files that are built do
not show who dispatched.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rmqtool.engine.derived_writer import Dispatching
from rmqtool.errors import WriteError
from rmqtool.repair.log_reading import Bad, LogReading, ReadRows
from rmqtool.scan.log import LogPlan, ScanOptions
from rmqtool.scan.piece import Piece
from rmqtool.store.source import reason


class PieceDone(NamedTuple):
    """Where the entries of a piece were written, and what ended it early."""

    path: Path
    bad: Bad | None


@dataclass(frozen=True)
class PieceDispatch:
    """Dispatches any piece of a log into a file of its own.

    Attributes:
        data_bytes: of the whole log.
        log_end: physical offset from which on records do not count.
        folder: where the files lie, which whoever reads them sees too.
    """

    dispatching: Dispatching
    options: ScanOptions
    data_bytes: int
    log_end: int | None
    folder: Path

    def __call__(self, piece: Piece) -> PieceDone:
        """Dispatch a piece.

        Raises:
            WriteError: the folder does not take the file.
        """
        reading = LogReading(LogPlan((piece,), self.data_bytes), self.options, self.log_end, self.dispatching)
        path = self.folder / f"{piece.physical_offset:020d}"
        try:
            with path.open("wb") as file:
                for rows in reading.rows():
                    pickle.dump(rows, file)
        except OSError as error:
            raise WriteError(f"{path}: {reason(error)}") from error
        return PieceDone(path, reading.bad)


def rows_of(done: PieceDone) -> Iterator[ReadRows]:
    """What was read of a piece, whose file is removed."""
    with done.path.open("rb") as file:
        done.path.unlink()
        while file.peek(1):
            yield pickle.load(file)  # noqa: S301 - written by this run
