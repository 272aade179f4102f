"""What was seen of a store is recalled while its files stay the same, and changes nothing that verify says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.stores import write_store
from rmqtool.engine.queues.loaded_files import LoadedFiles, UnitsSummary, valid_units_question
from rmqtool.engine.queues.unit import PLAIN, PLAIN_UNITS
from rmqtool.engine.rules.versions import rules_for
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.findings.finding import Finding
from rmqtool.scan.row_cache import RowCache
from rmqtool.store.directory import survey
from rmqtool.store.source import FileSource
from rmqtool.store.view import open_directory
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import VerifyOptions

RULES = rules_for("5.5.0")
FILE_SIZE = 1 << 20


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("recall") / "store"
    write_store(root, 3000, 700, FILE_SIZE)
    return root


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Path:
    """A copy, with its holes."""
    subprocess.run(["cp", "-a", "--sparse=always", original, tmp_path / "store"], check=True)
    return tmp_path / "store"


@pytest.fixture
def paths_read(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Bytes read by path."""
    read_into, sizes = FileSource.read_into, dict[str, int]()

    def counted(self: FileSource, position: int, buffer: memoryview) -> int:
        count = read_into(self, position, buffer)
        sizes[self.name] = sizes.get(self.name, 0) + count
        return count

    monkeypatch.setattr(FileSource, "read_into", counted)
    return sizes


def checked(store: Path, cache: RowCache | None = None) -> tuple[list[Finding], dict[str, Any]]:
    findings: list[Finding] = []
    summary = verify_store(survey(open_directory(store)), RULES, VerifyOptions(cache=cache), findings.append)
    return findings, replace(summary, seconds=0).as_json()


def zeros(path: Path, position: int, count: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(bytes(count))


def first_of(store: Path, folder: str) -> Path:
    return min(path for path in (store / folder).rglob("*") if path.is_file())


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 20)


CHANGES: dict[str, Callable[[Path], None]] = {
    "a unit": lambda store: zeros(first_of(store, "consumequeue"), 400, 20),
    "a queue file's length": lambda store: cut_off(first_of(store, "consumequeue")),
    "an entry": lambda store: zeros(first_of(store, "index"), 40 + 5_000_000 * 4 + 20 * 50, 20),
    "a record": lambda store: zeros(first_of(store, "commitlog"), 40_000, 300),
    "a queue file that is gone": lambda store: first_of(store, "consumequeue").unlink(),
    "a log file that is gone": lambda store: first_of(store, "commitlog").unlink(),
}


@pytest.mark.parametrize("before", [None, *CHANGES.values()], ids=["nothing", *CHANGES])
def test_a_second_look_reads_little_and_says_the_same(
    store: Path, paths_read: dict[str, int], before: Callable[[Path], None] | None
) -> None:
    if before is not None:
        before(store)
    expected = checked(store)
    with RowCache() as cache:
        assert checked(store, cache) == expected
        paths_read.clear()
        assert checked(store, cache) == expected
    derived = {path: size for path, size in paths_read.items() if path.startswith(("consumequeue", "index"))}
    assert sum(derived.values()) < (3 << 20), "what tells the sizes is looked at, and where a new record could go"


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changed_is_looked_at_again(store: Path, change: Callable[[Path], None]) -> None:
    with RowCache() as cache:
        clean = checked(store, cache)
        change(store)
        findings = checked(store, cache)
    assert findings == checked(store)
    assert findings != clean


@pytest.mark.parametrize(
    ("position", "written", "size"),
    [
        (0, b"", None),
        (0, bytes(20), None),
        (50 * 20, bytes(20), None),
        (50 * 20, b"\xff" * 8, None),
        (50 * 20 + 8, b"\x80", None),
        (50 * 20, bytes(8), None),
        (0, b"", 50 * 20 + 7),
        (0, b"", 0),
    ],
)
def test_a_check_notes_of_a_queue_file_what_a_start_reads_of_it(
    store: Path, position: int, written: bytes, size: int | None
) -> None:
    path = min((store / "consumequeue").rglob("0" * 20))
    with path.open("r+b") as file:
        file.seek(position)
        file.write(written)
        file.truncate(size if size is not None else path.stat().st_size)
    cache, view = RowCache(), open_directory(store)
    checked(store, cache)
    surveyed, count = survey(view), 0
    with OpenFiles(view) as files:
        for queue in surveyed.queues.values():
            loaded = LoadedFiles(queue.segments, surveyed.consumequeue_file_size, PLAIN_UNITS, files)
            question = valid_units_question(loaded.file_size, loaded.kind)
            for segment in queue.segments:
                units: list[tuple[int, ...]] = []
                length = loaded.valid_length(
                    segment, on_units=lambda raw, units=units: units.extend(PLAIN.iter_unpack(raw))
                )
                edges = (units[0][0], *units[-1][:2]) if units else (0, 0, 0)
                summary = UnitsSummary(length, max((unit[0] for unit in units), default=-1), *edges)
                with closing(view.open(segment.path)) as source:
                    note = cache.notes.get((source.identity, question))
                assert note == (summary.packed() if segment.size else None)
                count += 1
    assert count > 1
