"""`dump` as a process: a pipe that closes, ^C while following, no color in a pipe, and a first row without waiting."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.conftest import Unpacked
from tests.dump.test_hostile import record

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-m", "rmqtool", "dump"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}


def test_a_closed_pipe_is_no_error(golden: Unpacked) -> None:
    with subprocess.Popen(
        [*COMMAND, golden("5.5.0-clean-basic"), "--format", "jsonl", "--raw", "--hex"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline().startswith(b"{")
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 0


def test_following_ends_on_interrupt(tmp_path: Path) -> None:
    path = tmp_path / "commitlog" / ("0" * 20)
    path.parent.mkdir()
    first = record(b"one")
    path.write_bytes(first + bytes(1000))
    running = subprocess.Popen(
        [*COMMAND, tmp_path, "--follow", "--fields", "physical_offset", "--format", "jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == '{"physical_offset": 0}\n'
    with path.open("r+b") as file:
        file.seek(len(first))
        file.write(record(b"two", at=len(first)))
    assert running.stdout.readline() == f'{{"physical_offset": {len(first)}}}\n'
    time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    out, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert (out, errors) == ("", "rmqtool: interrupted; the store was not changed\n")


def test_a_pipe_gets_no_color_and_a_narrow_terminal_a_whole_table(golden: Unpacked) -> None:
    ran = subprocess.run(
        [*COMMAND, golden("5.5.0-bodies"), "--body", "text"],
        env={**ENVIRONMENT, "COLUMNS": "20"},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert b"\x1b" not in ran.stdout
    assert ran.stdout.startswith(b"physical_offset topic        queue_id queue_offset")
