"""Times of the tables are their milliseconds; comments and documentation name every column."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import rmqtool
from rmqtool.pipeline.tables.rows import batch_of
from rmqtool.pipeline.tables.schemas import arrow_schema, commented
from rmqtool.pipeline.tables.texts import LAST_MS, TIME_TYPE, time_array
from rmqtool.report.fields import COSTLY_COLUMNS, QUEUE_TABLE, TABLES
from tests.conftest import Unpacked
from tests.pipeline.tables.test_table import table_rows

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(timestamp_ms: int | None) -> datetime | None:
    return None if timestamp_ms is None else EPOCH + timedelta(milliseconds=timestamp_ms)


@pytest.mark.parametrize(
    ("table", "name"),
    [("messages", "5.5.0-stale-tail"), ("consumequeue", "broker-5.5.0-batchcq"), ("index", "5.5.0-clean-basic")],
)
def test_times_are_their_milliseconds(golden: Unpacked, table: str, name: str) -> None:
    rows = table_rows(golden(name), table=table)
    kinds = [kind for kind in ("store", "born") if f"{kind}_time" in rows[0]]
    for kind in kinds:
        assert [row[f"{kind}_time"] for row in rows] == [time_of(row[f"{kind}_timestamp_ms"]) for row in rows]
        assert any(row[f"{kind}_time"] for row in rows)
    assert kinds == (["store", "born"] if table == "messages" else ["store"])


def test_a_number_that_is_no_time_is_null() -> None:
    numbers = np.array([-1, 0, LAST_MS - 1, LAST_MS, -(1 << 63), (1 << 63) - 1], np.int64)
    times = time_array(numbers)
    assert times.type == TIME_TYPE
    assert times.to_pylist() == [None, EPOCH, datetime(9999, 12, 30, 23, 59, 59, 999000, UTC), None, None, None]
    columns = {field.name: None for field in QUEUE_TABLE if field.name != "type"}
    columns |= {"store": "", "file": "", "size": 1, "store_timestamp_ms": numbers}
    columns |= dict.fromkeys(("physical_offset", "record_size", "tags_code"), np.zeros(6, np.int32))
    batch = batch_of(QUEUE_TABLE, "unit", 6, columns)
    assert batch["store_time"] == times


def test_a_reader_gives_times(golden: Unpacked) -> None:
    schema = rmqtool.open(golden("5.5.0-clean-basic")).messages(["store_time", "born_time"]).schema
    assert [field.type for field in schema] == [TIME_TYPE, TIME_TYPE]


def test_each_column_of_spark_has_a_comment() -> None:
    for table, fields in TABLES.items():
        assert [field.name for field in fields if not field.comment] == []
        columns = commented(arrow_schema(fields), table).fields
        assert [(column.name, column.metadata["comment"]) for column in columns] == [
            (field.name, field.comment) for field in fields
        ]


def test_the_page_of_the_library_names_what_no_profile_has() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "api.md").read_text("utf-8")
    assert [name for name in COSTLY_COLUMNS if f"`{name}`" not in page] == []
