"""A tiered store in files: a sound one has no finding, and each damage has its own, whatever the metadata says."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.store.config.tiered import METADATA
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from rmqtool.verify.run import verify_store
from tests.conftest import Unpacked
from tests.tiered_store import add_tiered

NAME = "5.5.0-clean-basic"
COUNT = 8


def verified(path: Path) -> tuple[set[str], list[tuple[str, str]]]:
    """What was not looked at, and the findings about the tiered store; nothing of it is too deep to be read."""
    rows = []
    summary = verify_store(survey(open_directory(path)), rules_for("5.5.0"), None, rows.append)
    left_out = {f"{files.path}: {files.reason}" for files in summary.not_looked_at}
    assert not [row for row in rows if row.id == "store.unreadable"]
    return left_out, [(row.id, row.file) for row in rows if row.id.startswith("tiered.")]


@pytest.fixture
def store(golden_copy: Unpacked) -> tuple[Path, list[str]]:
    path = golden_copy(NAME)
    return path, add_tiered(path, COUNT)


def test_a_sound_one_is_looked_at_and_has_no_finding(store: tuple[Path, list[str]]) -> None:
    assert verified(store[0]) == (set(), [])
    (store[0] / "tiered_index_file").mkdir()
    (store[0] / "tiered_index_file" / "1700000000000").write_bytes(b"index")
    assert verified(store[0])[0] == {"tiered_index_file: the index of the tiered store is not decoded"}


def test_each_damage_is_found(store: tuple[Path, list[str]]) -> None:
    path, (first, second, queue) = store
    content = {name: (path / name).read_bytes() for name in (first, second, queue)}
    (path / second).unlink()
    assert verified(path)[1] == [("tiered.missing-segment", second)]
    (path / second).write_bytes(content[second][:-5])
    assert set(verified(path)[1]) == {
        ("tiered.wrong-unit", queue), ("tiered.bad-record", second), ("tiered.short-segment", second),
    }  # fmt: skip
    (path / second).write_bytes(content[second] + bytes(12) + b"later")
    (path / queue).write_bytes(content[queue][:20] + bytes(20) + content[queue][40:60])
    assert set(verified(path)[1]) == {
        ("tiered.bad-record", second), ("tiered.wrong-unit", queue), ("tiered.short-segment", queue),
    }  # fmt: skip
    (path / METADATA).write_text('{"commitLogFileSegmentTable":')
    assert verified(path)[1] == [("tiered.metadata-broken", METADATA)]


def test_segments_elsewhere_are_named(store: tuple[Path, list[str]], tmp_path: Path) -> None:
    (store[0] / "tiered").rename(tmp_path / "tiered")
    left_out, findings = verified(store[0])
    assert findings == []
    assert left_out == {f"{METADATA}: the segments of the tiered store are not in the store's directory"}


def names_outside(value: dict[str, dict[str, object]]) -> None:
    for table in value.values():
        table["../../../../etc"] = table["/etc/passwd"] = table.pop("broker-a/tiered/0")


def huge_numbers(value: dict[str, dict[str, object]]) -> None:
    for table in value.values():
        table["broker-a/tiered/0"] = {"9" * 30: {"size": 1}, "-5": {"size": 2}, "7": {"size": "x"}, "8": 9}


def other_types(value: dict[str, dict[str, object]]) -> None:
    value["commitLogFileSegmentTable"] = [1]  # type: ignore[assignment]
    value["consumeQueueFileSegmentTable"] = {"a": 5}


@pytest.mark.parametrize("edit", [names_outside, huge_numbers, other_types])
def test_metadata_that_no_broker_writes_leads_nowhere(
    store: tuple[Path, list[str]], edit: Callable[[dict[str, dict[str, object]]], None]
) -> None:
    value = json.loads((store[0] / METADATA).read_text())
    edit(value)
    (store[0] / METADATA).write_text(json.dumps(value))
    assert verified(store[0])[1] == []


def test_random_damage_is_findings(store: tuple[Path, list[str]]) -> None:
    path, names = store
    chance = random.Random(3)
    for name in names:
        whole = (path / name).read_bytes()
        for _ in range(4):
            content = bytearray(whole)
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            (path / name).write_bytes(content)
            assert all(kind in ("tiered.bad-record", "tiered.wrong-unit") for kind, _ in verified(path)[1])
        (path / name).write_bytes(whole)
