"""What a query's filters let be left out; Spark applies them again, so nothing depends on how much is understood."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from typing import Any

from pyspark.sql import datasource

from rmqtool.scan.row_filter import RowFilter

_RANGES = {"physical_offset": "physical_offset", "store_timestamp_ms": "ms"}


def pushed(filters: Iterable[Any]) -> tuple[RowFilter, ...]:
    """What each filter that is understood asks for; all of them hold."""
    row_filters = (_wanted(each) for each in filters)
    return tuple(each for each in row_filters if each is not None)


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
    if column in _RANGES and len(values) == 1 and isinstance(values[0], int):
        return _between(column, values[0], values[0] + 1)
    return None


def _range(asked: Any, column: str, value: Any) -> RowFilter | None:
    if column not in _RANGES or not isinstance(value, int):
        return None
    if isinstance(asked, datasource.GreaterThan):
        return _between(column, value + 1, None)
    if isinstance(asked, datasource.GreaterThanOrEqual):
        return _between(column, value, None)
    if isinstance(asked, datasource.LessThan):
        return _between(column, None, value)
    if isinstance(asked, datasource.LessThanOrEqual):
        return _between(column, None, value + 1)
    return None


def _between(column: str, low: int | None, high: int | None) -> RowFilter:
    if column == "physical_offset":
        return RowFilter(from_physical_offset=low, to_physical_offset=high, strict=True)
    return RowFilter(from_ms=low, to_ms=high, strict=True)
