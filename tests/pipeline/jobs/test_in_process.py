"""Increments without Spark: the same rows, folders and notes, so that either continues what the other began."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from rmqtool import open as rmqtool_open
from rmqtool.errors import UnreadableError, WriteError
from rmqtool.pipeline.enums import Form
from rmqtool.pipeline.jobs import in_process
from rmqtool.pipeline.jobs.in_process import _time_folder, append_delta, can_write
from rmqtool.pipeline.jobs.target_files import LocalFiles
from rmqtool.pipeline.stores import read_messages
from tests.commands.transcripts import Ran, rmqtool
from tests.conftest import Unpacked
from tests.pipeline.jobs.test_incremental import grow, no_spark, offsets_in
from tests.pipeline.stores import dump_rows


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs an export that may not start Spark."""

    def ran(*arguments: object) -> Ran:
        with monkeypatch.context() as patch:
            patch.setattr("rmqtool.commands.tables.export.spark", no_spark)
            return rmqtool("export", *arguments, "--incremental")

    return ran


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_an_error_of_the_reading_is_told_as_it_is(
    here: Any, golden_copy: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    store, target = golden_copy("5.5.0-many-files"), tmp_path / "out"

    def read(options: Mapping[str, str]) -> pa.RecordBatchReader:
        rows = read_messages(options)

        def batches() -> Iterator[pa.RecordBatch]:
            yield rows.read_next_batch()
            raise UnreadableError("commitlog/0: the disk is away")

        return pa.RecordBatchReader.from_batches(rows.schema, batches())

    monkeypatch.setattr("rmqtool.pipeline.jobs.incremental.read_messages", read)
    ended = here(store, "--to", target, "--format", form)
    assert (ended.code, ended.err) == (UnreadableError.exit_code, "rmqtool: commitlog/0: the disk is away\n")
    assert not list(target.rglob("*.parquet"))


@contextmanager
def killed_before_notes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A run ends before it notes its batch, when the rows of it are there."""
    real_create = LocalFiles.create

    def create(files: LocalFiles, place: str, text: str) -> bool:
        if "/batches/" in place:
            raise WriteError("killed before the manifest")
        return real_create(files, place, text)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "create", create)
        yield


def places(store: Path) -> list[int]:
    return [row["physical_offset"] for row in dump_rows(store)]


def folders(target: Path) -> set[str]:
    table = target / "messages"
    return {str(path.relative_to(table).parent) for path in table.rglob("*.parquet")}


def test_rows_are_added_once_however_a_run_ends(
    here: Any, golden_copy: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, target = golden_copy("5.5.0-many-files"), tmp_path / "out"
    line = (store, "--to", target, "--partition-by", "day,topic")
    assert json.loads(here(*line).out)["rows"] == len(places(store))
    assert offsets_in(target / "messages") == places(store)
    assert all(
        folder.startswith(("day=2026-", "day=__HIVE")) and "/topic_folder=" in folder for folder in folders(target)
    )
    assert json.loads(here(*line).out)["rows"] == 0
    grow(store)
    with killed_before_notes(monkeypatch):
        assert here(*line).code == 4
    assert here(*line).code == 0
    assert offsets_in(target / "messages") == places(store)


def test_files_that_a_kill_left_are_moved_without_spark(
    here: Any, golden_copy: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, target = golden_copy("5.5.0-many-files"), tmp_path / "out"

    def move(files: LocalFiles, source: str, place: str) -> None:
        raise WriteError("killed before the files are moved")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "move", move)
        assert here(store, "--to", target).code == 4
    assert here(store, "--to", target).code == 0
    assert offsets_in(target / "messages") == places(store)


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_an_interrupted_run_leaves_nothing_and_the_next_one_adds_all(
    here: Any, golden_copy: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    store, target = golden_copy("5.5.0-many-files"), tmp_path / "out"
    line = (store, "--to", target, "--format", form)

    def read(options: Mapping[str, str]) -> pa.RecordBatchReader:
        rows = read_messages(options)

        def batches() -> Iterator[pa.RecordBatch]:
            batch = rows.read_next_batch()
            yield batch
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):
                time.sleep(0.01)
                yield batch

        return pa.RecordBatchReader.from_batches(rows.schema, batches())

    with monkeypatch.context() as patch:
        patch.setattr("rmqtool.pipeline.jobs.incremental.read_messages", read)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
        stopped = here(*line, "--progress", "json")
        signal.signal(signal.SIGINT, before)
    assert stopped.code == 130, stopped.err
    *progress, words = stopped.err.splitlines()
    assert {json.loads(line)["phase"] for line in progress} == {"export"}
    assert words == "rmqtool: interrupted; the next run adds what this one did not"
    assert not list(target.rglob("*.parquet"))
    assert json.loads(here(*line).out)["rows"] == len(places(store))
    if form == "parquet":
        assert offsets_in(target / "messages") == places(store)
    else:
        assert DeltaTable(str(target / "messages")).to_pyarrow_table().num_rows == len(places(store))


def test_nothing_is_added_to_a_delta_table_that_grew_meanwhile(golden: Unpacked, tmp_path: Path) -> None:
    """Another run broke the lease of this one, and has committed the batch."""
    rows = rmqtool_open(golden("5.5.0-clean-basic")).messages(["physical_offset", "topic"]).read_all()

    def append(number: int, is_there: Callable[[], bool] = lambda: False) -> int:
        return append_delta(rows.to_reader(), (), str(tmp_path / "table"), "export", number, {}, is_there)

    for number in (0, 1):  # of a new table, and of one that is there
        with pytest.raises(WriteError):
            append(number, lambda number=number: append(number) < 0)  # type: ignore[misc]
        assert DeltaTable(str(tmp_path / "table")).to_pyarrow_table().num_rows == rows.num_rows * (number + 1)


@pytest.mark.parametrize("words", [("--profile", "full"), ("--table", "business_messages")])
def test_a_delta_table_grows_once(
    here: Any, golden_copy: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    store, target = golden_copy("5.5.0-many-files"), tmp_path / "out"
    line = (store, "--to", target, "--format", "delta", *words)
    first = here(*line)
    assert first.code == 0, first.err
    table = str(target / words[-1] if words[0] == "--table" else target / "messages")
    rows = DeltaTable(table).to_pyarrow_table()
    assert rows.num_rows == json.loads(first.out)["rows"]
    grow(store)
    with killed_before_notes(monkeypatch):
        assert here(*line).code == 4
    again = here(*line)
    assert (again.code, json.loads(again.out)["rows"]) == (0, 5)
    assert DeltaTable(table).to_pyarrow_table().num_rows == rows.num_rows + 5


def test_a_batch_stays_added_when_the_log_of_its_commit_is_gone(
    here: Any, golden_copy: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta removes old files of its log after a checkpoint; once the batch was added again then."""
    store, target = golden_copy("5.5.0-many-files"), tmp_path / "out"
    line = (store, "--to", target, "--format", "delta")
    with killed_before_notes(monkeypatch):
        assert here(*line).code == 4
    place = str(target / "messages")
    DeltaTable(place).alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    DeltaTable(place).create_checkpoint()
    DeltaTable(place).cleanup_metadata()
    log = {path.name for path in (target / "messages" / "_delta_log").glob("*.json")}
    assert log == {"00000000000000000002.json"}
    assert here(*line).code == 0
    assert DeltaTable(place).to_pyarrow_table().num_rows == len(places(store))


@pytest.mark.spark
@pytest.mark.parametrize("is_first", [True, False])
def test_spark_continues_what_this_process_began_and_the_other_way(
    run: Any, here: Any, golden_copy: Unpacked, tmp_path: Path, *, is_first: bool
) -> None:
    store, target = golden_copy("5.5.0-many-files"), tmp_path / "out"
    line = (store, "--to", target, "--partition-by", "day,topic", "--profile", "properties")
    steps = [here, lambda *words: run("export", *words, "--incremental")]
    tables = []
    for step in steps if is_first else reversed(steps):
        assert step(*line).code == 0
        tables.append(folders(target))
        grow(store)
    assert offsets_in(target / "messages") == places(store)[:-5]
    assert tables[0] >= {folder for folder in tables[1] if "Audit" not in folder}


@pytest.mark.parametrize("is_mounted", [False, True])
def test_a_log_whose_disk_is_away_is_continued_when_it_is_back(
    here: Any, golden_copy: Unpacked, tmp_path: Path, *, is_mounted: bool
) -> None:
    """The others grow meanwhile with `--accept-loss`; the directory of the log is empty, or is not there."""
    stores = [golden_copy(name) for name in ("5.5.0-many-files", "5.5.0-clean-basic")]
    line = (*stores, "--to", tmp_path / "out")
    assert here(*line).code == 0
    log, away = stores[0] / "commitlog", tmp_path / "away"
    log.rename(away)
    if is_mounted:
        log.mkdir()
    grow(stores[1])
    refused = here(*line)
    assert refused.code == 5, refused.err
    assert str(stores[0]) in refused.err
    assert json.loads(here(*line, "--accept-loss").out)["rows"] == 5
    if is_mounted:
        log.rmdir()
    away.rename(log)
    grow(stores[0])
    assert json.loads(here(*line).out)["rows"] == 5
    assert offsets_in(tmp_path / "out" / "messages") == sorted([*places(stores[0]), *places(stores[1])])


def test_what_cannot_be_partitioned_is_told_in_one_line(here: Any, golden: Unpacked, tmp_path: Path) -> None:
    for name, said in (("none", "no column"), ("properties", "lists")):
        ran = here(
            golden("5.5.0-clean-basic"), "--to", tmp_path / name, "--partition-by", name, "--profile", "properties"
        )
        assert (ran.code, said in ran.err, ran.err.count("\n")) == (2, True, 1), ran.err


def test_days_and_hours_are_written_as_spark_writes_them() -> None:
    assert _time_folder(0, "day") == "1970-01-01"
    assert _time_folder(-1, "hour") == "1969-12-31-23"
    assert _time_folder(3_000_000, "day") == "+10183-09-21"


def test_forms_of_which_a_library_is_missing_are_written_by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [form for form in Form if can_write(form)] == [Form.PARQUET, Form.DELTA]
    monkeypatch.setattr(in_process, "find_spec", lambda _name: None)
    assert [form for form in Form if can_write(form)] == [Form.PARQUET]


def test_rows_without_a_store_time_have_a_folder_of_their_own(here: Any, golden: Unpacked, tmp_path: Path) -> None:
    store = golden("5.5.0-damage-flip-body-middle-file")
    assert here(store, "--to", tmp_path / "out", "--partition-by", "hour").code == 0
    assert any("__HIVE_DEFAULT_PARTITION__" in folder for folder in folders(tmp_path / "out"))
