"""Sectors that the disk does not give: planned over, written again, and taken back as far as they could be read."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UnreadableError
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.fingerprint import fingerprint
from rmqtool.repair.machine.output import apply_to_copy
from rmqtool.repair.machine.plan import Plan
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.machine.undo import undo_latest
from rmqtool.repair.salvage.plan import Salvage, SalvageOptions, plan_salvage
from rmqtool.repair.salvage.replica import Replica
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.conftest import Unpacked
from tests.repair.small_stores import files_of
from tests.verify.stores import above_note, verified

SECTOR = 512
NAME = "5.5.0-damage-base"
LOG = "commitlog/00000000000000065536"
BAD = (8192, 8192 + 3 * SECTOR)


class BadSectors:
    """Reads that touch a bad sector fail with EIO until it has been written, as those of a disk do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._bad: dict[int, set[int]] = {}
        self._read, self._write = os.preadv, os.pwrite
        monkeypatch.setattr(os, "preadv", self.preadv)
        monkeypatch.setattr(os, "pwrite", self.pwrite)

    def add(self, place: Path, start: int, end: int) -> None:
        self._bad.setdefault(place.stat().st_ino, set()).update(range(start // SECTOR, -(-end // SECTOR)))

    def preadv(self, descriptor: int, buffers: Sequence[Any], position: int) -> int:
        self._bad_among(descriptor, position, sum(map(len, buffers)), fails=True)
        return self._read(descriptor, buffers, position)

    def pwrite(self, descriptor: int, data: Any, position: int) -> int:
        for sector in self._bad_among(descriptor, position, len(data), fails=False):
            self._bad[os.fstat(descriptor).st_ino].discard(sector)
        return self._write(descriptor, data, position)

    def _bad_among(self, descriptor: int, position: int, length: int, *, fails: bool) -> list[int]:
        bad = self._bad.get(os.fstat(descriptor).st_ino) if self._bad else None
        found = [each for each in bad or () if position < (each + 1) * SECTOR and each * SECTOR < position + length]
        if found and fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return found


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> BadSectors:
    return BadSectors(monkeypatch)


def _planned(path: Path, staging: Path, *donors: Path) -> Salvage:
    staging.mkdir()
    options = SalvageOptions(replicas=tuple(map(Replica.open, donors)), threads=1)
    return plan_salvage(survey(open_directory(path)), rules_for("5.5.0"), staging, options)


def _plan(path: Path, made: Salvage) -> Plan:
    return Plan("salvage", fingerprint(StorePaths(path)), "5.5.0", made.steps)


def test_what_cannot_be_read_is_bridged_and_taken_back(golden_copy: Unpacked, tmp_path: Path, disk: BadSectors) -> None:
    path = golden_copy(NAME)
    whole, original = (path / LOG).read_bytes(), files_of(path)
    disk.add(path / LOG, *BAD)
    made = _planned(path, tmp_path / "staging")
    assert made.outcome.lost_messages > 0
    assert any("the disk cannot read all" in note for note in made.notes)
    apply_plan(_plan(path, made), StorePaths(path))
    assert above_note(verified(path, "5.5.0")[1]) == {}
    undo_latest(StorePaths(path))
    assert (path / LOG).read_bytes() == whole[: BAD[0]] + bytes(BAD[1] - BAD[0]) + whole[BAD[1] :]
    left = files_of(path)
    assert {name for name in original if left[name] != original[name]} == {LOG}
    assert left[LOG]._replace(digest="") == original[LOG]._replace(digest="")


def test_a_donor_gives_what_the_disk_does_not(
    golden: Unpacked, golden_copy: Unpacked, tmp_path: Path, disk: BadSectors
) -> None:
    path = golden_copy(NAME)
    whole = (path / LOG).read_bytes()
    disk.add(path / LOG, *BAD)
    made = _planned(path, tmp_path / "staging", golden(NAME))
    assert made.outcome.lost == []
    apply_plan(_plan(path, made), StorePaths(path))
    assert (path / LOG).read_bytes() == whole


def test_a_copy_has_what_can_be_read(golden_copy: Unpacked, tmp_path: Path, disk: BadSectors) -> None:
    path = golden_copy(NAME)
    original = files_of(path)
    disk.add(path / LOG, *BAD)
    made = _planned(path, tmp_path / "staging")
    copy = apply_to_copy(_plan(path, made), StorePaths(path), tmp_path / "copy")
    assert above_note(verified(copy.root, "5.5.0")[1]) == {}
    disk._bad.clear()
    assert files_of(path) == original


def test_a_file_that_no_step_answers_for_is_not_copied_with_zeros(
    golden_copy: Unpacked, tmp_path: Path, disk: BadSectors
) -> None:
    path = golden_copy(NAME)
    raw = bytearray((path / LOG).read_bytes())
    raw[9000] ^= 1
    (path / LOG).write_bytes(raw)
    made = _planned(path, tmp_path / "staging")
    plan = _plan(path, made)
    untouched = path / "config/topics.json"
    untouched.parent.mkdir(exist_ok=True)
    untouched.write_text("{}")
    disk.add(untouched, 0, SECTOR)
    plan = Plan("salvage", fingerprint(StorePaths(path)), "5.5.0", made.steps)
    with pytest.raises(UnreadableError):
        apply_to_copy(plan, StorePaths(path), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_too_long_file_with_bad_sectors(golden_copy: Unpacked, tmp_path: Path, disk: BadSectors) -> None:
    path = golden_copy(NAME)
    (path / LOG).write_bytes((path / LOG).read_bytes() + bytes(100))
    disk.add(path / LOG, *BAD)
    made = _planned(path, tmp_path / "staging")
    apply_plan(_plan(path, made), StorePaths(path))
    assert above_note(verified(path, "5.5.0")[1]) == {}
    undo_latest(StorePaths(path))
    assert (path / LOG).stat().st_size == 65_636


@pytest.mark.parametrize("start", [0, 65_536 - SECTOR])
def test_the_first_and_the_last_sector_of_a_file(
    golden_copy: Unpacked, tmp_path: Path, disk: BadSectors, start: int
) -> None:
    path = golden_copy(NAME)
    disk.add(path / LOG, start, start + SECTOR)
    made = _planned(path, tmp_path / "staging")
    apply_plan(_plan(path, made), StorePaths(path))
    assert above_note(verified(path, "5.5.0")[1]) == {}
