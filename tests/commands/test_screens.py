"""Every screen fits terminals of 60, 80, 120 and 200 columns; only a command or an id may be longer, to be copied."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

import pytest

from rmqtool.commands.app import run
from rmqtool.report.text import columns_of
from tests.conftest import Unpacked

STORE, DAMAGED, TIMER = "5.5.0-crashed", "5.5.0-damage-zero-hole-abort", "broker-5.5.0-timer"
LONG_NAMES = "broker-5.5.0-mixed-killed"
COMMANDS = [
    ["info", STORE],
    ["info", DAMAGED],
    ["info", TIMER, "--verbose"],
    ["info", LONG_NAMES],
    ["dump", STORE, "--limit", "20"],
    ["dump", DAMAGED, "--from-offset", "226000", "--limit", "5", "--body", "text"],
    ["dump", f"{STORE}/consumequeue", "--limit", "5"],
    ["dump", f"{STORE}/index", "--limit", "9"],
    ["dump", f"{STORE}/checkpoint"],
    ["dump", TIMER, "--type", "timerlog", "--limit", "5"],
    ["get", STORE, "--topic", "TopicTest", "--queue-id", "0", "--queue-offset", "3"],
    ["get", STORE, "--topic", "TopicTest", "--queue-id", "0", "--queue-offset", "3", "--count", "5"],
    ["verify", DAMAGED],
    ["verify", STORE],
    ["forecast", DAMAGED],
    ["forecast", DAMAGED, "--broker-version", "all"],
    ["diff", STORE, DAMAGED],
    ["recover", STORE, "--dry-run"],
    ["recover", DAMAGED, "--dry-run"],
    ["salvage", DAMAGED, "--dry-run"],
    ["rebuild", STORE, "--dry-run"],
    ["undo", STORE, "--list"],
    ["fixture", "list"],
    ["formats"],
    ["formats", "message-v1"],
    ["formats", "checkpoint"],
]


def shown(command: list[str], width: int, zone: str) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        patch.setenv("TZ", zone)
        patch.setenv("NO_COLOR", "1")
        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(io.StringIO()):
            run(command)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_screen_fits(command: list[str], golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {golden(name).parent for name in (STORE, DAMAGED, TIMER, LONG_NAMES)}
    monkeypatch.chdir(folders.pop())
    for width in (60, 80, 120, 200):
        lines = shown(command, width, "Asia/Shanghai")
        assert lines
        too_long = [line for line in lines if columns_of(line) > width and not may_be_longer(line, width)]
        assert too_long == [], (width, too_long)


def may_be_longer(line: str, width: int) -> bool:
    """A command is there to be copied, and a word that is longer than the room beside its name stays whole."""
    words = line.split()
    return "rmqtool " in line or (
        bool(words) and (len(words) <= 2 or line.startswith(" ")) and len(words[-1]) > width - 40
    )
