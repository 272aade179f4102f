"""What the records of one piece of the log put into queues and index, batch by batch, so that a runner may work it out.

A batch is the same wherever it is made, and what is written depends on nothing but the batches in the order of the log:
so the files that are built do not show who dispatched.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rmqtool.engine.derived_writer import Dispatched, dispatched
from rmqtool.engine.dispatch import DispatchSettings, Rows, batch_bytes
from rmqtool.errors import WriteError
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.scan.log import ScanOptions, reader_for, walk_piece
from rmqtool.scan.piece import Piece
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.scan.walk import Batch
from rmqtool.store.source import reason

BadRange = tuple[int, int, str]
"""Physical offset, length and finding of something that is no record."""


class Noted(NamedTuple):
    """What is remembered of a batch's rows beside what they dispatch.

    Attributes:
        log_end: physical offset behind the last row.
        last_record: physical offset and store time of the last message; None without one.
        first_ms, newest_ms: store time of the first message, and the latest of all.
        tombstones: physical offsets of the messages that stand in the place of lost ones.
    """

    log_end: int
    message_count: int = 0
    last_record: tuple[int, int] | None = None
    first_ms: int = 0
    newest_ms: int = 0
    tombstones: tuple[int, ...] = ()


def noted(rows: Rows) -> Noted:
    """What is remembered of rows, of which there is one at least."""
    log_end = int(rows["physical_offset"][-1]) + int(rows["size"][-1])
    messages = rows[rows["topic_length"] > 0]
    if not messages.size:
        return Noted(log_end)
    times, places = messages["store_timestamp_ms"], messages["physical_offset"]
    return Noted(
        log_end,
        int(messages.size),
        (int(places[-1]), int(times[-1])),
        int(times[0]),
        int(times.max()),
        tuple(places[messages["prepared_transaction_offset"] == TOMBSTONE].tolist()),
    )


def rows_that_count(batch: Batch, limit: int | None) -> tuple[Rows, BadRange | None]:
    """The rows of a batch up to the first thing that is no record, or in front of a physical offset; and that thing."""
    rows = batch.as_array()
    if limit is not None:
        rows = rows[rows["physical_offset"] < limit]
    bad = np.flatnonzero(rows["verdict"] != Verdict.GOOD)
    if not bad.size:
        return rows, None
    row = rows[int(bad[0])]
    found = int(row["physical_offset"]), int(row["size"]), FINDING_IDS[Verdict(int(row["verdict"]))]
    return rows[: int(bad[0])], found


class PieceDone(NamedTuple):
    """Where the batches of a piece were written, and what ended it early."""

    path: Path
    bad: BadRange | None


@dataclass(frozen=True)
class PieceDispatch:
    """Dispatches any piece of a log into a file of its own.

    Attributes:
        limit: physical offset from which on records do not count.
        folder: where the files lie, which whoever reads them sees too.
    """

    settings: DispatchSettings
    scan: ScanOptions
    data_bytes: int
    with_queues: bool
    with_index: bool
    limit: int | None
    folder: Path

    def __call__(self, piece: Piece) -> PieceDone:
        """Dispatch a piece.

        Raises:
            WriteError: the folder does not take the file.
        """
        path, bad = self.folder / f"{piece.physical_offset:020d}", None
        try:
            with path.open("wb") as file:
                walk = walk_piece(piece, reader_for(self.data_bytes, self.scan.compiled)(), self.scan)
                for batch in walk.batches():
                    rows, bad = rows_that_count(batch, self.limit)
                    if rows.size:
                        made = dispatched(
                            rows, batch.topics, batch_bytes(batch), self.settings,
                            with_queues=self.with_queues, with_index=self.with_index,
                        )  # fmt: skip
                        pickle.dump((noted(rows), made), file)
                    if bad is not None:
                        break
        except OSError as error:
            raise WriteError(f"{path}: {reason(error)}") from error
        finally:
            piece.source.close()
        return PieceDone(path, bad)


def batches_of(done: PieceDone) -> Iterator[tuple[Noted, Dispatched]]:
    """The batches of a piece, whose file is removed."""
    with done.path.open("rb") as file:
        done.path.unlink()
        while file.peek(1):
            yield pickle.load(file)  # noqa: S301 - written by this run
