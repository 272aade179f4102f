"""`rmqtool mirror` on the command line: errors first, then the result for a person and a program, and the text file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.commands.app import run
from rmqtool.report.json_schemas import schema_text
from rmqtool.store.acquire_lock import StoreLock
from tests.commands.schema_check import schema_errors
from tests.replication.fake_master import FakeMaster

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
