"""`verify` as a process: beside a broker that runs, on a terminal, into a closed pipe, and stopped with ^C."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-m", "rmqtool", "verify"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "TERM": "xterm"}
HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("ready", flush=True)
sys.stdin.read()
"""
SLOW = """
import sys, time
from rmqtool.commands.app import run
from rmqtool.verify.match import split_check
true_check = split_check.check_split
def slow(*arguments):
    time.sleep(0.4)
    return true_check(*arguments)
split_check.check_split = slow
sys.exit(run(sys.argv[1:]))
"""
"""The command with a disk that needs its time."""


@contextmanager
def broker_on(store: Path) -> Iterator[None]:
    """Another process holds the lock that a running broker holds."""
    (store / "lock").touch()
    command = [sys.executable, "-c", HOLDER, str(store / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            running.communicate("")


BESIDE_A_BROKER = "rmqtool: warning: commitlog: not checked, a broker is writing to the end of the log\n"


def rows_of(store: Path, *options: str, warning: str = "") -> tuple[int, list[dict[str, Any]]]:
    ran = subprocess.run(
        [*COMMAND, store, "--format", "jsonl", *options],
        env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ran.stderr == warning
    return ran.returncode, [json.loads(line) for line in ran.stdout.splitlines()]


def test_beside_a_running_broker_the_moving_edge_is_no_damage(golden_copy: Unpacked) -> None:
    store = golden_copy("5.5.0-crashed")
    alone = rows_of(store)[1]
    with broker_on(store), assert_store_unchanged(store):
        _, rows = rows_of(store, warning=BESIDE_A_BROKER)
    ids = [row["id"] for row in rows[:-1]]
    assert ids.count("store.lock-held") == 1
    assert "consumequeue.behind-log" in [row["id"] for row in alone[:-1]]
    assert set(ids) <= {"store.lock-held", "index.would-be-dropped"}
    assert not rows[-1]["complete"]
    assert 0 < rows[-1]["left_out_bytes"] < 65536
    assert 0 < rows[-1]["checked"]["records"] < alone[-1]["checked"]["records"]


def test_beside_a_running_broker_damage_is_still_found(golden_copy: Unpacked) -> None:
    store = golden_copy("5.5.0-damage-flip-body-middle-file")
    with broker_on(store), assert_store_unchanged(store):
        code, rows = rows_of(store, warning=BESIDE_A_BROKER)
    assert code == 3
    assert [row["id"] for row in rows[:-1]].count("commitlog.body-crc-mismatch") == 1


def test_a_store_without_the_lock_says_nothing_of_one(golden: Unpacked) -> None:
    assert rows_of(golden("5.5.0-clean-basic")) == (0, [rows_of(golden("5.5.0-clean-basic"))[1][-1]])


def on_terminal(*arguments: object) -> tuple[bytes, bytes]:
    """Standard output through a pipe, and what a terminal gets as standard error."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", SLOW, "verify", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=ENVIRONMENT) as running:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            shown += part
        assert running.stdout is not None
        out = running.stdout.read()
    os.close(ours)
    assert running.returncode == 0
    return out, shown


def test_a_bar_is_shown_on_a_terminal_only(golden: Unpacked) -> None:
    store = golden("5.5.0-clean-basic")
    out, shown = on_terminal(store, "--format", "jsonl", "--threads", "1")
    assert b"verify" in shown
    assert b"KiB" in shown
    assert json.loads(out)["type"] == "summary"
    out, shown = on_terminal(store, "--format", "jsonl", "--threads", "1", "--quiet")
    assert shown == b""
    assert json.loads(out)["type"] == "summary"


@pytest.mark.parametrize("threads", ["1", "2"])
def test_an_interrupt_ends_it_and_what_is_done_stays_done(golden: Unpacked, tmp_path: Path, threads: str) -> None:
    store, state = golden("5.5.0-many-no-checkpoint-abort"), tmp_path / "state.json"
    options = [str(store), "--format", "jsonl", "--state", str(state), "--threads", threads]
    with (
        assert_store_unchanged(store),
        subprocess.Popen(
            [sys.executable, "-c", SLOW, "verify", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, text=True,
        ) as running,
    ):  # fmt: skip
        while not state.exists():
            assert running.poll() is None
            time.sleep(0.02)
        asked = time.monotonic()
        running.send_signal(signal.SIGINT)
        out, errors = running.communicate(timeout=60)
    assert running.returncode == 130, errors
    assert errors == (
        f"rmqtool: interrupted; the store was not changed; {state} has what was checked: run the same command again to "
        "continue\n"
    )
    assert "summary" not in out
    done = json.loads(state.read_text("utf-8"))["done"]
    count = len(list((store / "commitlog").iterdir()))
    assert 0 < len(done) < count
    assert time.monotonic() - asked < 0.4 * count / 2, "the rest was checked all the same"
    assert rows_of(store, "--state", str(state))[1] == rows_of(store)[1]


def test_a_closed_pipe_is_no_error_and_no_verdict(golden: Unpacked) -> None:
    with subprocess.Popen(
        [*COMMAND, golden("5.5.0-crashed"), "--format", "jsonl"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline().startswith(b"{")
        running.stdout.close()
        assert running.stderr.read() == b""
    # All of the findings may have been written before the pipe was closed.
    assert running.returncode in (3, 141)


def test_an_ascii_terminal_gets_valid_json(golden_copy: Unpacked) -> None:
    store = golden_copy("5.5.0-clean-basic")
    (store / "commitlog" / "é🚀").touch()
    for form in ("json", "jsonl"):
        ran = subprocess.run(
            [*COMMAND, store, "--format", form],
            env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"}, capture_output=True, check=False, timeout=120,
        )  # fmt: skip
        assert ran.returncode == 3
        text = ran.stdout.decode("ascii").splitlines()[0] if form == "jsonl" else ran.stdout.decode("ascii")
        assert "é🚀" in json.dumps(json.loads(text), ensure_ascii=False)
