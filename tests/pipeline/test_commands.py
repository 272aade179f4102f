"""`export`, `stats`, `search` and `verify --master` as a person runs them, compared with `dump` and the local runs."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest

from benchmarks.logs import write_log
from rmqtool.pipeline import frames
from rmqtool.pipeline.session import SparkError, errors_told
from rmqtool.report.json_schemas import schema_text
from tests.commands.schema_check import schema_errors
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.golden_stores import settings
from tests.pipeline.stores import contents, dump_rows
from tests.store_state import assert_store_unchanged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STORE = "5.5.0-damage-flip-body-middle-file"


def schema(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(schema_text(name) or "")
    return document


def messages_of(store: Path) -> list[dict[str, Any]]:
    return [row for row in dump_rows(store) if row["type"] == "message"]


@pytest.mark.parametrize("by", ["store", "topic", "queue", "tag", "hour", "producer", "size"])
def test_figures_are_those_of_the_dump(run: Any, golden: Unpacked, by: str) -> None:
    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return {
            "store": (str(path),),
            "topic": (row["topic"],),
            "queue": (str(path), row["topic"], row["queue_id"]),
            "tag": (row["topic"], row["tags"]),
            "hour": (row["store_timestamp_ms"] // 3_600_000 * 3_600_000,),
            "producer": ((row["born_host"] or "").rpartition(":")[0],),
            "size": (1 << row["size"].bit_length() - 1,),
        }[by]

    path = golden(STORE)
    counts, sizes = Counter[tuple[Any, ...]](), Counter[tuple[Any, ...]]()
    for row in messages_of(path):
        counts[key(row)] += 1
        sizes[key(row)] += row["size"]
    with assert_store_unchanged(path):
        ran = run("stats", path, "--by", by, "--format", "jsonl")
        assert rmqtool("stats", path, "--by", by, "--format", "jsonl") == ran  # without Spark
    assert ran.code == 3
    assert "bad ranges, not counted: 1" in ran.err
    found = [json.loads(line) for line in ran.out.splitlines()]
    assert [error for row in found for error in schema_errors(row, schema("stats"))] == []
    width = len(next(iter(counts)))
    assert {tuple(row.values())[1 : 1 + width]: row["messages"] for row in found} == counts
    assert {tuple(row.values())[1 : 1 + width]: row["bytes"] for row in found} == sizes


@pytest.mark.parametrize(
    ("zone", "offset_ms"), [("--utc", 0), ("--timezone=Asia/Kolkata", 19_800_000), ("--timezone=-09:30", -34_200_000)]
)
def test_hours_are_those_of_the_zone_that_is_shown(run: Any, golden: Unpacked, zone: str, offset_ms: int) -> None:
    path = golden(STORE)
    hour_ms = 3_600_000
    counts = Counter(
        (row["store_timestamp_ms"] + offset_ms) // hour_ms * hour_ms - offset_ms for row in messages_of(path)
    )
    ran = run("stats", path, "--by", "hour", "--format", "jsonl", zone)
    assert rmqtool("stats", path, "--by", "hour", "--format", "jsonl", zone) == ran  # without Spark
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert {row["hour_timestamp_ms"]: row["messages"] for row in rows} == counts
    screen = rmqtool("stats", path, "--by", "hour", zone).out.splitlines()[1:]
    assert all(":00:00.000" in line for line in screen)


def test_queues_of_different_stores_are_counted_apart(run: Any, golden: Unpacked) -> None:
    paths = [golden("5.5.0-clean-basic"), golden("5.5.0-clean-single")]
    together = run("stats", *paths, "--by", "queue", "--format", "jsonl").out.splitlines()
    apart = [
        line for path in paths for line in run("stats", path, "--by", "queue", "--format", "jsonl").out.splitlines()
    ]
    assert sorted(together) == sorted(apart)
    assert {json.loads(line)["store"] for line in together} == set(map(str, paths))


def test_figures_as_a_table(run: Any, golden: Unpacked) -> None:
    ran = run("stats", golden("5.5.0-clean-basic"), golden("5.5.0-clean-single"))
    assert ran.code == 0
    assert ran.out.splitlines()[0].split()[:3] == ["topic", "messages", "bytes"]


def test_a_body_is_found_compressed_or_not(run: Any, golden: Unpacked) -> None:
    path = golden("5.5.0-bodies")
    shown = rmqtool("dump", path, "--format", "jsonl", "--body", "text", "--body-limit", str(1 << 24))
    rows = [row for row in map(json.loads, shown.out.splitlines()) if row["type"] == "message"]
    compressed = next(row for row in rows if row["compression"] is not None and row["body"])
    word = "".join(character for character in compressed["body"][:12] if character.isalnum())
    expected = [row["physical_offset"] for row in rows if row["body"] and word in row["body"]]
    ran = run("search", path, word, "--format", "jsonl")
    assert ran.code == 0
    assert rmqtool("search", path, word, "--format", "jsonl") == ran  # without Spark
    assert compressed["physical_offset"] in expected
    assert sorted(json.loads(line)["physical_offset"] for line in ran.out.splitlines()) == expected


@pytest.mark.parametrize("where", ["keys", "properties"])
def test_a_key_is_found(run: Any, golden: Unpacked, where: str) -> None:
    path = golden(STORE)
    key = next(row["keys"][0] for row in messages_of(path) if row["keys"])
    pattern = f"^{key}$" if where == "keys" else f"^KEYS=(.* )?{key}( .*)?$"
    ran = run("search", path, pattern, "--in", where, "--format", "jsonl")
    assert rmqtool("search", path, pattern, "--in", where, "--format", "jsonl") == ran  # without Spark
    assert ran.code == 3  # the damaged record may have it too
    assert "bad ranges, not searched: 1" in ran.err
    expected = [row["physical_offset"] for row in messages_of(path) if key in row["keys"]]
    assert sorted(json.loads(line)["physical_offset"] for line in ran.out.splitlines()) == expected


def test_a_limit_ends_a_search(run: Any, golden: Unpacked) -> None:
    ran = run("search", golden("5.5.0-clean-basic"), ".", "--limit", "3", "--format", "jsonl")
    assert (ran.code, len(ran.out.splitlines())) == (0, 3)
    assert [error for line in ran.out.splitlines() for error in schema_errors(json.loads(line), schema("search"))] == []


@pytest.mark.parametrize(("command", "code"), [("search", 6), ("stats", 0)])
def test_a_topic_that_does_not_exist_gets_the_nearest(run: Any, golden: Unpacked, command: str, code: int) -> None:
    pattern = (".",) if command == "search" else ()
    ran = run(command, golden("5.5.0-clean-basic"), *pattern, "--topic", "OrderEvent")
    assert ran.code == code
    assert "there is no topic OrderEvent in the store; did you mean OrderEvents?" in ran.err


def test_a_pattern_that_is_none_is_told(run: Any, golden: Unpacked) -> None:
    ran = run("search", golden("5.5.0-clean-basic"), "(")
    assert ran.code == 2
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
def test_an_export_has_every_row_and_a_manifest(run: Any, golden: Unpacked, tmp_path: Path, form: str) -> None:
    path, target = golden(STORE), tmp_path / "out"
    command = ("export", path, "--to", target, "--format", form, "--profile", "full", "--partition-by", "topic,day")
    with assert_store_unchanged(path):
        ran = run(*command)
    assert ran.code == 0, ran.err
    assert schema_errors(json.loads(ran.out), schema("export")) == []
    manifest = json.loads((target / "_rmqtool-export.json").read_text())
    files = {str(file.relative_to(target)) for file in target.rglob("part-*")}
    assert {file["path"] for file in manifest["files"]} == files
    assert all(
        hashlib.sha256((target / file["path"]).read_bytes()).hexdigest() == file["sha256"] for file in manifest["files"]
    )
    expected = sorted(row["physical_offset"] for row in dump_rows(path))
    assert manifest["rows"] == len(expected)
    assert sorted(offsets_in(target, form)) == expected
    assert any(name.startswith("topic_folder=Audit/day=2026-11-21/") for name in files)
    assert len({name.rpartition("/")[0] for name in files}) == len(files)  # one file for each partition
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def offsets_in(folder: Path, form: str) -> Iterator[int]:
    """The physical offsets of all rows that an export wrote."""
    for path in folder.rglob("part-*"):
        if form == "parquet":
            yield from pyarrow.parquet.ParquetFile(path).read(["physical_offset"])["physical_offset"].to_pylist()
        elif form == "json":
            yield from (json.loads(line)["physical_offset"] for line in path.read_text().splitlines())
        else:
            with path.open(newline="") as file:
                yield from (int(row["physical_offset"]) for row in csv.DictReader(file))


def test_an_export_is_not_done_twice_and_done_anew_where_something_changed(
    run: Any, golden_copy: Unpacked, tmp_path: Path
) -> None:
    path, target = golden_copy("5.5.0-clean-basic"), tmp_path / "out"
    command = ("export", path, "--to", target, "--table", "consumequeue")
    first = run(*command)
    names = sorted(file.name for file in target.rglob("*"))
    assert run(*command).out == first.out
    assert sorted(file.name for file in target.rglob("*")) == names
    next(target.rglob("part-*")).unlink()
    assert run(*command).out == first.out
    again = sorted(file.name for file in target.rglob("*"))
    assert len(again) == len(names)
    assert again != names
    (path / "consumequeue").rename(tmp_path / "gone")
    assert json.loads(run(*command).out)["rows"] == 0


def test_an_export_replaces_nothing_that_it_did_not_write(run: Any, golden: Unpacked, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    ran = run("export", golden("5.5.0-clean-basic"), "--to", tmp_path / "out")
    assert (ran.code, ran.err.count("\n")) == (5, 1)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]
    inside = golden("5.5.0-clean-basic") / "export"
    assert run("export", golden("5.5.0-clean-basic"), "--to", inside).code == 5
    assert not inside.exists()


@pytest.mark.parametrize("url", ["nosuch://place/out", "http://127.0.0.1/out", "s3://bucket/out"])
def test_a_url_that_spark_cannot_write_is_told(run: Any, golden: Unpacked, url: str) -> None:
    """Once this was a directory of that name in the working directory."""
    ran = run("export", golden("5.5.0-clean-single"), "--to", url)
    assert (ran.code, f"--to {url}: Spark cannot write there" in ran.err, ran.err.count("\n")) == (2, True, 1)
    assert ("hadoop-aws" in ran.err) == url.startswith("s3")
    assert not Path(url.partition("://")[0] + ":").exists()


def test_a_url_with_options_is_told(golden: Unpacked) -> None:
    ran = rmqtool("export", golden("5.5.0-clean-single"), "--to", "s3://bucket/a?region=b")
    assert (ran.code, "spark.hadoop" in ran.err, ran.err.count("\n")) == (2, True, 1)


def test_a_form_that_spark_lacks_is_told(run: Any, golden: Unpacked, tmp_path: Path) -> None:
    ran = run("export", golden("5.5.0-clean-basic"), "--to", tmp_path / "out", "--format", "avro")
    assert ran.code == 4
    assert "spark-avro" in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [STORE, "5.5.0-many-files", "5.5.0-stale-tail", "5.5.0-damage-cq-ahead", "5.5.0-lmq"])
@pytest.mark.parametrize("form", ["jsonl", "table"])
def test_verify_on_spark_is_verify(run: Any, golden: Unpacked, name: str, form: str) -> None:
    path = golden(name)
    with assert_store_unchanged(path):
        assert run("verify", path, "--format", form)[:2] == rmqtool("verify", path, "--format", form)[:2]


@pytest.mark.parametrize("form", ["json", "jsonl", "table", "csv"])
def test_verify_of_several_stores_on_spark_is_that_of_verify(
    run: Any, golden: Unpacked, tmp_path: Path, form: str
) -> None:
    write_log(tmp_path / "large" / "commitlog", 4, 1 << 20, 1000)  # in slices
    for name in (STORE, "5.5.0-many-files", "5.5.0-damage-cq-ahead"):
        (tmp_path / name).symlink_to(golden(name))
    (tmp_path / "empty").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "split_bytes", lambda *_: 1 << 20)
        there = run("verify", f"{tmp_path}/*", "--format", form)
    here = rmqtool("verify", f"{tmp_path}/*", "--format", form)
    assert there == here
    assert (there.code, there.out.count(str(tmp_path)) > 1) == (4, True)


def test_settings_without_spark_are_told(golden: Unpacked) -> None:
    ran = rmqtool("verify", golden("5.5.0-clean-basic"), "--conf", "a=b")
    assert (ran.code, "--master" in ran.err) == (2, True)


def test_a_setting_that_is_none_is_told(golden: Unpacked) -> None:
    ran = rmqtool("stats", golden("5.5.0-clean-basic"), "--conf", "nonsense")
    assert (ran.code, "not K=V" in ran.err) == (2, True)


REBUILT = ["5.5.0-many-no-queues", "5.5.0-lmq", "4.9.7-keys-index", "5.5.0-expired-head", "5.5.0-inner-batch"]


@pytest.mark.parametrize("name", REBUILT)
def test_rebuild_on_spark_is_rebuild(run: Any, golden_copy: Unpacked, tmp_path: Path, name: str) -> None:
    store = golden_copy(name)
    shutil.rmtree(store / "index", ignore_errors=True)
    sizes = settings(name)  # the index is gone, and with it what shows its shape
    shape = ("--index-slots", str(sizes.index_slot_count), "--index-entries", str(sizes.index_entry_count))
    shape += ("--queue-file-size", str(sizes.consumequeue_file_size))
    command = ("rebuild", store, "--yes", "--queues", "--index", *shape, "--output")
    local, spark = rmqtool(*command, tmp_path / "local"), run(*command, tmp_path / "spark")
    assert (local.code, spark.code) == (0, 0), spark.err
    assert contents(tmp_path / "spark") == contents(tmp_path / "local")
    assert any(path.startswith("consumequeue/") for path in contents(tmp_path / "spark"))


def test_rebuild_on_spark_stops_at_damage_as_rebuild_does(run: Any, golden: Unpacked) -> None:
    with assert_store_unchanged(golden(STORE)):
        assert run("rebuild", golden(STORE), "--dry-run") == rmqtool("rebuild", golden(STORE), "--dry-run")


def test_verify_reads_a_store_elsewhere(run: Any, golden: Unpacked) -> None:
    """Executors read it by themselves: the view goes to them, and no byte of the store by the driver."""
    url = f"local://{golden('5.5.0-damage-zero-hole')}"
    here = rmqtool("verify", url, "--format", "json")
    there = run("verify", url, "--format", "json")
    assert here.code == there.code == 3
    assert there.out == here.out


def test_the_cause_of_a_failed_job_is_told(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's own line says only that a task failed."""
    too_long = spark.createDataFrame([("x" * 300, 1)], "name string, number int")
    failure = pytest.raises(SparkError, match=r"cause: .*(Mkdirs failed|File name too long)")
    with failure as told, errors_told(tmp_path / "log"):
        too_long.write.partitionBy("name").parquet(str(tmp_path / "out"))
    assert "\n" not in str(told.value)


def test_the_cause_of_a_failed_task_in_python_is_told(spark: SparkSession, tmp_path: Path) -> None:
    failure = pytest.raises(SparkError, match="cause: ZeroDivisionError: division by zero")
    with failure, errors_told(tmp_path / "log"):
        spark.sparkContext.parallelize([0], 1).map(lambda number: 1 / number).collect()


def test_an_error_of_java_that_has_no_cause_is_told(spark: SparkSession, tmp_path: Path) -> None:
    java: Any = spark._jvm
    failure = pytest.raises(SparkError, match=r"cause: java\.lang\.IndexOutOfBoundsException: Index 3")
    with failure, errors_told(tmp_path / "log"):
        java.java.util.ArrayList().get(3)
