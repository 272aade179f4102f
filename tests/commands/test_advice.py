"""Advice closes: whoever begins with `info` and follows `next_step` ends with OK, or knows what a person must decide.

On every golden store, and on every damage of the fixtures in every recipe that it names; `make test` takes a slice.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.damages import compaction as damage_compaction
from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import damage_store
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.store.directory import Settings
from tests import golden_stores, rocksdb_cases
from tests.commands.advice import follow
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

EACH_OF_GOLDEN: Final = 8
EACH_OF_DAMAGES: Final = 20
EACH_OF_DATABASES: Final = 8
"""One of so many is in the slice."""
VERSIONS: Final = ("4.9.7", "5.5.0")
GOLDEN: Final = [*golden_stores.names(), *golden_stores.broker_names()]
DAMAGED: Final = [
    (damage.name, recipe, version)
    for damage in DAMAGES.values()
    for recipe in damage.recipes
    for version in VERSIONS
    if RECIPES[recipe].fits(rules_for(version))
    and (rules_for(version).compaction or damage.apply.__module__ != damage_compaction.__name__)
]
DECISIONS: Final = {
    "4.9.7-damage-log-dir-empty": "the log's disk",
    "4.9.7-damage-log-dir-missing": "the log's disk",
    "5.5.0-damage-log-dir-empty": "the log's disk",
    "5.5.0-damage-log-dir-missing": "the log's disk",
    "log-gone": "the log's disk",
    "4.9.7-damage-log-stray-directory": "a directory that holds anything",
    "5.5.0-damage-log-stray-directory": "a directory that holds anything",
    "log-stray-directory": "a directory that holds anything",
    "index-directory": "a directory that holds anything",
    "4.9.7-damage-flip-store-timestamp": "which record is right",
    "5.5.0-damage-flip-store-timestamp": "which record is right",
    "log-time-back": "which record is right",
    "log-time-zero": "which record is right",
    "log-first-time-zero": "which record is right",
    "log-queue-offset-repeated": "which record is right",
    "log-last-file-short": "half a record that brokers serve",
    "log-topic-outside": "a topic that nothing may be created for",
    "topics-cut": "configuration that is lost",
    "topics-empty-with-backup": "which of two configurations is right",
    "consumer-beyond-queue": "where a consumer goes on",
    "consumer-without-queue": "where a consumer goes on",
    "consumer-holds-lost-message": "where a consumer goes on",
    "repair-unfinished": "a journal that is lost",
    "timer-record-expired": "a message that has expired",
    "transaction-operation-odd": "a message that consumers get twice",
    "transaction-operation-ahead": "where the broker goes on",
    "transaction-half-expired": "a message that has expired",
    "pop-record-odd": "where the broker goes on",
    "pop-message-expired": "a message that has expired",
    "epochs-empty": "what the controller's other brokers have",
    "epochs-changed": "what the controller's other brokers have",
    "epochs-exchanged": "what the controller's other brokers have",
    "epochs-ahead": "what the controller's other brokers have",
    "identity-cut": "what the controller knows",
    "dledger-entry-garbage": "not repaired",
    "dledger-foreign-file": "whose file it is",
    "dledger-message-overwritten": "not repaired",
    "dledger-end-lost": "not repaired",
    "dledger-entry-renumbered": "not repaired",
    "dledger-unit-zeroed": "not repaired",
    "tiered-metadata-cut": "not repaired",
    "tiered-segment-missing": "not repaired",
    "tiered-queue-cut": "not repaired",
    "tiered-record-garbage": "not repaired",
    "tiered-unit-zeroed": "not repaired",
    "broker-5.5.0-compaction": "not decoded",
    "broker-5.5.0-compaction-leftover": "not decoded",
}
"""Stores and kinds of damage after which only a person, or the broker itself, can say what is right; about what."""


def sliced(cases: Iterable[object], one_of: int) -> list[object]:
    """All cases, those that are not in the slice marked slow."""
    return [pytest.param(case, marks=pytest.mark.slow if number % one_of else ()) for number, case in enumerate(cases)]


def check(store: Callable[[], Path], name: str, settings: golden_stores.Settings | Settings, folder: Path) -> None:
    """Follow the advice on a store.

    Args:
        store: makes it.
        settings: the sizes that its broker has, which a person gives where nothing in the store shows them.
    """
    walk = follow(store())
    if walk.needs_decision and "nothing in the store shows" in walk.answer["next_step"]["reason"]:
        conf = folder / "broker.conf"
        conf.write_text(
            f"mappedFileSizeCommitLog={settings.commitlog_file_size}\n"
            f"mappedFileSizeConsumeQueue={settings.consumequeue_file_size}\n"
            f"maxHashSlotNum={settings.index_slot_count}\nmaxIndexNum={settings.index_entry_count}\n"
            "mappedFileSizeTimerLog=1048576\ncompactionMappedFileSize=20000\ncompactionCqMappedFileSize=4600\n",
            "utf-8",
        )
        walk = follow(store(), f"--broker-conf={conf}")
    assert walk.is_ok or name in DECISIONS, f"no person has to decide here: {walk}"


@pytest.mark.parametrize("name", sliced(GOLDEN, EACH_OF_GOLDEN))
def test_advice_about_a_golden_store_closes(tmp_path: Path, name: str) -> None:
    check(lambda: golden_stores.unpack(name, fresh(tmp_path)), name, golden_stores.settings(name), tmp_path)


@pytest.mark.parametrize("case", sliced(DAMAGED, EACH_OF_DAMAGES), ids="-".join)
def test_advice_about_damage_closes(tmp_path: Path, case: tuple[str, str, str]) -> None:
    damage, recipe, version = case
    settings = RECIPES[recipe].conf.settings()

    def damaged() -> Path:
        path = fresh(tmp_path) / "store"
        make_store(RECIPES[recipe], path, version)
        damage_store(DAMAGES[damage], path, 0, settings)
        return path

    check(damaged, damage, settings, tmp_path)


@pytest.mark.parametrize("case", sliced(rocksdb_cases.CASES, EACH_OF_DATABASES), ids=lambda case: case.name)
def test_advice_about_queues_in_rocksdb_closes(tmp_path: Path, case: rocksdb_cases.Case) -> None:
    path = golden_stores.unpack(rocksdb_cases.NAME, tmp_path)
    case.apply(path)
    walk = follow(path)
    assert walk.is_ok, walk


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_tail_that_only_its_times_show_is_not_cut(golden_copy: Unpacked, version: str) -> None:
    # The clock may have been set back as well: its one queue continues without a gap.
    walk = follow(golden_copy(f"{version}-stale-tail"))
    assert walk.is_ok
    assert not any("--cut-at" in command for command in walk.commands)


def fresh(folder: Path) -> Path:
    """An empty directory."""
    shutil.rmtree(folder / "new", ignore_errors=True)
    (folder / "new").mkdir()
    return folder / "new"


def test_a_repair_that_needs_the_version_says_so_before(golden_copy: Unpacked) -> None:
    path = golden_copy("4.9.7-clean-empty")
    (path / "commitlog" / "00000000000000000000.bak").write_bytes(b"x")
    walk = follow(path)
    assert walk.needs_decision
    assert "--broker-version" in walk.answer["next_step"]["reason"]
    assert rmqtool("recover", path, "--yes").code == 5
    assert follow(path, "--broker-version=4.9.8").is_ok


def test_a_forecast_that_needs_a_file_size_is_not_advised(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-keys-index")
    (path / "abort").write_text("1", "utf-8")
    os.truncate(path / "commitlog" / "00000000000000000000", 70_001)
    assert rmqtool("forecast", path).code == 5
    walk = follow(path)
    assert walk.needs_decision
    assert "--log-file-size" in walk.answer["next_step"]["reason"]


def test_a_forecast_looks_for_the_log_where_its_files_are(golden: Unpacked) -> None:
    for name in ("4.9.7-multi-path-crashed", "5.5.0-multi-path-crashed"):
        ran = rmqtool("forecast", golden(name), "--format", "json")
        assert (ran.code, json.loads(ran.out)["verdict"]) == (0, "ok")


def test_a_forecast_names_the_record_that_keeps_a_broker_from_starting(golden: Unpacked) -> None:
    name = "4.9.7-damage-size-huge-abort"
    found = json.loads(rmqtool("forecast", golden(name), "--format", "json").out)
    edit = next(each for each in golden_stores.manifest(name).damage if each["file"].startswith("commitlog"))
    (forecast,) = found["forecasts"]
    at = int(edit["file"].rpartition("/")[2]) + edit["position"]
    assert not forecast["starts"]
    assert forecast["stops_at"] == {"physical_offset": at, "finding": "commitlog.bad-size"}
    assert found["next_step"]["command"] == f"rmqtool salvage {golden(name)}"


def test_every_decision_is_about_something() -> None:
    assert {*GOLDEN, *DAMAGES} >= DECISIONS.keys()


@pytest.mark.parametrize("crashed", [False, True])
def test_a_damaged_block_of_queues_in_rocksdb_is_repaired_as_forecast_says(
    golden_copy: Unpacked, *, crashed: bool
) -> None:
    path = golden_copy(rocksdb_cases.NAME)
    table = path / "consumequeue" / "000011.sst"
    content = bytearray(table.read_bytes())
    content[20] ^= 1
    table.write_bytes(content)
    if crashed:
        (path / "abort").touch()
    ran = rmqtool("forecast", path, "--format", "json")
    answer = json.loads(ran.out)
    command = f"rmqtool recover {path}" if crashed else f"rmqtool rebuild {path} --queues"
    assert (ran.code, answer["verdict"], answer["next_step"]["command"]) == (4, "inconsistent", command)
    assert rmqtool(*shlex.split(command)[1:], "--yes").code == 0
    after = rmqtool("forecast", path, "--format", "json")
    assert json.loads(after.out)["forecasts"][0]["lost"]["messages"] == 0
    assert rmqtool("verify", path).code == 0
