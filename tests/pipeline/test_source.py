"""The data source in a session: the table `messages` is the dump, however files are cut and whoever filters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rmqtool
from rmqtool.report.fields import TABLES
from tests.conftest import Unpacked
from tests.golden_stores import broker_names, names
from tests.pipeline.stores import Rows, as_dumped, dump_rows
from tests.pipeline.tables.test_table import table_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

STORES = [
    *("5.5.0-damage-flip-body-middle-file", "5.5.0-damage-zero-hole", "5.5.0-damage-size-plausible"),
    *("5.5.0-damage-log-middle-file-missing", "5.5.0-damage-torn-last-record", "5.5.0-damage-log-dir-missing"),
    *("5.5.0-stale-tail", "5.5.0-clean-empty", "5.5.0-ipv6", "5.5.0-v2", "broker-4.9.7-transaction-killed"),
]
"""Some of each kind; all of them are looked at without Spark in test_log_parts.py, and with it where there is time."""


def loaded(spark: SparkSession, stores: Sequence[Path | str], **options: Any) -> DataFrame:
    reader = spark.read.format("rocketmq-store")
    for name, value in options.items():
        reader = reader.option(name, str(value).lower() if isinstance(value, bool) else str(value))
    return reader.load([str(path) for path in stores])


def by_store(frame: DataFrame) -> dict[str, Rows]:
    """Rows of each store, in the order of the log."""
    found: dict[str, Rows] = {}
    for row in frame.orderBy("physical_offset").collect():
        found.setdefault(Path(row["store"]).name, []).append(row.asDict(recursive=True))
    return {name: as_dumped(rows) for name, rows in found.items()}


def rows_are_the_dump(spark: SparkSession, paths: Sequence[Path], splits: int) -> None:
    frame = loaded(spark, paths, profile="properties", stale=True, splits=splits, proof_bytes=4096)
    found = by_store(frame)
    for path in paths:
        expected = sorted(dump_rows(path, "--stale"), key=lambda row: row["physical_offset"])
        assert found.get(path.name, []) == expected, path.name


@pytest.mark.parametrize("splits", [2, 7])
def test_the_table_is_the_dump(spark: SparkSession, golden: Unpacked, splits: int) -> None:
    rows_are_the_dump(spark, [golden(name) for name in STORES], splits)


@pytest.mark.slow
@pytest.mark.parametrize("splits", [1, 2, 7])
def test_the_table_is_the_dump_of_every_store(spark: SparkSession, golden: Unpacked, splits: int) -> None:
    plain = [name for name in (*names(), *broker_names()) if "dledger" not in name]  # whose log the table refuses
    rows_are_the_dump(spark, [golden(name) for name in plain], splits)


def test_a_frame_has_all_rows_after_a_filter_of_it(spark: SparkSession, golden: Unpacked) -> None:
    """In other queries, in a union of two filters, in subqueries and in a view; with Spark's pushdown enabled.

    Spark keeps the reader of a data frame, and with it the filters that were handed over first.
    """
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    frame = loaded(spark, [golden("5.5.0-many-files")])
    offsets = sorted(row["physical_offset"] for row in frame.select("physical_offset").collect())
    middle = offsets[len(offsets) // 2]
    before, after = frame.filter(f"physical_offset < {middle}"), frame.filter(f"physical_offset >= {middle}")
    assert before.count() == len(offsets) // 2
    assert before.union(after).count() == frame.count() == len(offsets)
    frame.createOrReplaceTempView("messages_seen")
    counts = [
        "(select count(*) from messages_seen where physical_offset < :middle)",
        "(select count(*) from messages_seen where physical_offset >= :middle)",
        "(select count(*) from messages_seen)",
    ]
    row = spark.sql("select " + ", ".join(counts), {"middle": middle}).first()
    spark.catalog.dropTempView("messages_seen")
    assert row is not None
    assert tuple(row) == (len(offsets) // 2, len(offsets) - len(offsets) // 2, len(offsets))


def test_there_is_no_option_that_loses_rows(spark: SparkSession, golden: Unpacked) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="no option pushdown"):
        loaded(spark, [golden("5.5.0-many-files")], pushdown=True)


def test_chosen_columns_come_in_their_order(spark: SparkSession, golden: Unpacked) -> None:
    frame = loaded(spark, [golden("5.5.0-clean-basic")], columns="size,topic,tags")
    assert frame.columns == ["size", "topic", "tags"]
    assert frame.count() == len(dump_rows(golden("5.5.0-clean-basic")))


def test_the_full_profile_has_the_stored_bodies(spark: SparkSession, golden: Unpacked) -> None:
    import base64

    from tests.commands.transcripts import rmqtool

    path = golden("5.5.0-bodies")
    ran = rmqtool("dump", path, "--format", "jsonl", "--raw", "--body", "base64", "--body-limit", str(1 << 24))
    expected = {
        row["physical_offset"]: base64.b64decode(row["body"]) if row["body"] else b""
        for row in map(json.loads, ran.out.splitlines())
        if row["type"] == "message"
    }
    frame = loaded(spark, [path], profile="full").filter("type = 'message'")
    assert {row["physical_offset"]: bytes(row["body"]) for row in frame.collect()} == expected


def test_modes_keep_leave_out_or_fail(spark: SparkSession, golden: Unpacked) -> None:
    from pyspark.errors import PySparkException

    path = golden("5.5.0-damage-flip-body-middle-file")
    everything = loaded(spark, [path]).collect()
    bad = [row for row in everything if row["finding"] is not None]
    assert [row["finding"] for row in bad] == ["commitlog.body-crc-mismatch"]
    sound = loaded(spark, [path], mode="dropmalformed").collect()
    assert sorted(map(str, sound)) == sorted(str(row) for row in everything if row["finding"] is None)
    with pytest.raises(PySparkException, match="body-crc-mismatch"):
        loaded(spark, [path], mode="failfast").collect()


@pytest.mark.parametrize("table", ["consumequeue", "index", "findings"])
def test_the_other_tables_are_what_their_parts_are(spark: SparkSession, golden: Unpacked, table: str) -> None:
    """What the parts have is compared with `dump` and `verify` in test_other_tables.py."""
    names_of = ["5.5.0-damage-cq-entry-zero-first-file", "broker-5.5.0-batchcq", "5.5.0-damage-flip-body-middle-file"]
    paths = [golden(name) for name in names_of]
    found = [row.asDict(recursive=True) for row in loaded(spark, paths, table=table).collect()]
    for row in found:  # Spark's times are in the zone of this process, without saying so
        if row.get("store_time") is not None:
            row["store_time"] = row["store_time"].astimezone(UTC)
    expected = [row for path in paths for row in table_rows(path, table=table)]
    assert sorted(map(_told, found)) == sorted(map(_told, expected))
    assert len(found) > 2


def _told(row: dict[str, Any]) -> str:
    return str({**row, "store_time": str(row.get("store_time"))})


def test_a_pattern_names_several_stores_and_what_is_none(spark: SparkSession, golden: Unpacked) -> None:
    folder = golden("5.5.0-clean-basic").parent
    golden("5.5.0-clean-single")
    (folder / "5.5.0-clean-no-store").mkdir(exist_ok=True)
    found = loaded(spark, [folder / "5.5.0-clean-*"], columns="store,finding").distinct().collect()
    (folder / "5.5.0-clean-no-store").rmdir()
    found_by_name = {Path(row["store"]).name: row["finding"] for row in found}
    assert found_by_name.keys() >= {"5.5.0-clean-basic", "5.5.0-clean-single"}
    assert found_by_name["5.5.0-clean-no-store"] == "store.not-a-store"


def test_a_store_at_a_url_is_read(spark: SparkSession, golden: Unpacked) -> None:
    path = golden("5.5.0-clean-basic")
    there, here = (loaded(spark, [place], columns="topic,tags,size") for place in (f"local://{path}", path))
    assert sorted(map(str, there.collect())) == sorted(map(str, here.collect()))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "nonsense"}, "none of messages"),
        ({"profile": "nonsense"}, "there are headers"),
        ({"columns": "nonsense"}, "no column .nonsense"),
        ({"splits": "many"}, "is not a number"),
        ({"splits": "0"}, "less than 1"),
        ({"nonsense": "1"}, "no option nonsense"),
    ],
)
def test_a_wrong_option_is_told(spark: SparkSession, golden: Unpacked, options: dict[str, str], said: str) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=said):
        loaded(spark, [golden("5.5.0-clean-basic")], **options)


def test_a_schema_names_the_columns_to_read(spark: SparkSession, golden: Unpacked) -> None:
    path = golden("5.5.0-clean-basic")
    few = spark.read.format("rocketmq-store").schema("size long, topic string").load(str(path))
    assert few.columns == ["size", "topic"]
    expected = [(row["size"], row["topic"]) for row in loaded(spark, [path]).collect()]
    assert sorted(map(str, map(tuple, few.collect()))) == sorted(map(str, expected))


def test_a_schema_names_columns_of_any_profile(spark: SparkSession, golden: Unpacked) -> None:
    """And those of no profile; Spark's own SQL sees times, and comments of all columns."""
    schema = "body_decoded binary, store_time timestamp, store_timestamp_ms long, keys array<string>"
    frame = spark.read.format("rocketmq-store").schema(schema).load(str(golden("5.5.0-bodies")))
    wrong = frame.filter("unix_millis(store_time) <> store_timestamp_ms or year(store_time) <> 2026")
    assert wrong.count() == 0
    expected = rmqtool.open(golden("5.5.0-bodies")).messages(["body_decoded"]).read_all().to_pylist()
    bodies = [None if row["body_decoded"] is None else bytes(row["body_decoded"]) for row in frame.collect()]
    assert sorted(map(str, bodies)) == sorted(str(row["body_decoded"]) for row in expected)
    for table, described in TABLES.items():
        fields = loaded(spark, [golden("5.5.0-bodies")], table=table).schema.fields
        assert {field.name: field.metadata["comment"] for field in fields}.items() <= {
            (field.name, field.comment) for field in described
        }


def test_a_schema_with_another_type_is_told(spark: SparkSession, golden: Unpacked) -> None:
    from pyspark.errors import PySparkException

    frame = spark.read.format("rocketmq-store").schema("store_time long").load(str(golden("5.5.0-clean-basic")))
    with pytest.raises(PySparkException, match="the column store_time is timestamp in the table, not bigint"):
        frame.collect()


def test_a_table_of_the_catalog_has_the_options_of_its_definition(spark: SparkSession, golden: Unpacked) -> None:
    path = golden("5.5.0-clean-basic")
    options = f"OPTIONS (path '{path}', table 'index') TBLPROPERTIES ('owner.team' = 'orders', 'topics' = 'None')"
    spark.sql(f"CREATE TABLE entries USING `rocketmq-store` {options} COMMENT 'index'")
    try:
        found = spark.sql("SELECT count(*) AS c FROM entries").collect()[0]["c"]
        assert found == len(table_rows(path, table="index")) > 0
        spark.sql("ALTER TABLE entries SET TBLPROPERTIES ('owner.team' = 'audit')")
        assert spark.table("entries").count() == found
    finally:
        spark.sql("DROP TABLE entries")


def test_a_query_of_a_table_of_the_catalog_can_have_more_options(spark: SparkSession, golden: Unpacked) -> None:
    path = golden("5.5.0-clean-basic")
    spark.sql(f"CREATE TABLE kept USING `rocketmq-store` OPTIONS (path '{path}', profile 'properties')")
    try:
        rows = spark.read.option("topics", "Audit").table("kept").select("topic", "properties").collect()
        assert len(rows) == len(table_rows(path, topics="Audit")) > 0
        assert {row["topic"] for row in rows} == {"Audit"}
        assert spark.table("kept").count() == len(table_rows(path)) > len(rows)
    finally:
        spark.sql("DROP TABLE kept")


def test_a_table_of_the_catalog_with_columns_says_how_it_gets_a_path(spark: SparkSession, golden: Unpacked) -> None:
    spark.sql(f"CREATE TABLE bare (topic STRING) USING `rocketmq-store` OPTIONS (path '{golden('5.5.0-clean-basic')}')")
    try:
        with pytest.raises(Exception, match="is created without columns"):
            spark.sql("SELECT * FROM bare").collect()
    finally:
        spark.sql("DROP TABLE bare")
