"""No piece of a customer's text leaves in a bundle, wherever damage has written it, and in whatever encoding."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqtool.evidence.plausible import BOUNDS
from rmqtool.formats.catalog import FORMATS
from tests import golden_stores
from tests.commands.transcripts import rmqtool
from tests.evidence.canaries import DAMAGES, Tape, covered, leaks_of, places_in, plant

STORES = (
    "5.5.0-cq-ext", "broker-5.5.0-timer", "broker-5.5.0-pop", "broker-5.5.0-compaction", "broker-5.5.0-batchcq",
    "5.5.0-rocksdb-cq", "4.9.7-properties", "broker-4.9.7-dledger", "5.5.0-damage-zero-hole-abort",
)  # fmt: skip
NOT_COPIED = {
    "message-v2", "blank", "batch-part", "timerlog-blank", "offset-message-id", "client-unique-key",
    "replication-report", "replication-transfer",
}  # fmt: skip
"""Parts of what is copied, under the bounds of another format, and what no file holds."""
PLANTED_AT_ONCE = 6


def test_every_declared_format_of_which_a_bundle_has_units_has_bounds() -> None:
    names = {declared.name for declared in FORMATS if not declared.name.startswith(("rocksdb-", "dledger-"))}
    assert names - NOT_COPIED == set(BOUNDS) == covered()
    assert len({name for name, _ in DAMAGES}) == 50
    for declared in FORMATS:
        if declared.name in BOUNDS:
            fixed = {field.name for field in declared.fixed_fields}
            assert fixed == set(BOUNDS[declared.name]), declared.name


@pytest.mark.parametrize("seed", range(18))
def test_no_text_that_damage_wrote_anywhere_is_in_the_bundle(seed: int, tmp_path: Path) -> None:
    assert leaks_after(seed, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_no_text_is_in_any_of_a_thousand_bundles(block: int, tmp_path: Path) -> None:
    leaked = {seed: leaks_after(seed, tmp_path / str(seed)) for seed in range(100 + block * 50, 150 + block * 50)}
    assert {seed: found for seed, found in leaked.items() if found} == {}


def leaks_after(seed: int, folder: Path) -> list[object]:
    """Damage a store in places of its own, make its bundle, and look into it."""
    pick, tape = random.Random(seed), Tape.of(seed)
    folder.mkdir(exist_ok=True)
    store = golden_stores.unpack(STORES[seed % len(STORES)], folder)
    planted = []
    for place in pick.choices(places_in(store, pick), k=PLANTED_AT_ONCE):
        damage = pick.choice(DAMAGES)
        planted.append(
            (place.path.relative_to(store).as_posix(), place.declared, damage[0], *plant(place, damage, tape, pick))
        )
    options = pick.choice([[], ["--hide-names"], ["--max-size", "1"]])
    ran = rmqtool("evidence", store, "--output", folder / "bundle", *options)
    assert ran.code == 0, (ran.err, planted)
    found = leaks_of(tape, folder / "bundle")
    return [found, options, *planted] if found else []


def test_the_scanner_finds_a_tape_in_a_bundle_with_bodies(tmp_path: Path) -> None:
    tape = Tape.of(0)
    store = golden_stores.unpack("5.5.0-cq-ext", tmp_path)
    with (store / f"commitlog/{0:020d}").open("r+b") as file:
        file.seek(300)
        file.write(tape.raw)
    assert rmqtool("evidence", store, "--output", tmp_path / "bundle", "--with-bodies").code == 0
    assert len(leaks_of(tape, tmp_path / "bundle")) > len(tape.raw) / 2
