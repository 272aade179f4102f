"""What stands in a store does not reach the terminal as it is, and a huge store costs no more than a small one."""

from __future__ import annotations

import json
import os
import pty
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.terabyte import terabyte_store
from rmqtool.commands.reading.browse import require_textual
from rmqtool.errors import UnsupportedError
from rmqtool.store.source import READS
from tests.browse.screens import WIDE, Driver, browse
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

EVIL = "\x1b]0;owned\x07\x1b[2J[bold red]x[/] \u202eabc[@click=app.quit]q[/]\x9b31m"


def test_escapes_and_markup_of_messages_are_text(tmp_path: Path) -> None:
    row = {"topic": "orders", "body": EVIL, "tags": EVIL, "properties": {"KEYS": EVIL, "TAGS": EVIL, EVIL: EVIL}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    ran = rmqtool("append", tmp_path / "store", "--create", "--from", tmp_path / "rows.jsonl")
    assert ran.code == 0, ran.err

    async def drive(driver: Driver) -> None:
        screen = await driver.press("down", "down", "enter")
        assert "\\x1b]0;owned" in screen  # and screen_of looks at every character
        screen = await driver.press("enter")
        assert "[bold red]x[/]" in screen
        screen += await driver.press("end")
        assert "\\u202e" in screen
        await driver.press("escape", "k")
        assert "no message with [bold]" in await driver.type("[bold]")
        await driver.press("f", "r", "escape")
        assert driver.app.is_running

    browse(tmp_path / "store", drive, WIDE)


def test_a_topic_with_markup_in_its_name_is_text(golden_copy: Unpacked) -> None:
    store = golden_copy("5.5.0-clean-basic")
    (store / "consumequeue" / "Audit").rename(store / "consumequeue" / "[red]\x1b[31m[")

    async def drive(driver: Driver) -> None:
        screen = await driver.press("down", "down", "down", "enter", "end", "enter", "enter")
        assert "[red]\\x1b[31m[" in await driver.press("escape") + screen

    browse(store, drive, WIDE)


@pytest.fixture(scope="module")
def terabyte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A terabyte of log, and a queue of 900 million units, most of them never written."""
    root = tmp_path_factory.mktemp("huge") / "store"
    terabyte_store(root, topics=1, queues=1)
    folder = root / "consumequeue" / "huge" / "0"
    folder.mkdir(parents=True)
    start = 999 << 30
    with (root / "commitlog" / f"{start:020d}").open("rb") as log:
        size = int.from_bytes(log.read(4), "big")
    full = struct.pack(">qiq", start, size, 0) * 300_000
    for number in range(3000):
        with (folder / f"{number * 6_000_000:020d}").open("wb") as file:
            if number >= 2997:
                file.write(full[: len(full) if number < 2999 else 2000])
            file.truncate(6_000_000)
    return root


def test_a_terabyte_is_scrolled_by_reading_next_to_nothing(terabyte: Path) -> None:
    async def drive(driver: Driver) -> None:
        before = READS.byte_count
        driver.app.open_queue(("huge", 0))
        await driver.settle()
        await driver.press("tab")
        screen = await driver.press("end")
        assert "899,700,100 of 899,700,100 messages" in screen
        assert "899700099" in screen
        assert "gap: zeros" in await driver.press("home")
        await driver.press("o")
        assert "899699999" in await driver.type("899699999")
        for _ in range(20):
            await driver.press("pagedown")
        await driver.press("enter", "escape")
        assert READS.byte_count - before < 16 << 20

    browse(terabyte, drive)


def test_a_file_of_the_log_is_shown_without_reading_it(terabyte: Path) -> None:
    async def drive(driver: Driver) -> None:
        before = READS.byte_count
        screen = await driver.press("enter", "down", "enter")
        assert "(blank to the end of the file)" in screen
        await driver.press("end", "pagedown")
        assert READS.byte_count - before < 4 << 20

    browse(terabyte, drive)


def test_queues_that_cannot_be_read_are_named(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtool.store.databases.rocksdb.is_installed", lambda: False)

    async def drive(driver: Driver) -> None:
        assert "not all is shown: consume queues in RocksDB: install rmqtool[rocksdb]" in await driver.press()

    browse(golden("5.5.0-rocksdb-cq"), drive)


def test_without_textual_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtool.commands.reading.browse.find_spec", lambda _name: None)
    with pytest.raises(UnsupportedError, match=r"pip install '\.\[tui\]'\)") as caught:
        require_textual()
    assert caught.value.exit_code == 4


def test_a_pipe_is_refused_in_one_line(golden: Unpacked) -> None:
    ran = rmqtool("browse", golden("5.5.0-clean-basic"))
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.splitlines() == [
        "rmqtool: browse needs a terminal; dump, get and verify write to pipes and files",
    ]


def test_a_terminal_without_a_name_is_told_what_to_set(golden: Unpacked) -> None:
    ours, terminal = pty.openpty()
    try:
        command = [sys.executable, "-m", "rmqtool", "browse", str(golden("5.5.0-clean-basic"))]
        environ = {name: value for name, value in os.environ.items() if name != "TERM"}
        ran = subprocess.run(
            command, check=False, stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, env=environ, timeout=600
        )
    finally:
        os.close(ours)
        os.close(terminal)
    assert (ran.returncode, ran.stderr.splitlines()) == (
        4,
        [b"rmqtool: TERM does not name a terminal that can show screens; try: TERM=xterm rmqtool browse ..."],
    )
