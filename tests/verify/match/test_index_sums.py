"""Index entries are compared by keyed sums where a file was read already: what is wrong is found all the same."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.stores import write_store
from rmqtool.engine.rules.versions import rules_for
from rmqtool.findings.finding import Finding
from rmqtool.formats.index import ENTRY, ENTRY_SIZE, entry_position
from rmqtool.scan.compiled import load_kernel
from rmqtool.store.directory import survey
from rmqtool.store.source import FileSource
from rmqtool.store.view import open_directory
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import VerifyOptions
from rmqtool.verify.survey.index_map import IndexMap
from rmqtool.verify.survey.queue_map import OffsetRuns

RULES = rules_for("5.5.0")
SLOTS = 5_000_000
MESSAGE_COUNT, ENTRIES_EACH = 20_000, 3
INSIDE = 30_000
"""Number of an entry far from where a chunk begins or ends."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sums") / "store"
    write_store(root, MESSAGE_COUNT, 100, 4 << 20)
    return root


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Path:
    """A copy, with its holes."""
    subprocess.run(["cp", "-a", "--sparse=always", original, tmp_path / "store"], check=True)
    load_kernel()  # so that the compiled comparison does the work
    return tmp_path / "store"


def checked(store: Path) -> list[Finding]:
    findings: list[Finding] = []
    verify_store(survey(open_directory(store)), RULES, VerifyOptions(compiled=True), findings.append)
    return findings


def add_to(store: Path, field: str, number: int, amount: int) -> None:
    """Change a field of an entry by an amount."""
    (file,) = (store / "index").iterdir()
    place = entry_position(number, SLOTS) + ENTRY.position(field)
    size = 8 if field == "physical_offset" else 4
    with file.open("r+b") as opened:
        opened.seek(place)
        value = int.from_bytes(opened.read(size), "big", signed=True) + amount
        opened.seek(place)
        opened.write(value.to_bytes(size, "big", signed=True))


def exchange(store: Path, number: int) -> None:
    """Let an entry and the one three behind it change places, but for their chains."""
    (file,) = (store / "index").iterdir()
    with file.open("r+b") as opened:
        parts = []
        for each in (number, number + ENTRIES_EACH):
            opened.seek(entry_position(each, SLOTS))
            parts.append(opened.read(ENTRY_SIZE))
        for each, part in zip((number + ENTRIES_EACH, number), parts, strict=True):
            opened.seek(entry_position(each, SLOTS))
            opened.write(part)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "nothing": lambda _: None,
    "a time": lambda store: add_to(store, "time_delta_seconds", INSIDE, 1),
    "a hash in the same slot": lambda store: add_to(store, "key_hash", INSIDE, SLOTS),
    "a place": lambda store: add_to(store, "physical_offset", INSIDE, 1),
    "two that changed places": lambda store: exchange(store, INSIDE),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_sums_tell_what_reading_again_tells(
    store: Path, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = checked(store)
    damage(store)
    by_sums = checked(store)
    monkeypatch.setattr(OffsetRuns, "inner", lambda *_: None)
    assert by_sums == checked(store)
    assert (by_sums == clean) is (damage is DAMAGES["nothing"])


def test_entries_are_read_once(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    read_into = FileSource.read_into

    def counted(self: FileSource, position: int, buffer: memoryview) -> int:
        count = read_into(self, position, buffer)
        if self.name.startswith("index/") and position >= entry_position(0, SLOTS):
            sizes.append(count)
        return count

    monkeypatch.setattr(FileSource, "read_into", counted)
    checked(store)
    entries = MESSAGE_COUNT * ENTRIES_EACH * ENTRY_SIZE
    assert entries < sum(sizes) < 1.5 * entries + (2 << 20), "but for where chunks begin and end, and the file's end"


def test_a_sum_is_asked_for(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    has_sum = IndexMap.has_sum

    def noted(self: IndexMap, *arguments: Any) -> bool:
        asked.append(arguments)
        return has_sum(self, *arguments)

    monkeypatch.setattr(IndexMap, "has_sum", noted)
    checked(store)
    assert asked
