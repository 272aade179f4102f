"""Whatever is wrong with the units of queues, records that are whole stay as they are, and are served as before."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqtool.findings.finding import Severity
from tests.repair.salvage.standing import astray, gone
from tests.repair.salvage.test_generated_damage import KINDS_OF_STORES, PLAIN
from tests.repair.salvage.trial import Healthy, flaws, healthy, overwrite, salvaged
from tests.repair.salvage.unit_faults import UNIT_FAULTS, Queues, faults_at, unit_fault
from tests.verify.stores import verified

OFTEN = {PLAIN: "5.5.0", "tiny": "5.5.0", "tiny-lmq": "5.5.0", "tiny-inner-batch": "5.5.0", "expired-head": "5.5.0"}
STORES = [
    pytest.param(name, version, marks=() if name in OFTEN else pytest.mark.slow)
    for name, version in {**KINDS_OF_STORES, **OFTEN}.items()
]


def _check(store: Healthy, files: dict[str, bytes], folder: Path) -> None:
    """See that verify blames the queues only, and that a salvage builds them from the log and leaves that alone."""
    blamed = {
        each.id
        for each in verified(store.store(files), store.version)[1]
        if each.id.startswith("commitlog.") and each.severity is not Severity.NOTE
    }
    assert blamed == set()
    found = salvaged(store.store(files), store.version, folder)
    assert gone(store.content, found.content) == []
    assert not found.made.outcome.repaired
    assert flaws(found, store.content, store.version, folder, fits=store.readers) == []


@pytest.mark.parametrize("kind", UNIT_FAULTS)
@pytest.mark.parametrize(("name", "version"), STORES)
def test_wrong_units_change_no_record(tmp_path: Path, name: str, version: str, kind: str) -> None:
    store = healthy(name, version)
    files = dict(store.files)
    unit_fault(random.Random(f"{name} {kind}"), store, files, kind)
    _check(store, files, tmp_path)


@pytest.mark.parametrize("distance", [1, 2, 3, 4, 5, 9, 17])
def test_two_swapped_units_are_the_queue_s_fault_however_far_apart(tmp_path: Path, distance: int) -> None:
    store = healthy(PLAIN, "4.9.7")
    files = dict(store.files)
    queues = Queues(store, files)
    for units in queues.queues:
        at = random.Random(distance).randrange(len(units) - distance)
        queues.swap(units[at], units[at + distance])
    _check(store, files, tmp_path)


def _check_holes(name: str, seed: int, count: int, folder: Path, *, is_all: bool = True) -> None:
    """Damage the log in a few places, and units that point there; all queues have to keep their offsets.

    Args:
        is_all: those of lost records too, for which there may be no room where their units say they lie.
    """
    dice = random.Random(f"{name} {seed}")
    store = healthy(name, "5.5.0")
    files = dict(store.files)
    holes: list[tuple[int, int]] = []
    for _ in range(count):
        at = dice.choice(sorted(store.content.records))
        path, position = store.file_of(at)
        length = dice.choice((2000, 4000, 9000) if count == 1 else (300, 1000, 2500))
        overwrite(files, path, position + dice.randrange(200), length, dice)
        holes.append((at, at + length))
    faults = faults_at(dice, store, files, holes)
    intact = store.without_silenced(files, store.untouched(files))
    found = salvaged(store.store(files), store.version, folder)
    assert found.made.recovery.damage == (), (holes, faults)
    assert gone(intact, found.content) == [], (holes, faults)
    assert astray(intact, found.after) == [], (holes, faults)
    assert not is_all or flaws(found, intact, store.version, folder, fits=()) == [], (holes, faults)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", ["tiny-lmq", "tiny"])
def test_wrong_units_of_lost_records_move_no_message(tmp_path: Path, name: str, count: int, seed: int) -> None:
    _check_holes(name, seed, count, tmp_path)


def test_a_light_queue_with_two_units_of_one_lost_record(tmp_path: Path) -> None:
    """Only light units tell of the record, two of one queue: it takes one queue offset there."""
    store = healthy("tiny-lmq", "5.5.0")
    files = dict(store.files)
    overwrite(files, store.log_files[0], 398, 2000, random.Random(1))
    queues = Queues(store, files)
    named, _, own = queues.queues
    queues.rewrite(named[4:], [queues.raw(unit) for unit in named[3:-1]])
    queues.rewrite(own[3:], [*(queues.raw(unit) for unit in own[4:]), bytes(20)])
    intact = store.without_silenced(files, store.untouched(files))
    salvage = salvaged(store.store(files), store.version, tmp_path)
    assert flaws(salvage, intact, store.version, tmp_path, fits=()) == []


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["tiny-lmq", "tiny"])
def test_wrong_units_of_lost_records_move_no_message_in_many_stores(tmp_path: Path, name: str, count: int) -> None:
    for seed in range(100, 300):
        _check_holes(name, seed, count, tmp_path, is_all=False)
