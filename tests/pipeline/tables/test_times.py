"""Times of the tables are their milliseconds; comments and documentation name every column."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import rmqtool
from rmqtool.pipeline.tables import findings_table, index_table, queue_table
from rmqtool.pipeline.tables.column_comments import COMMENTS, commented
from rmqtool.pipeline.tables.message_schema import BY_NAME, PROFILES
from rmqtool.pipeline.tables.rows import batch_of
from rmqtool.pipeline.tables.times import LAST_MS, TIME_TYPE, time_array
from tests.conftest import Unpacked
from tests.pipeline.tables.test_table import table_rows

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = {
    "messages": [field.name for field in (*PROFILES["full"], *BY_NAME)],
    "consumequeue": queue_table.SCHEMA.names,
    "index": index_table.SCHEMA.names,
    "findings": findings_table.SCHEMA.names,
}


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
    batch = batch_of(
        queue_table.SCHEMA, 6, {"store_timestamp_ms": numbers, "store": "", "file": "", "type": "", "size": 1}
    )
    assert batch["store_time"] == times


def test_a_reader_gives_times(golden: Unpacked) -> None:
    schema = rmqtool.open(golden("5.5.0-clean-basic")).messages(["store_time", "born_time"]).schema
    assert [field.type for field in schema] == [TIME_TYPE, TIME_TYPE]


def test_each_column_of_spark_has_a_comment() -> None:
    schemas = {"consumequeue": queue_table.SCHEMA, "index": index_table.SCHEMA, "findings": findings_table.SCHEMA}
    for table, names in COLUMNS.items():
        assert [name for name in names if not COMMENTS[table].get(name)] == []
        if table in schemas:
            fields = commented(schemas[table], table).fields
            assert [field.metadata["comment"] for field in fields] == [COMMENTS[table][name] for name in names]


def test_the_page_of_the_library_names_what_no_profile_has() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "api.md").read_text("utf-8")
    assert [field.name for field in BY_NAME if f"`{field.name}`" not in page] == []
