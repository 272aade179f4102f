"""Every command that may take long reports progress to programs, and ^C says what was kept or undone."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.commands.reading import dump, forecast, verify
from rmqtool.commands.repairs import salvage
from rmqtool.repair.machine import apply, output
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.repair.small_stores import files_of
from tests.store_state import assert_store_unchanged

STORE = "5.5.0-crashed"


def phases(err: str) -> list[dict[str, Any]]:
    states = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert all(state["type"] == "progress" for state in states)
    return [state for state in states if state["finished"]]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["info", "STORE"], ["info"]),
        (["dump", "STORE", "--key", "nothing"], ["dump"]),
        (["dump", "STORE/consumequeue"], ["dump"]),
        (["get", "STORE", "--topic", "TopicTest", "--key", "k"], ["get"]),
        (["verify", "STORE"], ["verify"]),
        (["forecast", "STORE"], ["forecast of 5.5.1"]),
        (["diff", "STORE", "STORE"], ["diff"]),
        (["diff", "STORE", "--make-manifest", "TMP/m"], ["manifest"]),
        (["recover", "STORE", "--dry-run"], ["recover", "recover: check of the plan"]),
        (["rebuild", "STORE", "--dry-run"], ["rebuild", "rebuild: check of the plan"]),
        (
            ["recover", "STORE", "--yes", "--output", "TMP/copy"],
            ["recover", "recover: check of the plan", "recover: copy"],
        ),
        (["salvage", "STORE", "--export", "TMP/export"], ["salvage", "salvage: export"]),
    ],
)
def test_each_phase_reports_to_programs(
    command: list[str], expected: list[str], golden: Unpacked, tmp_path: Path
) -> None:
    words = [word.replace("STORE", str(golden(STORE))).replace("TMP", str(tmp_path)) for word in command]
    ran = rmqtool(*words, "--progress", "json")
    assert [state["phase"] for state in phases(ran.err)] == expected
    assert "progress" not in ran.out
    assert not phases(rmqtool(*words[:-1], words[-1] + "2").err) if "TMP" in command[-1] else True


def test_a_repair_in_place_has_its_own_phases(golden_copy: Unpacked) -> None:
    ran = rmqtool("recover", golden_copy(STORE), "--yes", "--progress", "json")
    assert [state["phase"] for state in phases(ran.err)][2:] == [
        "recover: repair",
        "recover: check of the repaired store",
    ]


def test_the_total_of_a_dump_is_that_of_the_files_it_reads(golden: Unpacked) -> None:
    store = golden(STORE)
    (whole,) = phases(rmqtool("dump", store, "--key", "nothing", "--progress", "json").err)
    (state,) = phases(rmqtool("dump", store, "--key", "nothing", "--from-offset", 70_000, "--progress", "json").err)
    assert 0 < state["total_bytes"] < whole["total_bytes"]
    assert state["read_bytes"] > 0
    assert state["done_bytes"] == state["total_bytes"]


def interrupting(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, name, interrupt)


@pytest.mark.parametrize(
    ("module", "name", "command"),
    [
        (dump, "make_source", ["dump"]),
        (verify, "verify_store", ["verify"]),
        (forecast, "forecast_store", ["forecast"]),
    ],
)
def test_an_interrupted_look_has_changed_nothing(
    module: Any, name: str, command: list[str], golden: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupting(monkeypatch, module, name)
    ran = rmqtool(*command, golden(STORE))
    assert (ran.code, ran.err.splitlines()[-1]) == (130, "rmqtool: interrupted; the store was not changed")


def test_an_interrupted_check_says_where_it_goes_on(
    golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupting(monkeypatch, verify, "verify_store")
    ran = rmqtool("verify", golden(STORE), "--state", tmp_path / "state")
    assert ran.code == 130
    assert f"{tmp_path / 'state'} has what was checked: run the same command again to continue" in ran.err


def test_an_interrupted_export_leaves_no_part_of_a_file(
    golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupting(monkeypatch, salvage.JsonWriter, "write")
    file = tmp_path / "export" / salvage.NAME
    with assert_store_unchanged(golden(STORE)):
        ran = rmqtool("salvage", golden(STORE), "--export", file.parent)
    text = f"rmqtool: interrupted; the store was not changed, and the incomplete {file} was removed"
    assert (ran.code, ran.err.splitlines()[-1]) == (130, text)
    assert not file.exists()


def killed_in(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    """Press ^C when a function is called the first time; it does its work all the same."""
    real: Callable[..., Any] = getattr(module, name)

    def press(*arguments: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return real(*arguments, **options)

    monkeypatch.setattr(module, name, press)


def test_an_interrupted_repair_is_rolled_back_and_says_so(
    golden_copy: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_copy(STORE)
    before = files_of(store)
    killed_in(monkeypatch, apply, "_change")
    ran = rmqtool("recover", store, "--yes")
    assert ran.code == 130
    assert ran.err.splitlines()[-1] == (
        "rmqtool: interrupted; the repair was rolled back, and the store is as it was before"
    )
    assert files_of(store) == before


def test_an_interrupted_copy_is_removed(golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed_in(monkeypatch, output, "raise_fences")
    with assert_store_unchanged(golden(STORE)):
        ran = rmqtool("recover", golden(STORE), "--yes", "--output", tmp_path / "copy")
    assert (ran.code, ran.err.splitlines()[-1]) == (
        130,
        "rmqtool: interrupted; the copy was removed, and the store was not changed",
    )
    assert not (tmp_path / "copy").exists()


def test_a_question_that_is_interrupted_is_no_crash(golden_copy: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden_copy(STORE)
    monkeypatch.setattr("sys.stdin", Terminal())
    for pressed, code in ((KeyboardInterrupt, 130), (EOFError, 5)):
        monkeypatch.setattr("typer._click.termui.visible_prompt_func", raising(pressed))
        with assert_store_unchanged(store):
            ran = rmqtool("recover", store, "--broker-version", "5.5.0")
        assert ran.code == code, ran.err
        assert "the store was not changed" in ran.err.splitlines()[-1]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def raising(error: type[BaseException]) -> Callable[..., Any]:
    def answer(*_: object, **__: object) -> str:
        raise error

    return answer


def test_a_key_pressed_in_the_middle_of_a_real_run_ends_it_with_130(golden: Unpacked) -> None:
    """`--follow` never ends by itself, so the key always comes in time."""
    # What runs in the background of a shell ignores the key, and so would the program.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from rmqtool.commands.app import main; main()"
    )
    command = [sys.executable, "-c", program, "dump", str(golden(STORE)), "--follow", "--format", "jsonl"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; the store was not changed" in err
