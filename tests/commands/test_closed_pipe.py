"""What each kind of command comes to once its reader has gone: docs/exit-codes.md."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqtool.commands import app
from rmqtool.commands.closed_pipe import PipeOutput
from tests.commands.transcripts import rmqtool as run_command
from tests.conftest import Unpacked
from tests.store_state import store_state

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "rmqtool"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
CRASHED, CLEAN, DAMAGED = "5.5.0-crashed", "5.5.0-clean-basic", "5.5.0-damage-flip-body-middle-file-abort"

Ended = tuple[int, str]
Unread = Callable[..., Ended]


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Unread]:
    """The exit code, and what stands on standard error, of a command whose output nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)

    def run(*arguments: object) -> Ended:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(PipeOutput(writing)), "utf-8"))
            code = app.run([str(argument) for argument in arguments])
        return code, capfd.readouterr().err

    yield run
    os.close(writing)


def unread_process(*arguments: object, stdin: int = subprocess.DEVNULL, closes_errors: bool = False) -> Ended:
    """The same of a process."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ran = subprocess.run(
            [*PROGRAM, *map(str, arguments)],
            env=ENVIRONMENT, stdin=stdin, stdout=writing,
            stderr=writing if closes_errors else subprocess.PIPE, text=True, check=False, timeout=120,
        )  # fmt: skip
    finally:
        os.close(writing)
    return ran.returncode, ran.stderr or ""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("verify", CRASHED), 3),
        (("verify", CLEAN), 0),
        (("verify", CRASHED, "--format", "json"), 3),
        (("forecast", DAMAGED, "--broker-version", "all"), 3),
        (("forecast", DAMAGED, "--format", "jsonl"), 3),
        (("diff", CRASHED, CLEAN), 3),
        (("info", CRASHED), 0),
        (("recover", CRASHED, "--dry-run", "--broker-version", "5.5.0"), 3),
        (("rebuild", CLEAN, "--dry-run", "--broker-version", "5.5.0"), 0),
        (("get", CLEAN, "--topic", "none", "--queue-id", "0", "--queue-offset", "0"), 6),
        (("formats",), 0),
        (("--help",), 0),
    ],
)
def test_a_verdict_that_was_reached_keeps_its_code(
    golden: Unpacked, unread: Unread, arguments: tuple[str, ...], code: int
) -> None:
    words = [golden(word) if word in (CRASHED, CLEAN, DAMAGED) else word for word in arguments]
    assert unread(*words)[0] == run_command(*words).code == code


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_check_that_had_not_ended_has_no_verdict(golden: Unpacked, unread: Unread, form: str) -> None:
    assert unread("verify", golden(CRASHED), "--format", form) == (141, "")


@pytest.mark.parametrize("form", ["table", "json", "jsonl"])
def test_nor_has_one_of_several_stores(golden: Unpacked, unread: Unread, form: str) -> None:
    assert unread("verify", golden(CRASHED), golden(CLEAN), "--format", form) == (141, "")


def test_a_process_does_likewise(golden: Unpacked) -> None:
    """With standard error into the closed pipe too, as behind `2>&1 | head -1`."""
    assert unread_process("verify", golden(CRASHED)) == (3, "")
    assert unread_process("verify", golden(CRASHED), "--format", "jsonl", closes_errors=True) == (141, "")
    assert unread_process("verify", golden(CRASHED), "--depth", "none", closes_errors=True) == (2, "")
    assert unread_process("info", ROOT / "no-store", closes_errors=True) == (4, "")


def test_what_only_prints_stops_with_0(golden: Unpacked, unread: Unread) -> None:
    """Though the whole dump would end with 3."""
    arguments = ("dump", golden(DAMAGED), "--format", "jsonl", "--raw", "--hex")
    assert run_command(*arguments).code == 3
    assert unread(*arguments) == (0, "")


def test_a_dump_that_follows_stops(golden: Unpacked, unread: Unread) -> None:
    assert unread("dump", golden(CLEAN), "--follow", "--format", "jsonl") == (0, "")


def test_a_watch_stops_and_was_not_asked_to(golden: Unpacked, unread: Unread) -> None:
    """Without a reader it would go on for ever. The first row is an event, before anything was checked."""
    assert unread("watch", golden(DAMAGED), "--from-start", "--format", "jsonl") == (141, "")


def test_a_watch_with_another_receiver_goes_on(golden: Unpacked, unread: Unread, tmp_path: Path) -> None:
    textfile = tmp_path / "watch.prom"
    watch = "watch", golden("5.5.0-damage-flip-body-middle-file"), "--from-start", "--textfile", textfile
    assert unread(*watch, "--exit-on-finding") == (3, "")
    assert "rmqtool_watch_findings_total" in textfile.read_text()


def test_an_append_appends_all_and_its_code_says_what_it_refused(unread: Unread, tmp_path: Path) -> None:
    rows, topics = tmp_path / "rows.jsonl", ["t"] * 1000 + ["../u"] + ["t"] * 1000
    rows.write_text("".join(json.dumps({"topic": topic, "queue_id": 0, "body": "x"}) + "\n" for topic in topics))
    code, errors = unread("append", tmp_path / "s", "--create", "--from", rows, "--format", "jsonl")
    assert (code, "messages refused: 1" in errors) == (3, True)
    assert run_command("dump", tmp_path / "s", "--topic", "t", "--format", "jsonl").out.count("\n") == 2000


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_repair_with_consent_is_made_whole(golden_copy: Unpacked, unread: Unread, form: str) -> None:
    store = golden_copy(CRASHED)
    before = store_state(store)
    assert unread("recover", store, "--broker-version", "5.5.0", "--yes", "--format", form) == (0, "")
    assert run_command("verify", store).code == 0
    assert unread("undo", store, "--yes") == (0, "")
    assert store_state(store) == before


def test_a_plan_that_nobody_saw_is_not_agreed_to(golden_copy: Unpacked) -> None:
    """The question is asked on the terminal, after a plan that went nowhere."""
    store = golden_copy(CRASHED)
    before = store_state(store)
    terminal, side = os.openpty()
    os.write(terminal, b"y\n" * 3)
    code, errors = unread_process("recover", store, "--broker-version", "5.5.0", stdin=side)
    os.close(terminal)
    os.close(side)
    assert (code, "could not be shown; nothing was changed" in errors) == (5, True)
    assert store_state(store) == before
