"""What a query's filters let be left out; Spark applies them again, so nothing depends on how much is understood."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import datasource

from rmqtool.scan.row_filter import RowFilter

_NUMBERS: Final = ("physical_offset", "store_timestamp_ms")
_TIME: Final = "store_time"


def pushed(filters: Iterable[Any]) -> tuple[RowFilter, ...]:
    """What each filter that is understood asks for; all of them hold."""
    row_filters = (_wanted(one) for one in filters)
    return tuple(row_filter for row_filter in row_filters if row_filter is not None)


def _wanted(asked: Any) -> RowFilter | None:
    column = ".".join(getattr(asked, "attribute", ()))
    value = getattr(asked, "value", None)
    if isinstance(asked, datasource.In):
        values = [one for one in value or () if one is not None]
    elif isinstance(asked, datasource.EqualTo):
        values = [value]
    else:
        return _range(asked, column, value)
    if column == "topic" and all(isinstance(one, str) for one in values):
        return RowFilter(topics=tuple(glob.escape(one) for one in values), strict=True)
    if column == "queue_id" and all(isinstance(one, int) for one in values):
        return RowFilter(queue_ids=frozenset(values), strict=True)
    bounds = _bounds(column, values[0]) if len(values) == 1 else None
    return None if bounds is None else _between(column, bounds[0], bounds[1] + 1)


def _range(asked: Any, column: str, value: Any) -> RowFilter | None:
    if isinstance(asked, datasource.StringStartsWith) and column == "topic":
        return RowFilter(topics=(f"{glob.escape(value)}*",), strict=True)
    bounds = _bounds(column, value)
    if bounds is None:
        return None
    low, high = bounds
    if isinstance(asked, datasource.GreaterThan):
        return _between(column, low + 1, None)
    if isinstance(asked, datasource.GreaterThanOrEqual):
        return _between(column, high, None)
    if isinstance(asked, datasource.LessThan):
        return _between(column, None, high)
    if isinstance(asked, datasource.LessThanOrEqual):
        return _between(column, None, low + 1)
    return None


def _bounds(column: str, value: Any) -> tuple[int, int] | None:
    """The whole numbers next to a value, which are it if it is one; None where the column is not told by numbers.

    A time has microseconds, a record milliseconds.
    """
    if column in _NUMBERS and isinstance(value, int):
        return value, value
    if column == _TIME and isinstance(value, datetime):
        since = value.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        millisecond = timedelta(milliseconds=1)
        return since // millisecond, -(-since // millisecond)
    return None


def _between(column: str, low: int | None, high: int | None) -> RowFilter:
    if column == "physical_offset":
        return RowFilter(from_physical_offset=low, to_physical_offset=high, strict=True)
    return RowFilter(from_ms=low, to_ms=high, strict=True)
