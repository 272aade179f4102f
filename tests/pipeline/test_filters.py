"""What a query's filters let be left out is never more than they rule out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

datasource = pytest.importorskip("pyspark.sql.datasource", reason="pyspark is not installed")

from rmqtool.pipeline.filters import pushed  # noqa: E402 - needs pyspark
from rmqtool.scan.row_filter import RowFilter  # noqa: E402 - see above

EXACT = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
EXACT_MS = 1_767_323_045_678
BETWEEN = EXACT + timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("GreaterThan", EXACT, {"from_ms": EXACT_MS + 1}),
        ("GreaterThan", BETWEEN, {"from_ms": EXACT_MS + 1}),
        ("GreaterThanOrEqual", EXACT, {"from_ms": EXACT_MS}),
        ("GreaterThanOrEqual", BETWEEN, {"from_ms": EXACT_MS + 1}),
        ("LessThan", EXACT, {"to_ms": EXACT_MS}),
        ("LessThan", BETWEEN, {"to_ms": EXACT_MS + 1}),
        ("LessThanOrEqual", EXACT, {"to_ms": EXACT_MS + 1}),
        ("LessThanOrEqual", BETWEEN, {"to_ms": EXACT_MS + 1}),
        ("EqualTo", EXACT, {"from_ms": EXACT_MS, "to_ms": EXACT_MS + 1}),
    ],
)
def test_times_are_compared_as_milliseconds(kind: str, value: datetime, expected: dict[str, Any]) -> None:
    assert pushed([getattr(datasource, kind)(("store_time",), value)]) == (RowFilter(**expected, strict=True),)


def test_a_topic_by_its_first_letters_is_a_pattern() -> None:
    filters = [datasource.StringStartsWith(("topic",), "Order[1]")]
    assert pushed(filters) == (RowFilter(topics=("Order[[]1]*",), strict=True),)


def test_what_is_not_understood_leaves_out_nothing() -> None:
    filters = [
        datasource.IsNotNull(("topic",)),
        datasource.Not(datasource.EqualTo(("topic",), "A")),
        datasource.StringStartsWith(("tags",), "A"),
        datasource.EqualTo(("store_time",), "text"),
        datasource.GreaterThan(("size",), 3),
    ]
    assert pushed(filters) == ()
