"""`export --incremental` adds what is new, each row once, wherever a run ends in between."""

from __future__ import annotations

import fcntl
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest

from rmqtool.engine.append.encoder import RecordColumns, RecordFields, encode_records, topic_part
from rmqtool.errors import WriteError
from rmqtool.pipeline.enums import Form
from rmqtool.pipeline.jobs import incremental, lease
from rmqtool.pipeline.jobs.export import save_rows
from rmqtool.pipeline.jobs.partitions import folder_of, text_of_folder
from rmqtool.pipeline.jobs.target_files import LocalFiles
from rmqtool.report.json_schemas import schema_text
from tests.commands.schema_check import schema_errors
from tests.commands.transcripts import Ran, rmqtool
from tests.conftest import Unpacked
from tests.pipeline.jobs.test_partitions import some_texts
from tests.pipeline.stores import dump_rows
from tests.store_state import assert_store_unchanged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def offsets_in(table: Path) -> list[int]:
    """Physical offsets of all rows of a table of Parquet files."""
    paths = [path for path in table.rglob("*.parquet") if path.is_file()]
    read = [pyarrow.parquet.ParquetFile(path).read(["physical_offset"]) for path in paths]
    return sorted(offset for table_part in read for offset in table_part["physical_offset"].to_pylist())


def grow(store: Path) -> None:
    words = ("--topic", "Audit", "--queue-id", "0", "--body", "more", "--count", "5", "--end", "clean")
    assert rmqtool("append", store, *words).code == 0


def no_spark(*_: object) -> None:
    raise AssertionError("Spark was started")


def test_each_row_is_added_once(
    run: Any, golden_copy: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first run, one that ends before its manifest, one after it in the middle of moving files, and one that ends."""
    path, target = golden_copy("5.5.0-many-files"), tmp_path / "out"
    command = ("export", path, "--to", target, "--incremental", "--partition-by", "day,topic")
    with assert_store_unchanged(path):
        first = run(*command)
    assert first.code == 0, first.err
    expected = [row["physical_offset"] for row in dump_rows(path)]
    assert offsets_in(target / "messages") == expected
    files = len(list((target / "messages").rglob("*.parquet")))
    summary = {"to": str(target), "rows": len(expected), "files": files, "batches": 1}
    assert json.loads(first.out).items() >= summary.items()
    assert schema_errors(json.loads(first.out), json.loads(schema_text("export") or "")) == []
    folders = [folder for folder in (target / "messages").rglob("topic_folder=*") if folder.is_dir()]
    assert all(len(list(folder.glob("*.parquet"))) == 1 for folder in folders)
    manifest = json.loads((target / "_rmqtool" / "messages" / "batches" / "0000000000.json").read_text())
    log = sorted((path / "commitlog").iterdir())
    assert [file["path"] for file in manifest["stores"][str(path)]["files"]] == [f"commitlog/{one.name}" for one in log]
    with monkeypatch.context() as patch:
        patch.setenv("JAVA_HOME", "/nowhere")
        patch.setattr("rmqtool.commands.tables.export.spark", no_spark)
        assert json.loads(run(*command).out)["rows"] == 0  # nothing is new: no Java is started

    grow(path)
    real_create = LocalFiles.create

    def create(files: LocalFiles, place: str, text: str) -> bool:
        if "/batches/" in place:
            raise WriteError("killed before the manifest")
        return real_create(files, place, text)

    def move(files: LocalFiles, source: str, place: str) -> None:
        raise WriteError("killed before the files are moved")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "create", create)
        assert run(*command).code == 4
    assert offsets_in(target / "messages") == expected
    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "move", move)
        assert run(*command).code == 4
    assert offsets_in(target / "messages") == expected
    assert run(*command).code == 0
    grown = [row["physical_offset"] for row in dump_rows(path)]
    assert len(grown) >= len(expected) + 5
    assert offsets_in(target / "messages") == grown
    assert not (target / "_rmqtool" / "messages" / "staging").exists()


def test_findings_are_added_with_the_time_of_the_check(run: Any, golden: Unpacked, tmp_path: Path) -> None:
    path, target = golden("5.5.0-damage-flip-body-middle-file"), tmp_path / "out"
    command = ("export", path, "--to", target, "--incremental", "--table", "findings")
    counts = [json.loads(run(*command).out)["rows"] for _ in range(2)]
    found = rmqtool("verify", path, "--format", "jsonl").out.splitlines()
    assert counts == [len(found) - 1] * 2
    tables = [pyarrow.parquet.ParquetFile(file).read() for file in (target / "findings").rglob("*.parquet")]
    checked = [time for table in tables for time in table[incremental.CHECKED].to_pylist()]
    assert (len(checked), len(set(checked))) == (sum(counts), 2)
    times = [time.timestamp() * 1000 for table in tables for time in table["checked_time"].to_pylist()]
    assert [round(time) for time in times] == checked


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--table", "index", "--incremental"), 2, "messages or findings"),
        (("--format", "delta"), 2, "needs --incremental"),
        (("--incremental", "--to", "s3://bucket/a?region=b"), 2, "spark.hadoop"),
    ],
)
def test_what_cannot_be_is_told(golden: Unpacked, tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    to = () if "--to" in words else ("--to", tmp_path / "out")
    ran = rmqtool("export", golden("5.5.0-clean-basic"), *to, *words)
    assert (ran.code, said in ran.err, ran.err.count("\n")) == (code, True, 1)


def test_a_target_of_something_else_is_refused(run: Any, golden: Unpacked, tmp_path: Path) -> None:
    command = ("export", golden("5.5.0-clean-single"), "--incremental", "--to", tmp_path / "out")
    (tmp_path / "out" / "messages").mkdir(parents=True)
    (tmp_path / "out" / "messages" / "mine").write_text("kept")
    ran = run(*command)
    assert (ran.code, "not written by" in ran.err) == (5, True)
    (tmp_path / "out" / "messages" / "mine").unlink()
    assert run(*command).code == 0
    ran = run(*command, "--partition-by", "topic")
    assert (ran.code, "partition_by" in ran.err) == (5, True)


@pytest.mark.parametrize("url", ["nosuch://place/out", "http://127.0.0.1/out", "s3://bucket/out"])
def test_a_url_that_spark_cannot_write_is_told(run: Any, golden: Unpacked, tmp_path: Path, url: str) -> None:
    """Once this was a directory of that name in the working directory."""
    ran = run("export", golden("5.5.0-clean-single"), "--to", url)
    assert (ran.code, f"--to {url}: Spark cannot write there" in ran.err, ran.err.count("\n")) == (2, True, 1)
    assert ("hadoop-aws" in ran.err) == url.startswith("s3")
    assert not Path(url.partition("://")[0] + ":").exists()


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_run_beside_another_removes_nothing_that_it_moved(
    run: Any, golden_copy: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_broken: bool
) -> None:
    """A second run comes while the first one moves its files; it is refused, or a person has broken the lease."""
    path, target = golden_copy("5.5.0-many-files"), tmp_path / "out"
    command = ("export", path, "--to", target, "--incremental", "--partition-by", "queue_id")
    monkeypatch.setattr(lease, "WAIT_S", 0.5)
    real_move = LocalFiles.move
    moves: list[str] = []
    others: list[Ran] = []

    def move(files: LocalFiles, source: str, place: str) -> None:
        moves.append(place)
        if len(moves) == 2:
            words = ("--break-lease", next((target / "_rmqtool" / "leases").iterdir()).stem) if is_broken else ()
            others.append(run(*command, *words))
        if Path(source).exists():
            real_move(files, source, place)

    monkeypatch.setattr(LocalFiles, "move", move)
    ran = run(*command)
    assert ran.code == 0, ran.err
    [other] = others
    assert other.code == (0 if is_broken else 5), other.err
    assert is_broken or "another export has written to this target since" in other.err
    assert offsets_in(target / "messages") == [row["physical_offset"] for row in dump_rows(path)]
    assert json.loads(run(*command).out)["rows"] == 0
    assert sorted(entry.name for entry in (target / "_rmqtool").iterdir()) == ["messages"]


def test_a_batch_is_added_once_by_runs_that_planned_it_together(
    run: Any, golden_copy: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one, which broke the lease, has read more of the log than the first one planned."""
    path, target = golden_copy("5.5.0-many-files"), tmp_path / "out"
    command = ("export", path, "--to", target, "--incremental")
    real_create = LocalFiles.create
    others: list[Ran] = []

    def create(files: LocalFiles, place: str, text: str) -> bool:
        if "/batches/" in place and not others:
            others.append(Ran(0, "", ""))
            grow(path)
            held = next((target / "_rmqtool" / "leases").iterdir()).stem
            others[0] = run(*command, "--break-lease", held)
        return real_create(files, place, text)

    monkeypatch.setattr(LocalFiles, "create", create)
    ran = run(*command)
    assert (ran.code, ran.err.count("\n")) == (5, 1)
    assert "another export has written it meanwhile" in ran.err
    assert others[0].code == 0, others[0].err
    assert run(*command).code == 0
    assert offsets_in(target / "messages") == [row["physical_offset"] for row in dump_rows(path)]


def test_a_target_of_the_other_kind_of_export_is_refused(run: Any, golden: Unpacked, tmp_path: Path) -> None:
    """An export without --incremental replaces its target, the tables of another one with it."""
    whole, tables = ("export", golden("5.5.0-clean-single"), "--to", tmp_path / "out"), ("--incremental",)
    assert run(*whole).code == 0
    assert (ran := run(*whole, *tables)).code == 5
    assert "replaces all that is there" in ran.err
    shutil.rmtree(tmp_path / "out")
    assert run(*whole, *tables).code == 0
    assert (ran := run(*whole)).code == 5
    assert "would be replaced as a whole" in ran.err
    assert offsets_in(tmp_path / "out" / "messages")


HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
LONG = "%" * 85
"""Each of its characters is three in a folder name."""


def write_store(path: Path, topics: list[str]) -> None:
    """A store with a message of each topic, which no broker uses."""
    records = [
        RecordFields(topic_part(topic.encode(), writes_v2=True), b"x", b"", 0, 0, 0, 0, 1, HOST, 1_700_000_000_000 + at,
                     HOST, 0, 0, False)
        for at, topic in enumerate(topics)
    ]  # fmt: skip
    columns = RecordColumns(*zip(*records, strict=True))
    (path / "commitlog").mkdir(parents=True)
    (path / "commitlog" / ("0" * 20)).write_bytes(
        bytes(encode_records(columns, columns.sizes(), 0)).ljust(1 << 16, b"\0")
    )


def topics_by_folder(table: Path) -> dict[str, set[str]]:
    topics: dict[str, set[str]] = {}
    for path in table.rglob("*.parquet"):
        folder = path.parent.name.partition("=")[2]
        topics.setdefault(folder, set()).update(pyarrow.parquet.ParquetFile(path).read(["topic"])["topic"].to_pylist())
    return topics


@pytest.mark.parametrize("words", [(), ("--incremental",)])
def test_a_topic_of_any_length_has_a_folder(run: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Once the first of these stopped the export of all: its folder name is longer than a file system takes."""
    topics = ["t" * 255, LONG, "a/b", "%RETRY%" + "g" * 240, "007", "7"]
    write_store(tmp_path / "store", topics)
    target = tmp_path / "out"
    ran = run("export", tmp_path / "store", "--to", target, "--partition-by", "topic", *words)
    assert ran.code == 0, ran.err
    folders = topics_by_folder(target / "messages" if words else target)
    assert folders == {folder_of(topic): {topic} for topic in topics}
    assert [text_of_folder(folder) for folder in folders].count(None) == 3


def test_spark_names_folders_as_python_does(spark: SparkSession, tmp_path: Path) -> None:
    texts = [*some_texts()[:300], LONG, "t" * 201, "t" * 200]
    save_rows(spark.createDataFrame([(text,) for text in texts], "topic string"), Form.PARQUET, ("topic",),
              str(tmp_path / "out"))  # fmt: skip
    assert topics_by_folder(tmp_path / "out") == {folder_of(text): {text} for text in texts}


def test_bytes_name_no_folder(run: Any, golden: Unpacked, tmp_path: Path) -> None:
    words = ("--profile", "full", "--partition-by", "body")
    ran = run("export", golden("5.5.0-clean-single"), "--to", tmp_path / "out", *words)
    assert (ran.code, "name no folder" in ran.err) == (2, True), ran.err


def test_a_target_of_an_earlier_release_keeps_its_layout(run: Any, golden_copy: Unpacked, tmp_path: Path) -> None:
    path, target = golden_copy("5.5.0-many-files"), tmp_path / "out"
    command = ("export", path, "--to", target, "--incremental")
    assert run(*command, "--partition-by", "topic").code == 0
    note = target / "_rmqtool" / "messages" / "export.json"
    kept = json.loads(note.read_text())
    assert (kept["format"], kept["partition_by"]) == (2, ["topic"])
    note.write_text(json.dumps({**kept, "format": 1}))
    for folder in (target / "messages").iterdir():
        folder.rename(folder.with_name(folder.name.replace("topic_folder=", "topic=")))
    before = len(offsets_in(target / "messages"))
    grow(path)
    assert run(*command).code == 0
    assert len(offsets_in(target / "messages")) >= before + 5
    assert {folder.name.partition("=")[0] for folder in (target / "messages").iterdir()} == {"topic"}
    ran = run(*command, "--partition-by", "day")
    assert (ran.code, "partition_by" in ran.err) == (5, True)


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A store whose broker was killed before anything was flushed: 30 messages, `abort`, and no store time."""
    path = tmp_path / "crashed"
    words = ("--create", "--topic", "A", "--count", "30", "--body", "x", "--end", "crash", "--at", "committed")
    assert rmqtool("append", path, *words).code == 0
    return path


def test_the_log_of_a_dead_broker_is_exported_to_its_end(run: Any, crashed: Path, tmp_path: Path) -> None:
    """Once none of the 30 messages was, and nothing said so."""
    assert (crashed / "abort").exists()
    ran = run("export", crashed, "--to", tmp_path / "out", "--incremental")
    summary = json.loads(ran.out)
    assert (ran.code, ran.err, summary["rows"], summary["unflushed_bytes"]) == (0, "", 30, 0)
    assert offsets_in(tmp_path / "out" / "messages") == [row["physical_offset"] for row in dump_rows(crashed)]


def test_what_a_running_broker_has_not_flushed_is_told_and_comes_later(run: Any, crashed: Path, tmp_path: Path) -> None:
    command = ("export", crashed, "--to", tmp_path / "out", "--incremental")
    size = sum(row["size"] for row in dump_rows(crashed))
    with (crashed / "lock").open("r+b") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        ran = run(*command)
        summary = json.loads(ran.out)
        assert schema_errors(summary, json.loads(schema_text("export") or "")) == []
        assert (ran.code, summary["rows"], summary["unflushed_bytes"]) == (0, 0, size)
        assert f"{crashed}: {size} bytes at the end of the log were not exported" in ran.err.replace(",", "")
    assert json.loads(run(*command).out)["rows"] == 30
