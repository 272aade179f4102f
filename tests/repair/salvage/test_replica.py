"""Other copies of the log: what they hold fills the damage byte for byte, and nothing foreign does."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import NotAStoreError, UnreadableError
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.repair.machine.plan import view_over
from rmqtool.repair.salvage.plan import Salvage, SalvageOptions, plan_salvage
from rmqtool.repair.salvage.replica import Replica
from rmqtool.store.directory import survey
from rmqtool.store.source import read_range
from rmqtool.store.view import open_directory

SIZE = 65_536
VERSION = "5.5.0"
NAME = "many-files"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A healthy store, not to be changed."""
    root = tmp_path_factory.mktemp("whole") / "store"
    make_store(RECIPES[NAME], root, VERSION)
    return root


@pytest.fixture
def broken(whole: Path, tmp_path: Path) -> Path:
    """A copy with a hole, noise across a file's end, and a file that is gone."""
    root = tmp_path / "broken"
    shutil.copytree(whole, root)
    damage(root, 0, 20_000, 5000)
    damage(root, 2, 60_000, SIZE)
    damage(root, 3, 0, 2000)
    (root / log(5)).unlink()
    return root


def log(number: int) -> str:
    return f"commitlog/{number * SIZE:020d}"


def damage(root: Path, number: int, start: int, length: int, *, noise: bool = False) -> None:
    place = root / log(number)
    raw = place.read_bytes()
    length = min(length, len(raw) - start)
    filler = random.Random(3).randbytes(length) if noise else bytes(length)
    place.write_bytes(raw[:start] + filler + raw[start + length :])


def planned(root: Path, folder: Path, *donors: Path) -> Salvage:
    staging = folder / "staging"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    options = SalvageOptions(replicas=tuple(map(Replica.open, donors)), threads=1)
    return plan_salvage(
        survey(open_directory(root), RECIPES[NAME].conf.settings()), rules_for(VERSION), staging, options
    )


def log_after(root: Path, made: Salvage) -> dict[str, bytes]:
    assert made.recovery.damage == ()
    view = view_over(open_directory(root), made.steps)
    found = {}
    for entry in view.list("commitlog"):
        source = view.open(entry.path)
        found[entry.path] = read_range(source, 0, entry.size)
        source.close()
    return found


def log_of(root: Path) -> dict[str, bytes]:
    return {f"commitlog/{place.name}": place.read_bytes() for place in sorted((root / "commitlog").iterdir())}


@pytest.mark.parametrize("what", ["store", "directory", "files"])
def test_the_log_is_the_donors(whole: Path, broken: Path, tmp_path: Path, what: str) -> None:
    donors = {
        "store": [whole],
        "directory": [whole / "commitlog"],
        "files": sorted((whole / "commitlog").iterdir()),
    }[what]
    made = planned(broken, tmp_path, *donors)
    assert log_after(broken, made) == log_of(whole)
    assert made.outcome.lost == []
    assert made.outcome.unknown_bytes == 0


@pytest.mark.parametrize("has_queues", [True, False])
def test_with_the_queues_gone_as_well(whole: Path, broken: Path, tmp_path: Path, *, has_queues: bool) -> None:
    if not has_queues:
        shutil.rmtree(broken / "consumequeue")
    made = planned(broken, tmp_path, whole)
    assert log_after(broken, made) == log_of(whole)


def test_a_file_under_any_name(whole: Path, broken: Path, tmp_path: Path) -> None:
    backup = tmp_path / "commitlog-backup.bin"
    shutil.copy(whole / log(2), backup)
    found = log_after(broken, planned(broken, tmp_path, backup))
    assert found[log(2)] == (whole / log(2)).read_bytes()
    assert found[log(0)] != (whole / log(0)).read_bytes()


@pytest.mark.parametrize("keep", [61_000, 63_500, 60_001])
def test_a_donor_that_ends_earlier_gives_what_it_has(whole: Path, broken: Path, tmp_path: Path, keep: int) -> None:
    backup = tmp_path / f"{2 * SIZE:020d}"
    backup.write_bytes((whole / log(2)).read_bytes()[:keep])
    all_lost = planned(broken, tmp_path).outcome.lost_messages
    made = planned(broken, tmp_path, backup)
    given = made.outcome.replica_bytes
    (start,) = (each.start - each.file_start for each in made.outcome.ranges if each.path == log(2))
    assert log_after(broken, made)[log(2)][: start + given] == (whole / log(2)).read_bytes()[: start + given]
    assert made.outcome.lost_messages <= all_lost
    assert keep < 61_000 or (given > 0 and made.outcome.lost_messages < all_lost)


def test_two_donors_that_are_damaged_elsewhere(whole: Path, broken: Path, tmp_path: Path) -> None:
    donors = [tmp_path / "one", tmp_path / "two"]
    for donor in donors:
        shutil.copytree(whole, donor)
    damage(donors[0], 0, 20_000, 2500, noise=True)
    damage(donors[0], 5, 0, SIZE // 2)
    damage(donors[1], 0, 23_500, 1500)
    damage(donors[1], 5, SIZE // 2, SIZE // 2, noise=True)
    found = log_after(broken, planned(broken, tmp_path, *donors))
    assert found[log(2)] == (whole / log(2)).read_bytes()
    assert found[log(0)] == (whole / log(0)).read_bytes()


def test_a_donor_that_is_damaged_in_part_leaves_the_rest_to_tombstones(
    whole: Path, broken: Path, tmp_path: Path
) -> None:
    donor = tmp_path / "donor"
    shutil.copytree(whole, donor)
    damage(donor, 0, 21_000, 700)
    made = planned(broken, tmp_path, donor)
    alone = planned(broken, tmp_path).outcome.lost_messages
    assert 0 < made.outcome.lost_messages < alone


def test_another_log_gives_nothing(broken: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    make_store(RECIPES[NAME], other, VERSION, seed=5)
    alone, made = planned(broken, tmp_path), planned(broken, tmp_path, other)
    # A whole file that is missing has no neighbours in its own file; those of the files around it tell.
    assert made.outcome.replica_bytes == 0
    assert any("another commit log" in note for note in made.notes)
    assert made.outcome.lost_messages == alone.outcome.lost_messages


def test_a_file_of_another_size_is_the_same_log(whole: Path, broken: Path, tmp_path: Path) -> None:
    """Half a file, which begins where its first record says."""
    raw = (whole / log(0)).read_bytes()
    view = survey(open_directory(whole), RECIPES[NAME].conf.settings())
    assert view.commitlog_file_size == SIZE
    at = next(position for position in range(15_000, 20_000) if raw[position + 4 : position + 8] == b"\xda\xa3\x20\xa7")
    part = tmp_path / "part"
    part.write_bytes(raw[at:40_000])
    made = planned(broken, tmp_path, part)
    assert log_after(broken, made)[log(0)] == raw


@pytest.mark.parametrize("content", [b"", b"x", b"not a log at all" * 100, bytes(4096)])
def test_what_is_no_log_is_refused(tmp_path: Path, content: bytes) -> None:
    place = tmp_path / "file"
    place.write_bytes(content)
    with pytest.raises(NotAStoreError):
        Replica.open(place)


def test_what_is_not_there_or_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError):
        Replica.open(tmp_path / "nowhere")
    with pytest.raises(NotAStoreError):
        Replica.open(tmp_path)
