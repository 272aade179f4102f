"""`rmqtool watch` on the command line: errors first, then rows, exit codes, state, text file and webhook."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool.commands.app import run
from rmqtool.commands.reading.watch import ONCE_TROUBLE_MAX
from rmqtool.report.json_schemas import schema_text
from tests.commands.schema_check import schema_errors
from tests.conftest import Unpacked
from tests.watch.growing_store import GrowingStore, growing_store
from tests.watch.test_webhook import Receiver

SIZES = ["--log-file-size", "65536", "--queue-file-size", "600", "--index-slots", "100", "--index-entries", "200"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[GrowingStore]:
    with growing_store(tmp_path / "store") as store:
        yield store


def rows(capsys: Any) -> list[dict[str, Any]]:
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    schema = json.loads(schema_text("watch") or "")
    for row in shown:
        assert schema_errors(row, schema) == []
    return shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-rate", "fast"], "is not a number of bytes"),
        (["--max-rate", "0"], "never check anything"),
        (["--interval", "soon"], "is not a duration"),
        (["--max-flush-lag", "1y"], "is not a duration"),
        (["--webhook", "file:///etc/passwd"], "is not an http:// or https:// URL"),
        (["--format", "csv"], "csv"),
    ],
)
def test_wrong_usage(capsys: Any, store: GrowingStore, arguments: list[str], message: str) -> None:
    assert run(["watch", str(store.root), "--once", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_files_in_the_store_are_refused(capsys: Any, store: GrowingStore) -> None:
    store.put(1)
    for option in ("--state", "--textfile"):
        assert run(["watch", str(store.root), "--once", option, str(store.root / "x")]) == 5
        assert "must be outside the store" in capsys.readouterr().err
    assert not (store.root / "x").exists()


def test_no_store_and_no_state(capsys: Any, store: GrowingStore, tmp_path: Path) -> None:
    assert run(["watch", str(tmp_path / "none"), "--once"]) == 4
    wrong = tmp_path / "wrong"
    wrong.write_text('{"format": "rmqtool-watch-state-1", "position": 3}')
    assert run(["watch", str(store.root), "--once", "--state", str(wrong)]) == 5
    assert "is damaged, or a state file of another version of watch" in capsys.readouterr().err


def test_once_ends_where_something_cannot_be_read(
    capsys: Any, store: GrowingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqtool.commands.reading.watch._wait", lambda *_: looks.append(1))
    monkeypatch.setattr("rmqtool.watch.watcher.Watcher.look", lambda watcher: setattr(watcher, "trouble", "denied"))
    looks: list[int] = []
    assert run(["watch", str(store.root), "--once", *SIZES]) == 4
    assert capsys.readouterr().err.count("looking again") == 1
    assert len(looks) == ONCE_TROUBLE_MAX


def test_once_continues_from_its_state(capsys: Any, store: GrowingStore, tmp_path: Path) -> None:
    state, textfile = tmp_path / "state", tmp_path / "watch.prom"
    place = ["watch", str(store.root), "--once", "--state", str(state), "--textfile", str(textfile), *SIZES]
    store.put(50)
    assert run([*place, "--format", "jsonl"]) == 0
    started, summary = rows(capsys)
    assert started["event"] == "started"
    assert summary["checked"]["records"] == 50
    end = store.put(30)
    assert run(place) == 0
    shown = capsys.readouterr().out
    assert "No problems found in what was checked." in shown
    assert f"0 to {end} of the log: 80 records" in shown
    assert f'rmqtool_watch_verified_offset_bytes{{store="{store.root}"}} {end}\n' in textfile.read_text()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_damage_is_a_row_a_metric_a_post_and_exit_code_3(capsys: Any, store: GrowingStore, tmp_path: Path) -> None:
    receiver, textfile = Receiver(), tmp_path / "watch.prom"
    store.put(50)
    store.flip(5000)
    try:
        place = ["watch", str(store.root), "--once", *SIZES, "--webhook", receiver.url, "--textfile", str(textfile)]
        assert run([*place, "--format", "jsonl"]) == 3
    finally:
        receiver.end()
    finding = next(row for row in rows(capsys) if row["type"] == "finding")
    assert finding["severity"] == "error"
    assert finding["repair"].startswith("rmqtool salvage ")
    assert receiver.rows == [{"store": str(store.root), **finding}]
    assert f'rmqtool_watch_findings_total{{store="{store.root}",id="{finding["id"]}"}} 1\n' in textfile.read_text()


def test_a_lag_above_its_limit_is_an_alert(capsys: Any, store: GrowingStore) -> None:
    store.put(10)
    store.put(10, flushed=False)
    assert run(["watch", str(store.root), "--once", *SIZES, "--max-flush-lag", "0s", "--format", "jsonl"]) == 3
    shown = rows(capsys)
    assert [(row["alert"], row["state"]) for row in shown if row["type"] == "alert"] == [("flush-lag", "raised")]
    assert shown[-1]["alerts_raised"] == ["flush-lag"]


def test_it_runs_until_it_is_told_to_stop(store: GrowingStore, tmp_path: Path) -> None:
    store.put(50)
    state = tmp_path / "state"
    command = [sys.executable, "-m", "rmqtool", "watch", str(store.root), *SIZES, "--format", "jsonl"]
    watch = subprocess.Popen(
        [*command, "--state", str(state)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert watch.stdout is not None
    assert json.loads(watch.stdout.readline())["event"] == "started"
    watch.send_signal(signal.SIGTERM)
    out, errors = watch.communicate(timeout=60)
    assert (watch.returncode, errors) == (0, "")
    assert json.loads(out.splitlines()[-1])["type"] == "summary"
    assert json.loads(state.read_text())["position"] is not None


def test_the_end_of_a_crashed_log_is_named_as_not_checked(capsys: Any, golden: Unpacked) -> None:
    assert run(["watch", str(golden("5.5.0-crashed")), "--once", "--from-start", "--format", "jsonl"]) == 0
    summary = rows(capsys)[-1]
    assert summary["verify_lag_bytes"] > 0
    assert [place["path"] for place in summary["not_looked_at"]] == ["commitlog", "config"]
    assert summary["not_looked_at"][0]["reason"].startswith("119.6 KiB at its end: ")
    assert summary["next_step"]["command"].startswith("rmqtool verify ")
