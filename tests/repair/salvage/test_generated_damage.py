"""Generated stores of every kind, damaged in every place: what nobody touched is served as before, nothing is left."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.recipe import Recipe, Run
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.fixtures.samples import Samples
from tests.repair.salvage.trial import (
    Files,
    Healthy,
    Salvaged,
    flaws,
    flip,
    healthy,
    lost_standings,
    made,
    overwrite,
    random_damage,
    salvaged,
    without_queues,
)
from tests.verify.stores import above_note, verified

PLAIN: Final = "many-files"
KINDS_OF_STORES: Final = {
    "batch": "4.9.7",
    "inner-batch": "5.5.0",
    "delay": "4.9.7",
    "transaction": "5.5.0",
    "old-transaction": "4.9.7",
    "retry": "5.1.4",
    "ipv6": "5.5.0",
    "v2": "5.5.0",
    "record-crc": "5.5.0",
    "lmq": "5.5.0",
    "cq-ext": "4.9.7",
    "multi-path": "5.1.4",
    "big-bodies": "5.5.0",
    "file-end": "4.9.7",
    "expired-head": "5.5.0",
    "crashed": "5.5.0",
    "crashed-undispatched": "4.9.7",
    "restarted": "5.1.4",
}
SEEDS: Final = 4


def _checked(store: Healthy, files: Files, folder: Path) -> Salvaged:
    """Salvage, and see that all is kept that is known to be intact."""
    intact = store.without_silenced(files, store.untouched(files))
    found = salvaged(store.store(files), store.version, folder)
    assert found.made.recovery.damage == ()
    assert flaws(found, intact, store.version, folder, fits=store.readers) == []
    return found


def _named(found: Salvaged) -> set[tuple[str, int, int]]:
    return {(each.topic_name, each.queue_id, each.queue_offset) for each in found.made.outcome.lost}


def _records_of(store: Healthy, path: str) -> list[int]:
    return [at for at in sorted(store.content.records) if store.file_of(at)[0] == path]


@pytest.mark.parametrize(
    ("file", "has_queues"),
    [
        pytest.param(file, has_queues, id=f"{name}-file-{queues}", marks=marks)
        for file, name in ((0, "first"), (0.5, "middle"), (1, "last"))
        for has_queues, queues, marks in ((True, "", ()), (False, "no-queues", () if file == 0.5 else pytest.mark.slow))
    ],
)
@pytest.mark.parametrize("record", [0, 0.5, 1], ids=["first-record", "middle-record", "last-record"])
@pytest.mark.parametrize("kind", ["flip", "zeros", "head"])
def test_one_record(tmp_path: Path, kind: str, file: float, record: float, *, has_queues: bool) -> None:
    store = healthy(PLAIN, "5.5.0")
    files = dict(store.files)
    paths = store.log_files
    places = _records_of(store, paths[int(file * (len(paths) - 1))])
    at = places[int(record * (len(places) - 1))]
    path, position = store.file_of(at)
    size = len(store.content.records[at])
    if kind == "flip":
        flip(files, path, 8 * (position + 100) + 3)
    else:
        overwrite(files, path, position, size if kind == "zeros" else 30)
    if not has_queues:
        without_queues(files)
    found = _checked(store, files, tmp_path)
    hit = {each[:3] for each in lost_standings(store.content, store.untouched(files))}
    is_end = at == max(store.content.records)
    if has_queues and not (kind == "zeros" and is_end):
        assert _named(found) == (hit if not found.made.outcome.repaired else set())
    assert _named(found) <= hit


def _several(store: Healthy, files: Files) -> None:
    path, position = store.file_of(sorted(store.content.records)[20])
    overwrite(files, path, position + 13, 3000)


def _page(store: Healthy, files: Files) -> None:
    overwrite(files, store.log_files[1], 8192, 4096)


def _pages(store: Healthy, files: Files) -> None:
    for path in store.log_files[:3]:
        overwrite(files, path, 4096, 4096)
        overwrite(files, path, 20480, 4096, random.Random(5))


def _across(store: Healthy, files: Files) -> None:
    overwrite(files, store.log_files[1], 62_000, 65_536)
    overwrite(files, store.log_files[2], 0, 3000)


def _end_of_file(store: Healthy, files: Files) -> None:
    overwrite(files, store.log_files[0], 65_536 - 1500, 1500, random.Random(3))


def _zero_file(store: Healthy, files: Files) -> None:
    overwrite(files, store.log_files[2], 0, 65_536)


def _zero_first_file(store: Healthy, files: Files) -> None:
    overwrite(files, store.log_files[0], 0, 65_536)


def _two_zero_files(store: Healthy, files: Files) -> None:
    for path in store.log_files[1:3]:
        overwrite(files, path, 0, 65_536)


def _missing(store: Healthy, files: Files) -> None:
    del files[store.log_files[2]]


def _two_missing(store: Healthy, files: Files) -> None:
    for path in store.log_files[2:4]:
        del files[path]


def _empty(store: Healthy, files: Files) -> None:
    files[store.log_files[1]] = b""


def _short(store: Healthy, files: Files) -> None:
    files[store.log_files[1]] = files[store.log_files[1]][:30_001]


def _long(store: Healthy, files: Files) -> None:
    files[store.log_files[1]] += random.Random(1).randbytes(777)


def _long_and_damaged(store: Healthy, files: Files) -> None:
    files[store.log_files[1]] += bytes(4096)
    overwrite(files, store.log_files[1], 30_000, 2000)


def _short_and_missing(store: Healthy, files: Files) -> None:
    _short(store, files)
    _missing(store, files)


def _long_last(store: Healthy, files: Files) -> None:
    """The last file too long, and its last record torn: what is behind it goes from the copy as well."""
    path, position = store.file_of(max(store.content.records))
    overwrite(files, path, position + 40, 65_536)
    files[path] += b"x" * 100


def _empty_before_the_end(store: Healthy, files: Files) -> None:
    """An empty file between others, behind which nothing but preallocated space lies."""
    files[store.log_files[-2]] = b""
    overwrite(files, store.log_files[-1], 0, 65_536)


EDITS: Final[dict[str, Callable[[Healthy, Files], None]]] = {
    edit.__name__.strip("_").replace("_", "-"): edit
    for edit in (
        _several, _page, _pages, _across, _end_of_file, _zero_file, _zero_first_file, _two_zero_files, _missing,
        _two_missing, _empty, _short, _long, _long_and_damaged, _short_and_missing, _long_last, _empty_before_the_end,
    )
}  # fmt: skip


@pytest.mark.parametrize(
    ("has_queues", "is_crashed"),
    [
        pytest.param(True, False, id="-"),
        pytest.param(False, True, id="no-queues-abort"),
        pytest.param(True, True, id="-abort", marks=pytest.mark.slow),
        pytest.param(False, False, id="no-queues-", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", EDITS)
def test_more_than_a_record(tmp_path: Path, name: str, *, has_queues: bool, is_crashed: bool) -> None:
    store = healthy(PLAIN, "4.9.7" if is_crashed else "5.5.0")
    files = dict(store.files)
    EDITS[name](store, files)
    if not has_queues:
        without_queues(files)
    if is_crashed:
        files["abort"] = b"4711"
    found = _checked(store, files, tmp_path)
    hit = {each[:3] for each in lost_standings(store.content, store.untouched(files))}
    assert _named(found) <= hit
    assert found.made.outcome.lost or "long" in name or "end" in name


def _megabytes(samples: Samples) -> list[Run]:
    return [Run([samples.message("orders", n % 3, body=bytes([n % 251]) * 7000) for n in range(600)])]


@pytest.mark.parametrize("has_queues", [True, False], ids=["", "no-queues"])
def test_a_hole_of_a_megabyte(tmp_path: Path, *, has_queues: bool) -> None:
    settings = {
        **RECIPES[PLAIN].settings,
        "mappedFileSizeCommitLog": str(2 << 20),
        "mappedFileSizeConsumeQueue": "6000",
    }
    recipe = Recipe(name="megabytes", about="", runs=_megabytes, settings=settings, topics=RECIPES[PLAIN].topics)
    store = made(recipe, "5.5.0")
    files = dict(store.files)
    overwrite(files, store.log_files[1], 500_000, 1 << 20)
    if not has_queues:
        without_queues(files)
    found = _checked(store, files, tmp_path)
    assert _named(found) == {each[:3] for each in lost_standings(store.content, store.untouched(files))}
    assert len(_named(found)) > 140


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", KINDS_OF_STORES)
def test_random_damage(tmp_path: Path, name: str, seed: int) -> None:
    store = healthy(name, KINDS_OF_STORES[name])
    files = dict(store.files)
    random_damage(random.Random(f"{name} {seed}"), store, files)
    _checked(store, files, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.7", "5.1.4", "5.3.3", "5.5.0"])
@pytest.mark.parametrize("name", [*KINDS_OF_STORES, PLAIN, "basic", "compressed"])
def test_much_random_damage(tmp_path: Path, name: str, version: str) -> None:
    if not RECIPES[name].fits(rules_for(version)):
        return
    store = healthy(name, version)
    for seed in range(60):
        files = dict(store.files)
        done = random_damage(random.Random(f"{name} {version} {seed}"), store, files)
        if "commitlog.stale-tail" in above_note(verified(store.store(files), version)[1]):
            # A wild store time right in front of damage makes all behind look like records of an older log.
            assert salvaged(store.store(files), version, tmp_path).made.steps == (), done
            continue
        if not store.untouched(files).records:
            continue  # nothing is left to keep
        try:
            _checked(store, files, tmp_path)
        except Exception as error:
            raise AssertionError(f"{name} of {version}, seed {seed}: {done}") from error


def test_two_damaged_stores_in_one_go_are_no_different(tmp_path: Path) -> None:
    """The plan depends on the store alone: planned twice, it is the same plan."""
    store = healthy(PLAIN, "5.5.0")
    files = dict(store.files)
    _pages(store, files)
    plans = [salvaged(store.store(files), "5.5.0", tmp_path).made.steps for _ in range(2)]
    said = [[(step.path, step.action, step.file_position, step.before, step.after) for step in plan] for plan in plans]
    assert said[0] == said[1]


@pytest.mark.parametrize("number", [5_000, 1 << 45], ids=["far", "absurd"])
def test_a_file_with_a_name_far_ahead_is_not_reached_by_making_all_between(tmp_path: Path, number: int) -> None:
    store = healthy("tiny", "5.5.0")
    files = dict(store.files)
    last = store.log_files[-1]
    files[f"commitlog/{number * 4096:020d}"] = files.pop(last)
    found = salvaged(store.store(files), "5.5.0", tmp_path)
    assert len(found.made.steps) < 50
    assert sum(step.action == "create" for step in found.made.steps) == 0


@pytest.mark.parametrize("number", [140, 1800])
def test_files_that_claim_the_same_offsets_are_left_to_a_person(tmp_path: Path, number: int) -> None:
    """Bridging what a file under a wrong name holds would cut the file whose place it claims."""
    store = healthy("tiny", "5.5.0")
    files = dict(store.files)
    files[f"commitlog/{number:020d}"] = files.pop(store.log_files[1])
    found = salvaged(store.store(files), "5.5.0", tmp_path)
    assert found.made.steps == ()
    assert "commitlog.stray-file" in {each.id for each in found.made.recovery.damage}


def test_a_message_whose_queue_nothing_puts_right_is_served_where_it_says(tmp_path: Path) -> None:
    store = healthy("lmq", "5.1.4")
    files = dict(store.files)
    assert random_damage(random.Random("lmq 5.1.4 11"), store, files)[1] == "head at 10220"
    found = _checked(store, files, tmp_path)
    assert ("orders", 4037120) in found.after.queues


def test_a_store_time_in_front_of_all_others_stands_in_the_index_as_a_broker_would_enter_it(tmp_path: Path) -> None:
    store = healthy("restarted", "5.1.4")
    files = dict(store.files)
    assert "head at 29655" in random_damage(random.Random("restarted 5.1.4 55"), store, files)
    _checked(store, files, tmp_path)
