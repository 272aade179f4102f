"""In a pipe nothing is left out or cropped; on a terminal columns go by its width."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Unpacked

PROGRAM = [sys.executable, "-m", "rmqtool"]
PLAIN = {name: value for name, value in os.environ.items() if name != "COLUMNS"}


def piped(*arguments: object) -> str:
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.run(command, env=PLAIN, capture_output=True, text=True, check=False, timeout=120).stdout


def on_terminal(columns: int, *arguments: object) -> str:
    """What a terminal of so many columns gets."""
    reader, writer = pty.openpty()
    try:
        subprocess.run(["stty", "cols", str(columns), "rows", "40"], stdin=writer, check=True)
        command = [*PROGRAM, *map(str, arguments)]
        process = subprocess.Popen(command, stdout=writer, stderr=subprocess.DEVNULL, env={**PLAIN, "NO_COLOR": "1"})
        os.close(writer)
        text = b""
        while True:
            try:
                part = os.read(reader, 65536)
            except OSError:  # Linux says so where the other end is closed
                break
            text += part
            if not part:
                break
        process.wait(60)
    finally:
        os.close(reader)
    return text.decode().replace("\r\n", "\n")


@pytest.fixture
def wide(golden_copy: Unpacked) -> Path:
    """A store with a topic of a long name, and more topics than a screen lists."""
    store = golden_copy("5.5.0-crashed")
    for number in range(20):
        queue = store / "consumequeue" / f"Topic{number:02d}-{'x' * 80}" / "0"
        queue.mkdir(parents=True)
        (queue / ("0" * 20)).write_bytes(bytes(600))
    return store


def test_a_pipe_gets_all_and_a_terminal_what_fits(golden: Unpacked) -> None:
    store = golden("5.5.0-clean-basic")
    rows = json.loads(piped("dump", store, "--format", "json", "--limit", "30"))
    text = piped("dump", store, "--limit", "30")
    for row in rows:
        for field in ("topic", "unique_key", "message_id", "born_host", "tags"):
            assert row[field] is None or row[field] in text
    for columns in (60, 80, 120, 200):
        lines = on_terminal(columns, "dump", store, "--limit", "30").splitlines()
        assert max(map(len, lines)) <= columns
        assert len(lines) == 31
        assert ("keys" in lines[0]) == (columns >= 120)


def test_info_lists_every_topic_in_a_pipe(wide: Path) -> None:
    in_pipe, on_screen = piped("info", wide), on_terminal(80, "info", wide)
    for number in range(20):
        assert f"Topic{number:02d}-{'x' * 80}" in in_pipe
    assert "…" not in in_pipe
    assert "more topics (--verbose shows all)" in on_screen
    assert max(len(line) for line in on_screen.splitlines()[1:] if "rmqtool " not in line) <= 80


def test_forecasts_side_by_side_keep_all_columns_in_a_pipe(golden: Unpacked) -> None:
    arguments = ("forecast", golden("5.5.0-crashed"), "--broker-version", "all")
    assert "Log end" in piped(*arguments)
    narrow = on_terminal(60, *arguments)
    assert "Log end" not in narrow
    assert "Damage" in narrow
    assert max(len(line) for line in narrow.splitlines() if "rmqtool" not in line) <= 60
