"""Every kind of damage in every healthy store that can hold it: verify finds what the catalogue promises, nothing else.

What is promised has to be found at the damage. Beside it stands only what `CONSEQUENCES` explains, and each of those
explanations has to be needed somewhere in the matrix. `make test` touches each kind of damage once; the whole matrix
is slow.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UsageError
from rmqtool.findings.finding import Finding, Severity
from rmqtool.findings.registry import BY_ID
from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import Damage, damage_store
from rmqtool.fixtures.damages.edit import Change
from rmqtool.fixtures.damages.side_effects import CONSEQUENCES, PROMISED_INSTEAD, SHOWN_UNHARMED
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipe_expectation import Expectation, checked
from rmqtool.fixtures.recipes import RECIPES
from tests.broker.files import copy_store

VERSIONS: Final = ("4.9.7", "5.5.0")
STORES: Final = [
    (version, name) for version in VERSIONS for name, recipe in RECIPES.items() if recipe.fits(rules_for(version))
]
PAIRS_MIN: Final = 3000
"""Pairs that the matrix has at least: a kind of damage that suddenly finds no place is missed."""

_LEADS_THERE: Final = "what is gone is known only by the units that lead there, and said where they stand"
_BEHIND_BLANK: Final = "the blank itself is sound; what leads behind it tells that it is in the wrong place"
_QUEUE_OF_RECORD: Final = "said of the queue"
ELSEWHERE: Final = {
    ("compaction-lost", "compaction.missing-message"): "said of the directory that is gone",
    ("log-blank-inside", "consumequeue.dangling-unit"): _BEHIND_BLANK,
    ("log-blank-inside", "index.dangling-entry"): _BEHIND_BLANK,
    ("log-properties-zeroed", "index.bad-entry"): "said of the entries that were made from the properties",
    ("log-first-file-missing", "consumequeue.below-log"): _LEADS_THERE,
    ("log-last-file-missing", "consumequeue.ahead-of-log"): _LEADS_THERE,
    ("log-last-file-zero", "consumequeue.ahead-of-log"): _LEADS_THERE,
    ("log-gone", "consumequeue.ahead-of-log"): _LEADS_THERE,
    ("log-middle-file-missing", "commitlog.missing-file"): "of a log on two disks nothing says which one had the file",
    ("log-queue-offset-repeated", "commitlog.queue-offset-repeated"): "said at the record that had the offset first",
    ("log-resurrected-tail", "commitlog.resurrected-tail"): "said of the old records after the one that was written",
    ("checkpoint-zero", "index.would-be-dropped"): "said of the index file",
    ("timer-slot-moved", "timer.unreachable-unit"): "said of the units that no slot leads to",
    ("timer-slot-ahead", "timer.slot-ahead-of-log"): "said of the timer log, after whose end it leads",
    ("timer-record-expired", "timer.expired-record"): "said of the units that lead there",
    ("transaction-operation-odd", "transaction.bad-operation"): _QUEUE_OF_RECORD,
    ("transaction-operation-ahead", "transaction.operation-ahead"): _QUEUE_OF_RECORD,
    ("transaction-operation-lost", "transaction.committed-half"): _QUEUE_OF_RECORD,
    ("transaction-half-expired", "transaction.expired-half"): _QUEUE_OF_RECORD,
    ("pop-record-odd", "pop.bad-record"): _QUEUE_OF_RECORD,
    ("pop-message-expired", "pop.expired-message"): _QUEUE_OF_RECORD,
    ("batch-topic-forgotten", "config.batch-queue-without-topic"): _QUEUE_OF_RECORD,
    ("topic-forgotten", "config.queue-without-topic"): "said of the queue",
    ("topic-without-queue", "topic.may-be-deleted"): "said at the first record of the topic",
    ("topic-deleted", "topic.deleted"): "said at the first record that waits for its file to expire",
    ("extension-broken", "consumequeue.bad-extension"): "said of the unit whose extension it is",
    ("extension-file-missing", "consumequeue.bad-extension"): "said of the unit whose extension it is",
}
"""Promises that are not kept where bytes were changed, and where they are."""


@dataclass(frozen=True)
class Pair:
    """A store with one kind of damage; `promise` is None where the store has no place for it."""

    version: str
    recipe: str
    damage: str
    promise: Expectation | None
    changes: Sequence[Change] = ()

    def mismatches(self) -> Iterator[str]:
        """What is not as promised."""
        if self.promise is None:
            return
        label = f"{self.damage} in {self.recipe} of {self.version}"
        if self.promise.missing:
            yield f"{label}: not found {self.promise.missing}, but {self.promise.counts}"
        if self.promise.unexpected:
            yield f"{label}: not promised {self.promise.unexpected}"
        for name in sorted(self.promise.promised - SHOWN_UNHARMED.get(self.recipe, frozenset())):
            found = [each for each in self.promise.findings if each.id == name]
            if found and (self.damage, name) not in ELSEWHERE and not any(map(self._is_at_damage, found)):
                yield f"{label}: {name} is found elsewhere, at {[(each.file, each.file_position) for each in found]}"

    def _is_at_damage(self, finding: Finding) -> bool:
        return any(_meets(finding, change) for change in self.changes)


def _meets(finding: Finding, change: Change) -> bool:
    """Whether a finding is about the file that was changed, or a directory around it; of the log: about its bytes."""
    found, changed = finding.file.rstrip("/"), change.file
    if found != changed:
        return found.startswith(changed + "/") or changed.startswith(found + "/")
    if change.action != "patch" or finding.file_position is None or not found.startswith("commitlog"):
        return True
    begin, length = change.file_position or 0, change.length or 0
    # A torn record ends in front of the zeros that should be the rest of it.
    return finding.file_position < begin + length and begin <= finding.file_position + (finding.length or 0)


class Stores:
    """Makes each healthy store once, and damages copies of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows: dict[tuple[str, str], list[Pair]] = {}

    def healthy(self, version: str, recipe: str) -> Path:
        """The store, not to be changed."""
        path = self._folder / version / recipe
        if not path.exists():
            make_store(RECIPES[recipe], path, version)
        return path

    def pair(self, version: str, recipe: str, damage: Damage) -> Pair:
        """One damaged copy, and what a check finds in it."""
        target = copy_store(self.healthy(version, recipe), self._folder / "damaged")
        try:
            changes = damage_store(damage, target, 0, RECIPES[recipe].conf.settings())
            return Pair(version, recipe, damage.name, checked(target, RECIPES[recipe], version, [damage]), changes)
        except UsageError as error:
            if "this damage needs" not in str(error):
                raise
            return Pair(version, recipe, damage.name, None)
        finally:
            shutil.rmtree(target)

    def row(self, version: str, recipe: str) -> list[Pair]:
        """A store with every kind of damage in turn."""
        key = version, recipe
        if key not in self._rows:
            self._rows[key] = [self.pair(version, recipe, damage) for damage in DAMAGES.values()]
            shutil.rmtree(self.healthy(version, recipe))
        return self._rows[key]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("matrix"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name.startswith("rocksdb-") else ()) for name in DAMAGES]
)
def test_each_damage_once(stores: Stores, name: str) -> None:
    """In the recipe that shows it best, of either version in turn."""
    damage = DAMAGES[name]
    held = [version for version in VERSIONS if (version, damage.recipes[0]) in STORES]
    pair = stores.pair(held[list(DAMAGES).index(name) % len(held)], damage.recipes[0], damage)
    assert pair.promise is not None, "its own recipe has no place for it"
    assert list(pair.mismatches()) == []


def test_the_declarations_name_what_exists() -> None:
    named = {name for name, _ in (*ELSEWHERE, *PROMISED_INSTEAD)}
    assert CONSEQUENCES.keys() | named <= DAMAGES.keys()
    assert SHOWN_UNHARMED.keys() | {recipe for _, recipe in PROMISED_INSTEAD} <= RECIPES.keys()
    assert {each for found in CONSEQUENCES.values() for each in found} <= BY_ID.keys()
    for name, found in CONSEQUENCES.items():
        assert not found.keys() & set(DAMAGES[name].findings), f"{name}: promised, so not a consequence"
    for name, each in ELSEWHERE:
        assert each in DAMAGES[name].findings


@pytest.mark.slow
@pytest.mark.parametrize(("version", "recipe"), STORES)
def test_a_healthy_store_has_no_finding_above_note(tmp_path: Path, version: str, recipe: str) -> None:
    """But for what a kill leaves in the stores that tell of one, and there exactly that."""
    make_store(RECIPES[recipe], tmp_path / "store", version)
    found = checked(tmp_path / "store", RECIPES[recipe], version, [])
    above_note = {each.id for each in found.findings if each.severity is not Severity.NOTE}
    assert above_note == SHOWN_UNHARMED.get(recipe, frozenset()), found.counts


@pytest.mark.slow
@pytest.mark.parametrize(("version", "recipe"), STORES)
def test_every_damage(stores: Stores, version: str, recipe: str) -> None:
    assert [text for pair in stores.row(version, recipe) for text in pair.mismatches()] == []


@pytest.mark.slow
def test_the_matrix_is_large_and_needs_every_declaration(stores: Stores) -> None:
    pairs = [pair for store in STORES for pair in stores.row(*store)]
    held = [(pair, pair.promise) for pair in pairs if pair.promise is not None]
    assert len(held) >= PAIRS_MIN
    assert {(pair.damage, pair.recipe) for pair, _ in held} >= {
        (name, recipe) for name, damage in DAMAGES.items() for recipe in damage.recipes
    }
    met = {(pair.damage, name) for pair, promise in held for name in promise.counts}
    declared = {(damage, name) for damage, found in CONSEQUENCES.items() for name in found}
    assert declared - met == set()
    astray = {
        (pair.damage, each.id) for pair, promise in held for each in promise.findings if not pair._is_at_damage(each)
    }
    assert ELSEWHERE.keys() - astray == set()
