"""Gathers columns of the rows of a chunk of the log, batch after batch."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from rmqtool.scan.columns import row_dtype
from rmqtool.scan.compiled import is_worth, load_kernel
from rmqtool.scan.plain_rows import COMPILED_FROM_ROWS, KERNEL
from rmqtool.scan.row_columns import RowColumns

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
    """Gathers the columns of a chunk; what was gathered is valid until the next rows are taken or it is cleared."""

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

    def clear(self) -> None:
        """Forget the rows."""
        self.count = 0
