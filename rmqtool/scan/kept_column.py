"""A column of numbers in as few bytes a number as its range, or its few distinct numbers, need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEW: Final = 64
"""Distinct numbers of a column in which the place of each is kept; all are among its first rows."""


class KeptColumn(NamedTuple):
    """One column of a block.

    Attributes:
        kind: of the numbers of the content; empty where all numbers of the column are the same.
        least: the smallest number.
        few: distinct numbers of the column, of which the content has the places; empty where it has differences to
            the smallest one.
        content: bytes in memory, or their place in a file.
    """

    dtype: str
    kind: str
    least: int
    few: bytes
    content: bytes | int


def keep_column(
    values: NDArray[Any], keep: Callable[[bytes], bytes | int], bounds: tuple[int, int] | None = None
) -> KeptColumn:
    """The column as it is kept; `keep` is told its bytes, if it has any, and says where they are.

    Args:
        bounds: the smallest and the largest number, where they are known.
    """
    dtype = values.dtype.str
    if bounds is None:
        bounds = (int(values.min()), int(values.max())) if values.size else (0, 0)
    least, most = bounds
    if least == most:
        return KeptColumn(dtype, "", least, b"", b"")
    narrow, few = _narrow(values, least, most)
    return KeptColumn(dtype, narrow.dtype.str, least, few, keep(narrow.tobytes()))


def keep_columns(
    columns: Iterable[tuple[NDArray[Any], tuple[int, int] | None]], keep: Callable[[bytes], bytes | int]
) -> tuple[KeptColumn, ...]:
    """Columns as they are kept, each given with its bounds; see `keep_column`."""
    return tuple([keep_column(values, keep, bounds) for values, bounds in columns])


def _narrow(values: NDArray[Any], least: int, most: int) -> tuple[NDArray[Any], bytes]:
    """Numbers in fewer bytes: their places among few, which follow, or their differences to the least one.

    A difference that is too large for the numbers' own type wraps, and so does the sum that undoes it.
    """
    import numpy

    kind = numpy.min_scalar_type(most - least)
    if kind.itemsize > 1:
        few = numpy.unique(values[: 4 * FEW])
        if few.size <= FEW:
            places = few.searchsorted(values).astype(numpy.uint8)
            places[places == few.size] = 0
            if (few[places] == values).all():
                return places, few.tobytes()
    return (values - least).astype(kind), b""


def columns_values(columns: Iterable[KeptColumn], count: int, read: Callable[[int, int], bytes]) -> list[NDArray[Any]]:
    """The numbers of columns, `count` in each.

    Args:
        read: the bytes at a place of the file, as many as it is told.
    """
    return [_column_values(column, count, read) for column in columns]


def _column_values(column: KeptColumn, count: int, read: Callable[[int, int], bytes]) -> NDArray[Any]:
    import numpy

    if not column.kind:
        return numpy.full(count, column.least, column.dtype)
    content = column.content
    if isinstance(content, int):
        content = read(content, count * numpy.dtype(column.kind).itemsize)
    narrow = numpy.frombuffer(content, column.kind)
    if column.few:
        chosen: NDArray[Any] = numpy.frombuffer(column.few, column.dtype)[narrow]
        return chosen
    values = narrow.astype(column.dtype)
    values += column.least
    return values
