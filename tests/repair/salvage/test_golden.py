"""Every damaged or crashed store of a real broker, salvaged: what was intact is served, nothing is left to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from rmqtool.engine.rules.versions import EXAMINED, rules_for
from rmqtool.errors import UnsupportedError
from rmqtool.forecast.forecast import forecast_store
from rmqtool.forecast.options import ForecastOptions
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.fingerprint import fingerprint
from rmqtool.repair.machine.plan import Plan
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.machine.undo import undo_latest
from rmqtool.repair.salvage.record_repair import RepairedRecord
from rmqtool.store.directory import Store
from tests import golden_stores
from tests.conftest import Unpacked
from tests.repair.golden_repairs import options_of, rules_of, store_of
from tests.repair.salvage.standing import Standing, astray, content_of, gone
from tests.repair.salvage.trial import Salvaged, salvaged
from tests.repair.small_stores import files_of
from tests.store_state import assert_store_unchanged
from tests.verify.test_golden import damage_of

REMAINS = {
    "commitlog.resurrected-tail": "the records are sound, and a person decides",
    "commitlog.store-time-regress": "a clock that was set back or a flipped bit: nothing tells which time is right",
    "commitlog.stray-file": "a directory is no file, and is not removed",
    "commitlog.torn-record": "a replica's last record, cut inside its properties: brokers serve it, so it is kept",
}
"""Findings that a salvage leaves, and why."""
HAS_REMAINS = ("flip-store-timestamp", "log-stray-directory", "slave-middle", "stale-tail")
"""Stores that have such findings afterwards, by a part of the name."""
NO_LOG = ("log-dir-empty", "log-dir-missing")
READ_BY_ALL = frozenset(EXAMINED)
OLD_BROKERS = {"ipv6": {"4.4.0"}, "multi-path": {"4.4.0"}, "inner-batch": {"4.4.0", "4.9.8"}, "v2": {"4.4.0", "4.9.8"}}
"""Stores that older brokers cannot read, damaged or not."""


def _names() -> list[ParameterSet]:
    """Damaged and crashed stores; of the log's own damage those of the newest version in each run."""
    names = [*golden_stores.damaged_names(), *golden_stores.crashed_names()]
    routine = ("blank", "cq-ahead-abort", "flip", "many-flip", "missing-final", "size-", "wrong-magic", "zero-hole")

    def is_routine(name: str) -> bool:
        return name.startswith("5.5.0") and damage_of(name).startswith(routine)

    return [
        pytest.param(name, marks=() if is_routine(name) else pytest.mark.slow)
        for name in names
        if not damage_of(name).startswith(NO_LOG)
    ]


def _base(name: str) -> set[Standing]:
    """Where everything stood before the damage, by the broker that wrote it."""
    base = golden_stores.manifest(name).base or name
    return {
        Standing(each.topic, each.queue_id, each.queue_offset, each.at, each.size)
        for each in golden_stores.manifest(base).records
    }


def _is_served_alike(store: Store, name: str) -> None:
    left_out = next((found for part, found in OLD_BROKERS.items() if part in name), set())
    if "stray-directory" in name:
        left_out = {*left_out, "4.4.0", "4.9.8"}  # they do not start with a directory among the log's files
    for version in READ_BY_ALL - left_out:
        if "rocksdb" in name and version != "4.9.8":
            continue
        found = forecast_store(store, rules_for(version), ForecastOptions(count_whole_log=True))
        assert (version, found.starts, found.lost.messages, found.unnoticed_damage) == (version, True, 0, ())


def _salvaged(path: Path, name: str, folder: Path) -> Salvaged:
    return salvaged(store_of(path, name), rules_of(name).version, folder, build=options_of(name))


@pytest.mark.parametrize("name", _names())
def test_what_was_intact_stays_and_nothing_is_left_to_do(golden: Unpacked, tmp_path: Path, name: str) -> None:
    path = golden(name)
    with assert_store_unchanged(path):
        found = _salvaged(path, name, tmp_path)
    before = content_of(found.before, rules_of(name), options_of(name))
    heads = frozenset(
        each.physical_offset
        for each in before.standings
        if found.made.outcome.repaired[RepairedRecord.HEAD] and each not in _base(name)
    )
    assert gone(before, found.content, heads) == []
    assert len(heads) <= found.made.outcome.repaired[RepairedRecord.HEAD]
    if "rocksdb" not in name:
        assert astray(before, found.after, heads) == []
    has_remains = any(part in name for part in HAS_REMAINS)
    assert found.left.keys() <= (REMAINS.keys() if has_remains else set())
    assert found.made.recovery.damage == ()
    assert not found.content.claims or max(found.content.claims.values()) == 1 or "stale-tail" in name
    again = salvaged(found.after, rules_of(name).version, tmp_path, build=options_of(name))
    assert again.made.steps == ()
    _is_served_alike(found.after, name)


@pytest.mark.parametrize("name", ["4.9.7-damage-flip-queue-offset-abort", "5.5.0-damage-flip-topic-byte"])
def test_a_head_that_the_queue_contradicts_is_what_it_was(golden: Unpacked, tmp_path: Path, name: str) -> None:
    found = _salvaged(golden(name), name, tmp_path)
    base = golden_stores.manifest(name).base
    assert base is not None
    assert found.content.records == content_of(store_of(golden(base), base), rules_of(base)).records


@pytest.mark.parametrize("name", ["4.9.7-damage-log-dir-empty", "5.5.0-damage-log-dir-missing"])
def test_nothing_is_made_of_a_store_without_a_log(golden: Unpacked, tmp_path: Path, name: str) -> None:
    found = _salvaged(golden(name), name, tmp_path)
    assert found.made.steps == ()
    assert [each.id for each in found.made.recovery.damage] == ["commitlog.missing-file"]


@pytest.mark.parametrize("name", ["broker-4.9.7-dledger", "broker-5.3.3-dledger"])
def test_a_log_of_dledger_is_refused(golden: Unpacked, tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsupportedError, match="DLedger"):
        _salvaged(golden(name), name, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if number % 12 == 0 else pytest.mark.slow)
        for number, name in enumerate(golden_stores.damaged_names())
    ],
)
def test_applied_and_taken_back(golden_copy: Unpacked, tmp_path: Path, name: str) -> None:
    path = golden_copy(name)
    original = files_of(path)
    (tmp_path / "plans").mkdir()
    found = _salvaged(path, name, tmp_path / "plans")
    planned = found.content.records
    if not found.made.steps:
        return
    places = StorePaths(path)
    apply_plan(Plan("salvage", fingerprint(places), rules_of(name).version, found.made.steps), places)
    applied = store_of(path, name)
    assert content_of(applied, rules_of(name), options_of(name)).records == planned
    undo_latest(places)
    assert files_of(path) == original
