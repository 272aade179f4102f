"""Rows column by column, so that one column of very many rows is read alone.

A row has some 170 bytes, so that looking at one number of each in an array of rows reads a line of the cache a row.
Almost all rows are plain: good, of the first layout, with IPv4 hosts and a topic, right about their own place, and with
nothing in their properties that dispatch has to look up. Of these few columns say everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from rmqtool.formats import commitlog, system_flag
from rmqtool.scan.rules import Verdict

Bounds = Mapping[str, tuple[int, int]]


class RowColumns:
    """Some columns of rows, read like a structured array of `columns.row_dtype`."""

    def __init__(self, columns: dict[str, NDArray[Any]]) -> None:
        self.columns = columns
        self.size = next(iter(columns.values())).size

    @property
    def names(self) -> Iterable[str]:
        """The columns that there are."""
        return self.columns.keys()

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, key: str) -> NDArray[Any]: ...

    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, key: slice | NDArray[Any]) -> RowColumns: ...

    def __getitem__(self, key: Any) -> Any:
        """A column by its name, a row by its number, or the rows that a slice, mask or array of numbers chooses."""
        if isinstance(key, str):
            return self.columns[key]
        chosen = {name: column[key] for name, column in self.columns.items()}
        return chosen if isinstance(key, int | np.integer) else RowColumns(chosen)


class PlainRows(NamedTuple):
    """Plain rows that lie one after the other; nothing of what they were taken from is needed.

    Attributes:
        bounds: the smallest and the largest number of columns, as far as they were looked for.
    """

    rows: RowColumns
    bounds: Bounds


def by_name(rows: Any) -> Any:
    """The columns of rows of either form; whoever looks at several of them asks for it once."""
    return rows.columns if isinstance(rows, RowColumns) else rows


def kept_rows(rows: Any, kept: NDArray[np.bool_]) -> Any:
    """The rows that a mask keeps, of either form; the same object where it keeps all, for copying rows takes long."""
    return rows if kept.all() else rows[kept]


def message_rows(rows: Any) -> Any:
    """The rows that are good messages, no blank and nothing bad."""
    column = by_name(rows)
    return kept_rows(rows, (column["verdict"] == Verdict.GOOD) & (column["magic"] != commitlog.MAGIC_BLANK))


def dispatched_rows(rows: Any) -> Any:
    """The good messages that have a place in a queue, which PREPARED and ROLLBACK records have not."""
    rows = message_rows(rows)
    transaction = by_name(rows)["sys_flag"] & system_flag.TRANSACTION_MASK
    return kept_rows(rows, (transaction == 0) | (transaction == system_flag.TRANSACTION_COMMIT))


def joined_rows(parts: Sequence[RowColumns]) -> RowColumns:
    """Rows that were given in several parts, with the columns of the first one."""
    if len(parts) == 1:
        return parts[0]
    return RowColumns({name: np.concatenate([part[name] for part in parts]) for name in parts[0].names})
