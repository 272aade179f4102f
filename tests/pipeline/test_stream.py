"""A stream has every record of the log once, as the log grows, and none that is not flushed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqtool.pipeline.stream import flushed_end
from rmqtool.store.directory import survey
from rmqtool.store.view import DirectoryView
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.pipeline.stores import dump_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def end_of(path: Path) -> int:
    return flushed_end(survey(DirectoryView(path)))


def test_a_clean_stop_flushes_all(golden: Unpacked) -> None:
    rows = dump_rows(golden("5.5.0-clean-basic"))
    assert end_of(golden("5.5.0-clean-basic")) == max(row["physical_offset"] + row["size"] for row in rows)
    assert end_of(golden("5.5.0-clean-empty")) == 0


def test_after_a_crash_the_checkpoint_tells(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-crashed")
    rows = [row for row in dump_rows(path) if row["type"] == "message"]
    half = rows[len(rows) // 2]
    raw = bytearray((path / "checkpoint").read_bytes())
    raw[:8] = half["store_timestamp_ms"].to_bytes(8, "big")
    (path / "checkpoint").write_bytes(raw)
    flushed = [row for row in rows if row["store_timestamp_ms"] <= half["store_timestamp_ms"]]
    assert end_of(path) == flushed[-1]["physical_offset"] + flushed[-1]["size"]
    (path / "checkpoint").unlink()
    files = sorted((path / "commitlog").iterdir())
    assert end_of(path) == max(int(file.name) for file in files if file.read_bytes().strip(b"\0"))


@pytest.mark.spark
def test_a_stream_goes_on_where_it_ended(spark: SparkSession, golden_copy: Unpacked, tmp_path: Path) -> None:
    path = golden_copy("5.5.0-many-files")

    def archive(**options: Any) -> list[int]:
        stream = spark.readStream.format("rocketmq-store").options(**options).load(str(path))
        query = (
            stream.select("physical_offset", "type")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "progress"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "archive"))
        )
        assert query.awaitTermination(120)
        return sorted(row["physical_offset"] for row in spark.read.parquet(str(tmp_path / "archive")).collect())

    first = archive(bytes_per_trigger=40_000)
    assert first == [row["physical_offset"] for row in dump_rows(path)]
    assert len(list((tmp_path / "progress" / "commits").glob("[0-9]*"))) > 2
    assert archive() == first
    ran = rmqtool(
        "append", path, "--topic", "Audit", "--queue-id", "0", "--body", "more", "--count", "5", "--end", "clean"
    )
    assert ran.code == 0, ran.err
    grown = [row["physical_offset"] for row in dump_rows(path)]
    assert len(grown) >= len(first) + 5
    assert archive() == grown
    shutil.rmtree(tmp_path / "archive")
