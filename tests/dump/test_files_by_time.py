"""`dump --from-time` and `--to-time` read the log files of that time only, and miss nothing where a time is damaged."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from rmqtool.dump.follow import LogFollower
from rmqtool.dump.log import LogDump
from rmqtool.dump.request import Request
from rmqtool.dump.target import TargetOptions, find_target
from rmqtool.engine.rules.versions import NEWEST
from rmqtool.report.rows import single_rows
from rmqtool.store.location import StoreLocation
from rmqtool.store.source import ByteSource
from rmqtool.store.view import DirectoryView
from tests.commands.transcripts import rmqtool
from tests.dump.test_hostile import record

FILES, RECORDS, SIZE = 20, 50, 16_384
HOUR = 3_600_000
BEGAN = 1_700_000_000_000


def stored_ms(file: int, number: int) -> int:
    """Each file spans ten hours."""
    return BEGAN + file * 10 * HOUR + number * HOUR // 10


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    for file in range(FILES):
        content = b""
        for number in range(RECORDS):
            content += record(bytes(100), at=file * SIZE + len(content), stored_ms=stored_ms(file, number))
        rest = SIZE - len(content)
        content += rest.to_bytes(4, "big") + (-875286124).to_bytes(4, "big", signed=True)
        (folder / f"{file * SIZE:020d}").write_bytes(content.ljust(SIZE, b"\0"))
    return folder


@dataclass(frozen=True)
class CountedView:
    """A directory that counts the bytes that are read of each file."""

    view: DirectoryView
    read: dict[str, int] = field(default_factory=dict)

    def open(self, path: str) -> ByteSource:
        return CountedSource(self.view.open(path), self.read)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.view, name)


@dataclass
class CountedSource:
    source: ByteSource
    read: dict[str, int]

    def read_into(self, position: int, buffer: memoryview) -> int:
        count = self.source.read_into(position, buffer)
        name = self.source.name.rpartition("/")[2]
        self.read[name] = self.read.get(name, 0) + count
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)


def dumped(log: Path, **asked: Any) -> tuple[list[int], set[int], int]:
    """Physical offsets of the messages, numbers of the files that were read beyond their first record, bytes read."""
    target = find_target(StoreLocation(log), TargetOptions())
    view = CountedView(target.view)  # type: ignore[arg-type]
    dump = LogDump(replace(target, view=view), Request(**asked, broker_version=NEWEST))  # type: ignore[arg-type]
    offsets = [row["physical_offset"] for row in single_rows(dump.rows()) if row["type"] == "message"]
    files = {int(name) // SIZE for name, count in view.read.items() if count > 5000}
    return offsets, files, sum(view.read.values())


def expected(log: Path, from_ms: int, to_ms: int) -> list[int]:
    size = len(record(bytes(100)))
    return [
        file * SIZE + number * size
        for file in range(FILES)
        for number in range(RECORDS)
        if from_ms <= stored_ms(file, number) < to_ms
    ]


def test_only_the_files_of_the_time_are_read(log: Path) -> None:
    from_ms, to_ms = stored_ms(10, 20), stored_ms(11, 7)
    everything = dumped(log)
    assert len(everything[0]) == FILES * RECORDS
    for reverse in (False, True):
        offsets, files, count = dumped(log, from_ms=from_ms, to_ms=to_ms, reverse=reverse)
        assert offsets == expected(log, from_ms, to_ms)[:: -1 if reverse else 1]
        assert files == {10, 11, 19}, "the time of the last file's first record is not confirmed by a next one"
        assert count < everything[2] / 3
    offsets, files, _ = dumped(log, from_ms=stored_ms(18, 0))
    assert offsets == expected(log, stored_ms(18, 0), 1 << 62)
    assert files == {17, 18, 19}, "the file before counts too: a clock may have been set back by an hour"


def test_a_clock_that_was_set_back_hides_nothing(log: Path) -> None:
    from_ms = stored_ms(10, 20)
    # Files 12 to 14 were written by a clock that was a day behind.
    for file in (12, 13, 14):
        path = log / f"{file * SIZE:020d}"
        content = path.read_bytes()
        for number in range(RECORDS):
            content = content.replace(
                stored_ms(file, number).to_bytes(8, "big"), (stored_ms(file, number) - 24 * HOUR).to_bytes(8, "big")
            )
        path.write_bytes(content)
    offsets, files, _ = dumped(log, from_ms=from_ms)
    rows = [offset for offset in dumped(log)[0] if offset // SIZE not in (12, 13, 14)]
    late = [offset for offset in rows if offset >= expected(log, from_ms, 1 << 62)[0]]
    assert [offset for offset in offsets if offset // SIZE not in (12, 13, 14)] == late
    assert {11, 14, 15}.issubset(files)


@pytest.mark.parametrize("damage", ["magic", "early", "late", "zeros"])
def test_a_damaged_first_record_leaves_out_neither_its_file_nor_the_one_before(log: Path, damage: str) -> None:
    from_ms, to_ms = stored_ms(9, 20), stored_ms(10, 30)
    path = log / f"{10 * SIZE:020d}"
    content = path.read_bytes()
    size = len(record(bytes(100)))
    first_ms = stored_ms(10, 0).to_bytes(8, "big")
    times = {"early": (5).to_bytes(8, "big"), "late": ((1 << 62) + 5).to_bytes(8, "big")}
    if damage in times:
        content = content.replace(first_ms, times[damage])
    else:
        content = (b"\xee" * 8 if damage == "magic" else bytes(size)) + content[8 if damage == "magic" else size :]
    path.write_bytes(content)
    offsets, files, _ = dumped(log, from_ms=from_ms, to_ms=to_ms)
    assert offsets == [at for at in expected(log, from_ms, to_ms) if at != 10 * SIZE]
    assert files >= {9, 10}
    assert len(files) <= 4


def test_following_starts_at_the_files_of_the_time(log: Path) -> None:
    target = find_target(StoreLocation(log), TargetOptions())
    view = CountedView(target.view)  # type: ignore[arg-type]
    ask = Request(follow=True, from_ms=stored_ms(19, 20), broker_version=NEWEST)
    dump = LogFollower(replace(target, view=view), ask)  # type: ignore[arg-type]
    offsets = []
    for row in single_rows(iter(dump.rows().__next__, None)):
        offsets.append(row["physical_offset"])
        if len(offsets) == RECORDS - 20:
            break
    assert offsets == expected(log, stored_ms(19, 20), 1 << 62)
    assert {int(name) // SIZE for name, count in view.read.items() if count > 5000} <= {18, 19}


def test_a_missing_file_outside_of_the_time_is_no_row(log: Path) -> None:
    (log / f"{5 * SIZE:020d}").unlink()
    assert rmqtool("dump", log).code == 3
    assert rmqtool("dump", log, "--from-time", stored_ms(10, 0)).code == 0
    assert rmqtool("dump", log, "--from-time", stored_ms(5, 9)).code == 3
