"""Units that tell wrong sizes, places or queue offsets of lost records: whatever is whole keeps its queue offset.

The damage lies in the log's first file, where no queue can begin later than at offset 0, or, in the last test, in the
first file that is left, before whose good records only units say with which offset a queue goes on.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.repair.salvage.test_generated_damage import PLAIN
from tests.repair.salvage.trial import Files, Healthy, flaws, healthy, overwrite, salvaged
from tests.repair.salvage.unit_faults import Queues, UnitAt

EDITS = ("size", "place", "shift up", "shift down")
SEEDS = 60
"""Small stores, a twentieth of a second each."""


def _damage_log(dice: random.Random, store: Healthy, files: Files, lengths: tuple[int, ...]) -> list[range]:
    """Noise over ranges of the first file; the physical offsets that it hit."""
    path = store.log_files[0]
    places = [at for at in sorted(store.content.records) if store.file_of(at)[0] == path]
    ranges = []
    for length in lengths:
        position = store.file_of(dice.choice(places))[1] + dice.randrange(200)
        overwrite(files, path, position, length, dice)
        ranges.append(range(position, position + length))
    return ranges


def _claims(queues: Queues, ranges: list[range]) -> list[tuple[list[UnitAt], int]]:
    """The units that tell of what lies in the ranges, as (units of their queue, number among them)."""
    return [
        (units, number)
        for units in queues.queues
        for number, unit in enumerate(units)
        if any(int.from_bytes(queues.raw(unit)[:8], "big") in damaged for damaged in ranges)
    ]


def _edit(dice: random.Random, queues: Queues, units: list[UnitAt], number: int, kind: str) -> None:
    raws = [queues.raw(unit) for unit in units]
    place, size = int.from_bytes(raws[number][:8], "big"), int.from_bytes(raws[number][8:12], "big")
    match kind:
        case "size":
            size = dice.choice((size + 4096, size + 20, max(0, size - 20), 100))
        case "place":
            place = max(0, place + dice.choice((20, -20, 4096, -4096, 1, 300, -300)))
        case "shift up":
            raws = [*raws[:number], *raws[number + 1 :], bytes(units[0].size)]
        case "shift down":
            raws = [*raws[:number], raws[number], *raws[number:-1]]
    if kind in ("size", "place"):
        raws[number] = place.to_bytes(8, "big") + size.to_bytes(4, "big") + raws[number][12:]
    queues.rewrite(units, raws)


def _check(store: Healthy, files: Files, folder: Path) -> None:
    found = salvaged(store.store(files), store.version, folder)
    assert found.made.recovery.damage == ()
    assert flaws(found, store.untouched(files), store.version, folder, fits=()) == []


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", ["tiny", "tiny-inner-batch"])
def test_what_is_whole_keeps_its_queue_offset(tmp_path: Path, name: str, count: int) -> None:
    store = healthy(name, "5.5.0")
    for seed in range(SEEDS):
        dice = random.Random(f"{name} {count} {seed}")
        files = dict(store.files)
        lengths = tuple(dice.choice((300, 1000, 2500)) for _ in range(count))
        claims = _claims(queues := Queues(store, files), _damage_log(dice, store, files, lengths))
        for units, number in dice.sample(claims, min(len(claims), dice.choice((1, 1, 2, 3)))):
            _edit(dice, queues, units, number, dice.choice(EDITS))
        _check(store, files, tmp_path)


@pytest.mark.parametrize("kind", EDITS)
def test_many_lost_records_and_one_wrong_unit(tmp_path: Path, kind: str) -> None:
    store = healthy(PLAIN, "5.5.0")
    dice = random.Random(f"many {kind}")
    files = dict(store.files)
    queues = Queues(store, files)
    overwrite(files, store.log_files[0], 20_000, 9000, dice)
    units, number = dice.choice(_claims(queues, [range(21_000, 25_000)]))
    raw = queues.raw(units[number])
    _edit(dice, queues, units, number, kind)
    if kind == "size":  # over all records after it
        queues.write(units[number], raw[:8] + (4096 + int.from_bytes(raw[8:12], "big")).to_bytes(4, "big") + raw[12:])
    _check(store, files, tmp_path)


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_units_of_the_first_lost_records_only_where_the_log_s_first_file_is_gone(tmp_path: Path, version: str) -> None:
    store = healthy(PLAIN, version)
    files = dict(store.files)
    first, second, *_ = store.log_files
    queues = Queues(store, files)
    overwrite(files, second, 0, 9000, random.Random(version))
    start = int(second.rpartition("/")[2])
    for units, number in _claims(queues, [range(start + 4000, start + 9000)]):
        queues.write(units[number], bytes(units[number].size))
    del files[first]
    _check(store, files, tmp_path)
