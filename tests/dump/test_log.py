"""Rows of the log: backwards as forwards, whatever the reader, and a file that changes meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqtool.dump.log import LogDump
from rmqtool.dump.request import Request
from rmqtool.dump.target import TargetOptions, find_target
from rmqtool.engine.rules.versions import NEWEST
from rmqtool.report.rows import DumpRow, single_rows
from rmqtool.store.location import StoreLocation
from tests.dump.test_hostile import log_file, record


def opened(log: Path, *, compiled: bool | None = None, **asked: Any) -> LogDump:
    return LogDump(
        find_target(StoreLocation(log), TargetOptions()), Request(**asked, broker_version=NEWEST), compiled=compiled
    )


def rows_of(dump: LogDump) -> list[DumpRow]:
    return list(single_rows(dump.rows()))


def damaged_log(folder: Path) -> Path:
    """Two runs of good records around bytes that are none."""
    content = b""
    for number in range(1200):
        if number == 700:
            content += b"\xee" * 333
        content += record(
            b"%d" % number, properties=b"TAGS\x01T%d\x02KEYS\x01a k%d\x02" % (number % 5, number), at=len(content)
        )
    return log_file(folder, content)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("asked", [{}, {"tag": "T3"}, {"key": "k900"}, {"key": "nothing"}, {"from_offset": 50_000}])
def test_backwards_are_the_same_rows(tmp_path: Path, asked: dict[str, Any], *, compiled: bool) -> None:
    log = damaged_log(tmp_path)
    forward, backward = opened(log, compiled=compiled, **asked), opened(log, compiled=compiled, reverse=True, **asked)
    rows = rows_of(forward)
    assert rows_of(backward) == rows[::-1]
    assert forward.bad_ranges == backward.bad_ranges == sum(row["type"] == "bad" for row in rows) == 1
    asked_for = {
        "tag": lambda row: row["tags"] == "T3",
        "key": lambda row: asked["key"] in row["keys"],
        "from_offset": lambda row: row["physical_offset"] >= 50_000,
    }
    everything = rows_of(opened(log, compiled=compiled))
    keep = asked_for[next(iter(asked))] if asked else lambda _row: True
    assert rows == [row for row in everything if row["type"] == "bad" or keep(row)]


def test_a_file_that_changes_between_two_looks_is_a_bad_range(tmp_path: Path) -> None:
    log = damaged_log(tmp_path)
    whole = rows_of(opened(log))
    dump = opened(log, reverse=True)
    rows = dump.rows()
    shown = list(single_rows([next(rows)]))
    with log.open("r+b") as file:
        file.seek(whole[3]["physical_offset"] + 90)
        file.write(b"\xff\xff\xff\xff")
    shown += single_rows(rows)
    assert "changed while it was read" in dump.problems[0]
    assert "commitlog.unreadable-range" in {row["finding"] for row in shown}
    assert all(row in whole for row in shown if row["type"] == "message")
