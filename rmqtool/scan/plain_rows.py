"""Makes columns of rows: those of a block of plain records, and those of a chunk, batch after batch."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.formats import commitlog
from rmqtool.formats.system_flag import HOSTS_V6
from rmqtool.scan.columns import row_dtype
from rmqtool.scan.compiled import is_worth, load_kernel
from rmqtool.scan.row_columns import Bounds, PlainRows, RowColumns
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import Batch

COMPILED_FROM_ROWS: Final = 1 << 18
"""Rows from which the compiled kernel is asked where no other one is loaded."""
KERNEL: Final = "rmqtool.scan.kernels.column_kernel"
WIDE: Final = (
    "physical_offset",
    "size",
    "queue_offset",
    "store_timestamp_ms",
    "prepared_transaction_offset",
    "tags_code",
)
NARROW: Final = ("queue_id", "sys_flag", "topic_number", "topic_length")


def columns_of(batch: Batch) -> PlainRows | None:
    """The columns of a batch's rows, where all are plain records; it keeps them for whoever asks next."""
    if batch.plain is None:
        batch.plain = plain_rows(batch.as_array())
    return batch.plain


def plain_rows(rows: NDArray[Any]) -> PlainRows | None:
    """The columns of rows; None where a row is not plain, or lies apart from the one before."""
    if not rows.size:
        return None
    is_worthwhile = isinstance(rows, np.ndarray) and is_worth(rows.size, COMPILED_FROM_ROWS)
    columns = _compiled_columns(rows) if is_worthwhile else _columns(rows)
    return None if columns is None else PlainRows(with_constants(columns[0]), columns[1])


def with_constants(columns: dict[str, NDArray[Any]]) -> RowColumns:
    """The rows with the columns that are the same for all plain records."""
    offsets, count = columns["physical_offset"], columns["physical_offset"].size
    return RowColumns(
        {
            **columns,
            "own_offset": offsets,
            "verdict": np.full(count, int(Verdict.GOOD), np.int32),
            "magic": np.full(count, commitlog.MAGIC_V1, np.int32),
            "features": np.zeros(count, np.int32),
        }
    )


def _compiled_columns(rows: NDArray[Any]) -> tuple[dict[str, NDArray[Any]], Bounds] | None:
    wide, narrow = np.empty((len(WIDE), rows.size), np.int64), np.empty((len(NARROW), rows.size), np.int32)
    first = rows[0]
    bounds = np.array([[first[name]] * 2 for name in (*WIDE, *NARROW)], np.int64)
    if not load_kernel(KERNEL).take_columns(rows, wide, narrow, bounds):
        return None
    columns: dict[str, NDArray[Any]] = dict(zip((*WIDE, *NARROW), (*wide, *narrow), strict=True))
    return columns, {name: (least, most) for name, (least, most) in zip(columns, bounds.tolist(), strict=True)}


def _columns(rows: NDArray[Any]) -> tuple[dict[str, NDArray[Any]], Bounds] | None:
    sizes, offsets = rows["size"], rows["physical_offset"]
    is_plain = (
        not rows["verdict"].any()
        and (rows["magic"] == commitlog.MAGIC_V1).all()
        and not rows["features"].any()
        and not (rows["sys_flag"] & HOSTS_V6).any()
        and rows["topic_length"].all()
        and (rows["own_offset"] == offsets).all()
        and (offsets[:-1] + sizes[:-1] == offsets[1:]).all()
    )
    if not is_plain:
        return None
    columns = {name: np.ascontiguousarray(rows[name]) for name in (*WIDE, *NARROW)}
    return columns, {name: (int(column.min()), int(column.max())) for name, column in columns.items()}


CHUNK: Final = (
    "physical_offset",
    "size",
    "queue_offset",
    "store_timestamp_ms",
    "prepared_transaction_offset",
    "tags_code",
    "verdict",
    "magic",
    "queue_id",
    "sys_flag",
    "topic_number",
    "features",
)
"""The columns that are gathered of a chunk of the log."""
GROWTH: Final = 1 << 14
"""Rows for which there is room beyond those that are taken, once there was too little."""


class RowColumnsBuilder:
    """Gathers the columns of a chunk; what was gathered is valid until the next rows are taken.

    Attributes:
        count: of the rows taken; 0 begins again.
    """

    def __init__(self, room: int) -> None:
        dtype = row_dtype()
        self._columns = {name: np.empty(room, dtype[name]) for name in CHUNK}
        self._room = room
        self.count = 0

    def take(self, rows: Any) -> bool:
        """Take rows of either form; whether any has features."""
        begin, stop = self.count, self.count + len(rows)
        if stop > self._room:
            self._room = stop + GROWTH
            for name, column in self._columns.items():
                self._columns[name] = np.empty(self._room, column.dtype)
                self._columns[name][:begin] = column[:begin]
        self.count = stop
        if isinstance(rows, np.ndarray) and rows.flags.c_contiguous and is_worth(len(rows), COMPILED_FROM_ROWS):
            return bool(load_kernel(KERNEL).take_rows(rows, begin, *self._columns.values()))
        for name, column in self._columns.items():
            column[begin:stop] = rows[name]
        return bool(rows["features"].any())

    def rows(self, start: int = 0, stop: int | None = None) -> RowColumns:
        """The rows taken, or those from one number up to another."""
        part = slice(start, self.count if stop is None else stop)
        return RowColumns({name: column[part] for name, column in self._columns.items()})
