"""A stream has every record of the log once, as the log grows, and none that is not flushed."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from benchmarks import stores
from benchmarks.logs import record
from pyspark_rocketmq import lag
from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.rules.versions import rules_for
from rmqtool.engine.segments.log_position import END_BLOCK_SIZE, Position, flushed_end, readable_end
from rmqtool.errors import DataLossError
from rmqtool.pipeline.stream import LogStream
from rmqtool.pipeline.stream import lag as stream_lag
from rmqtool.pipeline.tables.options import SourceOptions
from rmqtool.pipeline.tables.schemas import message_schema
from rmqtool.store.directory import survey
from rmqtool.store.source import READS
from rmqtool.store.view import DirectoryView
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.pipeline.stores import dump_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def end_of(path: Path) -> int:
    return flushed_end(survey(DirectoryView(path))).physical_offset


def test_all_of_a_log_that_no_broker_uses_is_read(golden: Unpacked) -> None:
    for name in ("5.5.0-clean-basic", "5.5.0-crashed"):
        rows = dump_rows(golden(name))
        end, unflushed_bytes = readable_end(survey(DirectoryView(golden(name))))
        assert (end.physical_offset, unflushed_bytes) == (max(row["physical_offset"] + row["size"] for row in rows), 0)
    assert readable_end(survey(DirectoryView(golden("5.5.0-clean-empty")))) == (Position(0), 0)


def test_while_a_broker_runs_the_checkpoint_tells(golden_copy: Unpacked) -> None:
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


Rows = list[dict[str, Any]]
STARTS_MAX = 20
PARTITION_BYTES_MAX = 1200


class Reading:
    """A stream as Spark runs it, in this process: a checkpoint in JSON, and a batch at a time."""

    def __init__(self, path: Path, **options: str) -> None:
        self.options = SourceOptions.parse({"path": str(path), **options})
        self.restart()
        self.checkpoint = json.dumps(self.stream.initialOffset())

    def restart(self) -> None:
        self.stream = LogStream(self.options, message_schema("headers"))

    def batch(self, most: int | None = None) -> Rows:
        start = json.loads(self.checkpoint)
        end = self.stream.latestOffset(start, ReadAllAvailable() if most is None else ReadMaxBytes(most))
        parts = self.stream.partitions(start, end) if end != start else []
        found = [row for part in parts for batch in self.stream.read(part) for row in batch.to_pylist()]
        self.checkpoint = json.dumps(end)
        return found


def places(rows: Rows) -> list[int]:
    return [row["physical_offset"] for row in rows]


def test_every_row_comes_once_also_after_restarts(golden: Unpacked) -> None:
    reading = Reading(golden("5.5.0-many-files"))
    found: list[int] = []
    while rows := reading.batch(40_000):
        found += places(rows)
        reading.restart()
    assert found == places(dump_rows(golden("5.5.0-many-files")))


def files_before(path: Path, physical_offset: int) -> list[Path]:
    return [file for file in sorted((path / "commitlog").iterdir()) if int(file.name) < physical_offset]


def test_a_stream_that_retention_overtakes_ends(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-many-files")
    strict, lenient = Reading(path), Reading(path, failOnDataLoss="false")
    expected = dump_rows(path)
    read = [places(reading.batch(20_000)) for reading in (strict, lenient)]
    assert read[0] == read[1]
    at = json.loads(strict.checkpoint)[str(path)]["physical_offset"]
    planned = strict.stream.latestOffset(json.loads(strict.checkpoint), ReadAllAvailable())
    begin = 5 * 16_384
    for file in files_before(path, begin):
        file.unlink()
    with pytest.raises(DataLossError, match=f"begins at {begin}, but was read up to {at} only: {begin - at} bytes"):
        strict.batch()
    with pytest.raises(DataLossError, match="were removed"):
        strict.stream.partitions(json.loads(strict.checkpoint), planned)
    rows = lenient.batch()
    assert (rows[0]["finding"], rows[0]["physical_offset"], rows[0]["size"]) == (
        "commitlog.missing-file", at, begin - at
    )  # fmt: skip
    assert places(rows[1:]) == [place for place in places(expected) if place >= begin]
    assert lenient.batch() == []


def test_a_file_that_is_removed_after_the_plan_ends_a_batch(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-many-files")
    for reading, fails in (
        (Reading(path, splits="1"), True),
        (Reading(path, splits="1", failOnDataLoss="false"), False),
    ):
        start = json.loads(reading.checkpoint)
        parts = reading.stream.partitions(start, reading.stream.latestOffset(start, ReadAllAvailable()))
        first = path / "commitlog" / f"{0:020d}"
        kept = first.read_bytes()
        first.unlink()
        if fails:
            with pytest.raises(DataLossError, match="was removed before it was read"):
                list(reading.stream.read(parts[0]))
        else:
            assert [batch["finding"][0].as_py() for batch in reading.stream.read(parts[0])] == [
                "commitlog.unreadable-range"
            ]
        first.write_bytes(kept)


def replace_by(path: Path, other: Path) -> None:
    shutil.rmtree(path)
    shutil.copytree(other, path)


@pytest.mark.parametrize("other", ["5.5.0-clean-single", "5.5.0-damage-base"])
def test_a_log_that_was_replaced_ends_a_stream(golden_copy: Unpacked, golden: Unpacked, other: str) -> None:
    path = golden_copy("5.5.0-clean-basic")
    strict, lenient = Reading(path), Reading(path, failOnDataLoss="false")
    assert places(strict.batch()) == places(lenient.batch()) == places(dump_rows(path))
    assert strict.batch() == []
    replace_by(path, golden(other))
    strict.restart()
    with pytest.raises(DataLossError, match="replaced or cut"):
        strict.batch()
    rows = lenient.batch()
    assert rows[0]["finding"] == "commitlog.replaced"
    assert places(rows[1:]) == places(dump_rows(path))
    assert lenient.batch() == []


def appended(path: Path, body: str) -> None:
    ran = rmqtool(
        "append", path, "--topic", "Audit", "--queue-id", "0", "--body", body, "--count", "5", "--end", "clean"
    )
    assert ran.code == 0, ran.err


def test_a_log_that_was_put_back_and_grew_again_is_another(golden_copy: Unpacked, tmp_path: Path) -> None:
    path = golden_copy("5.5.0-clean-basic")
    shutil.copytree(path, tmp_path / "copy")
    appended(path, "lost")
    reading = Reading(path)
    assert places(reading.batch()) == places(dump_rows(path))
    replace_by(path, tmp_path / "copy")
    appended(path, "kept, and longer than the other")
    with pytest.raises(DataLossError, match="replaced or cut"):
        reading.batch()


def test_a_log_that_was_cut_is_read_again_near_the_cut(golden_copy: Unpacked, tmp_path: Path) -> None:
    path = golden_copy("5.5.0-many-files")
    reading = Reading(path, failOnDataLoss="false")
    while places(reading.batch(20_000)):
        reading.restart()
    shutil.copytree(path, tmp_path / "copy")
    for number in range(20):
        appended(path, f"lost {number}")
        reading.batch()
    replace_by(path, tmp_path / "copy")
    kept = places(dump_rows(path))
    for _ in range(25):
        appended(path, "and these are longer than all that was lost, for they have a body of many more bytes")
    rows = reading.batch()
    assert rows[0]["finding"] == "commitlog.replaced"
    again = places(rows[1:])
    assert again == [place for place in places(dump_rows(path)) if place >= rows[0]["physical_offset"]]
    assert kept[-1] - again[0] < 16_384, "no more than a file is read twice"
    assert reading.batch() == []


def written(path: Path, *counts: tuple[int, int]) -> Path:
    """A store of small files with ranges of numbered messages: first number, and how many."""
    shutil.rmtree(path, ignore_errors=True)
    config = WriterConfig(commitlog_file_size=32 << 10)
    with new_store(path, rules_for(stores.VERSION), config, lambda: stores.FIRST_STORE_TIMESTAMP_MS) as writer:
        for first, count in counts:
            writer.put_columns(stores.columns(first, count, 350, 2))
        writer.close(crash=True)
    (path / "checkpoint").unlink()
    (path / "abort").unlink(missing_ok=True)
    return path


@pytest.mark.parametrize("most", [None, 1])
def test_a_log_that_was_put_back_and_grew_past_a_file_is_read_again(tmp_path: Path, most: int | None) -> None:
    """At the end of a file are zeros in either log."""
    path = written(tmp_path / "store", (0, 200))
    reading = Reading(path, failOnDataLoss="false")
    if most is None:
        reading.batch()
    else:  # so that the stream stops where a file ends
        while reading.batch(most) and reading_offset(reading, path) < 32 << 10:
            pass
    written(path, (0, 50), (1000, 300))
    reading.restart()
    rows = reading.batch()
    assert rows[0]["finding"] == "commitlog.replaced"
    assert places(rows[1:])[-1] == places(dump_rows(path))[-1]
    assert rows[0]["physical_offset"] <= places(dump_rows(path))[50]


def reading_offset(reading: Reading, path: Path) -> int:
    return int(json.loads(reading.checkpoint)[str(path)]["physical_offset"])


def test_a_log_whose_disk_is_away_is_waited_for(golden_copy: Unpacked, tmp_path: Path) -> None:
    path = golden_copy("5.5.0-clean-basic")
    for loss in ("true", "false"):
        reading = Reading(path, failOnDataLoss=loss)
        assert reading.batch()
        (path / "commitlog").rename(tmp_path / "away")
        assert [row["finding"] for row in reading.batch()] == ["store.unreadable"]
        (tmp_path / "away").rename(path / "commitlog")
        assert reading.batch() == []


def both(golden_copy: Unpacked, **options: str) -> tuple[Path, Path, Reading]:
    path, other = golden_copy("5.5.0-clean-basic"), golden_copy("5.5.0-clean-single")
    return path, other, Reading(path, paths=json.dumps([str(other)]), **options)


def test_a_store_that_is_gone_is_waited_for_while_others_go_on(golden_copy: Unpacked, tmp_path: Path) -> None:
    path, other, reading = both(golden_copy)
    assert len(reading.batch()) == len(dump_rows(path)) + len(dump_rows(other))
    other.rename(tmp_path / "away")
    appended(path, "more")
    rows = reading.batch()
    assert [row["store"] for row in rows if row["finding"] == "store.unreadable"] == [str(other)]
    assert len(rows) == 6
    appended(path, "and more")
    assert len(reading.batch()) == 5  # it is told once
    (tmp_path / "away").rename(other)
    appended(other, "late")
    assert len(reading.batch()) == 5
    shutil.rmtree(path)
    shutil.rmtree(other)
    assert [row["finding"] for row in reading.batch()] == ["store.unreadable", "store.unreadable"]
    assert reading.batch() == []


def test_a_store_that_is_gone_in_the_middle_of_a_batch_ends_a_stream(golden_copy: Unpacked) -> None:
    for policy in ("wait", "skip"):
        path, other, reading = both(golden_copy, onStoreMissing=policy)
        end = reading.stream.latestOffset({}, ReadAllAvailable())
        shutil.rmtree(other)
        if policy == "wait":
            with pytest.raises(DataLossError, match="a batch of it was begun"):
                reading.stream.partitions({}, end)
        else:
            parts = reading.stream.partitions({}, end)
            rows = [row for part in parts for batch in reading.stream.read(part) for row in batch.to_pylist()]
            assert len(rows) == 1 + len(dump_rows(path))
        shutil.rmtree(path)


def test_a_stream_may_end_where_a_store_is_gone(golden_copy: Unpacked) -> None:
    _, other, reading = both(golden_copy, onStoreMissing="fail")
    assert reading.batch()
    shutil.rmtree(other)
    with pytest.raises(DataLossError, match="no store any more"):
        reading.batch()


def test_a_batch_has_no_more_bytes_of_all_stores_than_are_allowed(golden_copy: Unpacked) -> None:
    path, other, reading = both(golden_copy, maxBytesPerTrigger="4k")
    most = reading.stream.getDefaultReadLimit()
    assert most == ReadMaxBytes(4096)
    expected = {str(store): places(dump_rows(store)) for store in (path, other)}
    found: dict[str, list[int]] = {store: [] for store in expected}
    longest = max(row["size"] for store in (path, other) for row in dump_rows(store) if row["type"] == "message")
    while rows := reading.batch(4096):
        messages = [row["size"] for row in rows if row["type"] == "message"]
        assert sum(messages) <= 4096 + 2 * longest
        for row in rows:
            found[row["store"]].append(row["physical_offset"])
        reading.restart()
    assert found == expected


@pytest.mark.parametrize("given", ["latest", "json", "earliest"])
def test_where_a_new_stream_begins(golden_copy: Unpacked, given: str) -> None:
    path = golden_copy("5.5.0-clean-basic")
    rows = places(dump_rows(path))
    starting = json.dumps({str(path): rows[7]}) if given == "json" else given
    reading = Reading(path, startingOffsets=starting)
    appended(path, "more")
    after = places(dump_rows(path))
    begin = {"latest": len(rows), "json": 7, "earliest": 0}[given]
    assert places(reading.batch()) == after[begin:]


def test_a_bounded_stream_reads_what_is_there_when_it_begins(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-clean-basic")
    rows = len(dump_rows(path))
    reading = Reading(path)
    reading.stream.prepareForTriggerAvailableNow()
    assert len(reading.batch(10_000)) < rows
    appended(path, "later")
    while reading.batch(10_000):
        pass
    reading.restart()
    assert len(reading.batch()) == 5


def test_a_checkpoint_of_plain_offsets_goes_on(golden: Unpacked) -> None:
    path = golden("5.5.0-many-files")
    reading = Reading(path)
    rows = places(dump_rows(path))
    reading.checkpoint = json.dumps({str(path): rows[100]})
    assert places(reading.batch()) == rows[100:]
    assert reading.batch() == []


def test_what_was_read_is_not_read_again_to_find_the_end(tmp_path: Path) -> None:
    """The broker runs, and has filled the rest of its file with zeros in advance."""
    data = bytearray()
    for number in range(2_000):
        data += record(number, 1 << 10, len(data))
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(data.ljust(16 << 20, b"\0"))
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").write_bytes((1 << 50).to_bytes(8, "big").ljust(4096, b"\0"))
    store = survey(DirectoryView(tmp_path))
    read = READS.byte_count
    end = flushed_end(store)
    assert end.physical_offset == len(data)
    assert READS.byte_count - read < len(data) + 2 * END_BLOCK_SIZE
    read = READS.byte_count
    assert flushed_end(store, end) == end
    assert READS.byte_count - read < 2 * END_BLOCK_SIZE


def test_a_batch_reads_what_is_new(tmp_path: Path) -> None:
    """From a file of a gigabyte that is nearly full, with a broker that runs and one that does not."""
    data = bytearray()
    for number in range(5_000):
        data += record(number, 6_000, len(data))
    (tmp_path / "commitlog").mkdir()
    log = tmp_path / "commitlog" / f"{0:020d}"
    log.write_bytes(data)
    os.truncate(log, 1 << 30)
    (tmp_path / "checkpoint").write_bytes((1 << 50).to_bytes(8, "big").ljust(4096, b"\0"))
    reading = Reading(tmp_path)
    assert len(reading.batch()) == 5_000
    for is_used in (False, True):
        if is_used:
            (tmp_path / "abort").touch()
        new = bytearray()
        for number in range(5_000, 5_006):
            new += record(number, 1 << 10, len(data) + len(new))
        with log.open("r+b") as file:
            file.seek(len(data))
            file.write(new)
        data += new
        read = READS.byte_count
        assert len(reading.batch()) == 6
        assert READS.byte_count - read <= 2 * len(new) + (1 << 20)


def test_what_lies_behind_the_end_stays_behind_it(golden: Unpacked) -> None:
    store = survey(DirectoryView(golden("5.5.0-stale-tail")))
    end, _ = readable_end(store)
    assert readable_end(store, end) == (end, 0)
    assert readable_end(store, Position(end.physical_offset, end.physical_offset - 7)) == (end, 0)


def test_a_partition_of_a_batch_has_its_own_range_only(golden: Unpacked, tmp_path: Path) -> None:
    """However many stores the stream follows; the offsets of all are in Spark's checkpoint."""
    sizes = []
    for count in (2, 40):
        folder = tmp_path / str(count)
        folder.mkdir()
        for number in range(count):
            (folder / f"broker-{number:03}").symlink_to(golden("5.5.0-clean-single"))
        stream = LogStream(SourceOptions.parse({"path": f"{folder}/*", "splits": "1"}), message_schema("headers"))
        partitions = stream.partitions({}, stream.latestOffset({}, ReadAllAvailable()))
        assert len(partitions) == count
        sizes.append(max(len(pickle.dumps(partition)) for partition in partitions))
    assert sizes[1] <= sizes[0] + 8
    assert sizes[1] <= PARTITION_BYTES_MAX


def until_connected(start: Callable[[], Any]) -> None:
    """Run a query to its end; again, where this machine is too busy for the 10 s that Spark lets a Python start."""
    for _ in range(STARTS_MAX):
        with suppress_late_python():
            assert start().awaitTermination(300)
            return
    pytest.fail("no Python process started within 10 s")


@contextmanager
def suppress_late_python() -> Iterator[None]:
    try:
        yield
    except StreamingQueryException as error:
        if "failed to connect back" not in str(error):
            raise


def test_only_stores_are_behind() -> None:
    """A query may have sources of other kinds, and a store that was gone when the ends were looked for."""
    read, ends = Position(10).as_json(), Position(30).as_json()
    assert stream_lag(json.dumps({"/a": read, "/gone": read}), json.dumps({"/a": ends, "/new": ends})) == {"/a": 20}
    kafka = json.dumps({"orders": {"0": 23}})
    assert stream_lag(kafka, kafka) == stream_lag(None, json.dumps({"/a": ends})) == stream_lag("7", "[9]") == {}


@pytest.mark.spark
def test_a_stream_goes_on_where_it_ended(
    spark: SparkSession, golden: Unpacked, golden_copy: Unpacked, tmp_path: Path
) -> None:
    path, queries = golden_copy("5.5.0-many-files"), list[Any]()

    def archive(**options: Any) -> list[int]:
        stream = spark.readStream.format("rocketmq-store").options(**options).load(str(path))
        writer = (
            stream.select("physical_offset", "type")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "progress"))
            .trigger(availableNow=True)
        )
        until_connected(lambda: queries.append(writer.start(str(tmp_path / "archive"))) or queries[-1])
        return sorted(row["physical_offset"] for row in spark.read.parquet(str(tmp_path / "archive")).collect())

    first = archive(maxBytesPerTrigger="40k")
    assert first == [row["physical_offset"] for row in dump_rows(path)]
    assert len(list((tmp_path / "progress" / "commits").glob("[0-9]*"))) > 2
    lags = [lag(progress)[str(path)] for progress in queries[-1].recentProgress]
    assert lags == sorted({*lags}, reverse=True)
    assert (lags[0] > 40_000, lags[-1]) == (True, 0)
    assert archive() == first
    appended(path, "more")
    grown = [row["physical_offset"] for row in dump_rows(path)]
    assert len(grown) >= len(first) + 5
    assert archive() == grown
    replace_by(path, golden("5.5.0-clean-single"))
    with pytest.raises(StreamingQueryException, match="replaced or cut"):
        archive()
