"""Units of queues are compared by compiled code where they agree; what is wrong is found all the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.stores import write_store
from rmqtool.engine.rules.versions import rules_for
from rmqtool.findings.finding import Finding
from rmqtool.formats.consumequeue import EXTENSION_ADDRESS_BASE, UNIT, UNIT_SIZE
from rmqtool.scan.compiled import load_kernel
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from rmqtool.verify.match.queue_match import QueueMatch
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey import queue_map
from rmqtool.verify.survey.context import VerifyOptions

RULES = rules_for("5.5.0")
QUEUE = "consumequeue/TopicTest1/2"
INSIDE = 100
"""A place far from where the queue begins or ends."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("units") / "store"
    write_store(root, 8_000, 100, 1 << 20, index_slot_count=1000, index_entry_count=30_000)
    return root


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "store")
    load_kernel()  # so that the compiled comparison does the work
    return tmp_path / "store"


def checked(store: Path) -> list[Finding]:
    findings: list[Finding] = []
    verify_store(survey(open_directory(store)), RULES, VerifyOptions(compiled=True), findings.append)
    return findings


def change(store: Path, field: str, value: Callable[[int], int]) -> None:
    """Change a field of a unit."""
    (file,) = (store / QUEUE).iterdir()
    place, size = INSIDE * UNIT_SIZE + UNIT.position(field), 4 if field == "record_size" else 8
    with file.open("r+b") as opened:
        opened.seek(place)
        number = value(int.from_bytes(opened.read(size), "big", signed=True))
        opened.seek(place)
        opened.write(number.to_bytes(size, "big", signed=True))


def move(store: Path) -> None:
    """Put a unit where the next one is."""
    (file,) = (store / QUEUE).iterdir()
    with file.open("r+b") as opened:
        opened.seek(INSIDE * UNIT_SIZE)
        unit = opened.read(UNIT_SIZE)
        opened.write(unit)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "nothing": lambda _: None,
    "a place": lambda store: change(store, "physical_offset", lambda value: value + 1),
    "a size": lambda store: change(store, "record_size", lambda value: value + 1),
    "a tags code": lambda store: change(store, "tags_code", lambda value: value ^ 1),
    "high bits of a tags code": lambda store: change(store, "tags_code", lambda value: value ^ 1 << 40),
    "an address": lambda store: change(store, "tags_code", lambda _: EXTENSION_ADDRESS_BASE),
    "a unit twice": move,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_compiled_code_tells_what_arrays_tell(
    store: Path, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = checked(store)
    damage(store)
    compiled = checked(store)
    monkeypatch.setattr(queue_map, "is_worth", lambda *_: False)
    assert compiled == checked(store)
    assert (compiled == clean) is (damage is DAMAGES["nothing"])


def test_units_that_agree_are_not_looked_at_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Any] = []
    monkeypatch.setattr(QueueMatch, "_compare", lambda *arguments: compared.append(arguments))
    monkeypatch.setattr("rmqtool.verify.match.queue_match._equal", lambda *arguments: compared.append(arguments))
    checked(store)
    assert compared == []
