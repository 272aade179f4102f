"""`rmqtool mirror` on the command line: errors first, then the result for a person and a program, and the text file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.commands.app import run
from rmqtool.report.json_schemas import schema_text
from rmqtool.store.acquire_lock import StoreLock
from rmqtool.times import time_text
from tests.commands.schema_check import schema_errors
from tests.replication.fake_master import FakeMaster
from tests.replication.mirror_runs import record_starts, store_time, with_store_times

Unpacked = Callable[[str], Path]
FILE_SIZE = 65536


@pytest.fixture
def master(golden: Unpacked) -> Any:
    first = min((golden("5.5.0-clean-basic") / "commitlog").iterdir()).read_bytes()
    with FakeMaster(first, FILE_SIZE) as started:
        yield started


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["127.0.0.1:0", "{copy}"], "not HOST or HOST:PORT"),
        (["127.0.0.1:1", "{copy}", "--until", "soon"], "is not a time"),
        (["127.0.0.1:1", "{copy}", "--config", "x"], "not KEY=VALUE"),
        (["127.0.0.1:1", "{copy}", "--from-offset", "100"], "not the start of a commit log file"),
    ],
)
def test_wrong_usage(capsys: Any, tmp_path: Path, arguments: list[str], said: str) -> None:
    copy = tmp_path / "copy"
    assert run(["mirror", *(word.format(copy=copy) for word in arguments)]) == 2
    assert said in capsys.readouterr().err
    assert not copy.exists()


def test_no_master_there(capsys: Any, tmp_path: Path) -> None:
    with FakeMaster(b"", FILE_SIZE) as gone:
        pass
    assert run(["mirror", str(gone.address), str(tmp_path / "copy")]) == 4
    assert str(gone.address) in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


def test_a_failed_first_run_leaves_what_was_there(capsys: Any, tmp_path: Path) -> None:
    with FakeMaster(b"", FILE_SIZE) as gone:
        pass
    (tmp_path / "config").mkdir()
    assert run(["mirror", str(gone.address), str(tmp_path)]) == 4
    assert [path.name for path in tmp_path.rglob("*")] == ["config"]


def test_a_store_that_is_in_use_is_refused(capsys: Any, tmp_path: Path, master: FakeMaster) -> None:
    with StoreLock(tmp_path):
        assert run(["mirror", str(master.address), str(tmp_path)]) == 5
    assert "another rmqtool" in capsys.readouterr().err


def test_a_copy_with_queues_that_verify_accepts(capsys: Any, tmp_path: Path, master: FakeMaster) -> None:
    copy, textfile = tmp_path / "copy", tmp_path / "mirror.prom"
    sizes = ["--log-file-size", str(FILE_SIZE), "--config", "maxHashSlotNum=100", "--config", "maxIndexNum=400"]
    place = ["mirror", str(master.address), str(copy), "--until", "65536", "--build", *sizes]
    config = tmp_path / "config"
    config.mkdir()
    (config / "topics.json").write_text('{"topicConfigTable":{}}')
    (config / "consumerOffset.json").write_text('{"offsetTable":{"T@G":{0:1')  # being written just now
    more = ["--config", "mappedFileSizeConsumeQueue=600", "--config-from", str(config), "--textfile", str(textfile)]
    assert run([*place, *more, "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert schema_errors(shown, json.loads(schema_text("mirror") or "")) == []
    assert (shown["end_offset"], shown["stopped_by"], shown["problem"]) == (65536, "until", None)
    assert shown["config_files"] == ["topics.json"]
    assert not (copy / "config" / "consumerOffset.json").exists()
    assert 'rmqtool_mirror_end_offset_bytes{master="' in textfile.read_text()
    assert run(["verify", str(copy)]) == 0
    capsys.readouterr()
    assert run([*place, "--quiet"]) == 0
    assert run(["verify", str(copy)]) == 0


def test_until_now_does_not_end_at_a_record_that_was_stored_in_the_future(
    capsys: Any, tmp_path: Path, master: FakeMaster
) -> None:
    starts = record_starts(master.log)
    ahead_ms = int(time.time() * 1000) + 86_400_000
    master.log = with_store_times(master.log, {starts[9]: ahead_ms, starts[10]: ahead_ms})
    place = ["mirror", str(master.address), str(tmp_path), "--log-file-size", str(FILE_SIZE), "--until"]
    assert run([*place, "now", "--format", "json"]) == 0
    told = capsys.readouterr()
    shown = json.loads(told.out)
    assert schema_errors(shown, json.loads(schema_text("mirror") or "")) == []
    assert shown["end_offset"] == len(master.log)
    assert shown["late_records"] == {"physical_offset": starts[9], "store_timestamp_ms": ahead_ms, "records": 2}
    assert shown["skipped_records"] is None
    assert f"store times out of order: 2 records from {starts[9]} on, the first stored at 2" in told.err


def test_a_copy_that_ends_at_a_time_names_what_is_not_copied(capsys: Any, tmp_path: Path, master: FakeMaster) -> None:
    starts = record_starts(master.log)
    limit = store_time(master.log, starts[-1]) + 1000
    master.log = with_store_times(master.log, {starts[9]: limit} | dict.fromkeys(starts[20:], limit))
    place = ["mirror", str(master.address), str(tmp_path), "--log-file-size", str(FILE_SIZE), "--until"]
    place.append(time_text(limit))
    assert run(place) == 0
    told = capsys.readouterr()
    assert f"{len(starts) - 20} records from {starts[20]} on, stored at the end time or later" in told.out
    assert f"1 record from {starts[9]} on" in told.err
    assert run([*place, "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert schema_errors(shown, json.loads(schema_text("mirror") or "")) == []
    assert shown["skipped_records"] == {"physical_offset": starts[20], "records": len(starts) - 20}


def test_a_log_that_does_not_continue_the_copy_is_a_problem_with_a_result(
    capsys: Any, tmp_path: Path, master: FakeMaster
) -> None:
    place = ["mirror", str(master.address), str(tmp_path), "--log-file-size", str(FILE_SIZE)]
    assert run([*place, "--until", "60000"]) == 0
    assert "Copied" in capsys.readouterr().out
    master.log = master.log[:500] + b"?" + master.log[501:]
    assert run([*place, "--format", "json"]) == 3
    told = capsys.readouterr()
    assert json.loads(told.out)["problem"]["id"] == "mirror.differs"
    assert "differs from the master at 500" in told.err
