"""A row of the table of configuration files is all that forecast, extract and the others ask for a further file."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.versions import rules_for
from rmqtool.extract import new_store
from rmqtool.forecast import load
from rmqtool.store.config.config_kinds import CONFIG_KINDS, ConfigKind, Join, Loading, Map, Value
from rmqtool.store.config.read_config import StoreConfigs
from rmqtool.store.directory import Store, survey
from rmqtool.store.file_kinds import FileKind, kind_of
from rmqtool.store.view import open_directory

NEW = ConfigKind(
    "config/newThing.json", "newTable", {"newTable": Map({"limit": Value.NUMBER})}, Loading("pop"),
    by_topic=True, join=Join.FIRST,
)  # fmt: skip
CUT = '{"newTable":{'


@pytest.fixture(autouse=True)
def with_new_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (load, new_store):
        monkeypatch.setattr(module, "CONFIG_KINDS", (*CONFIG_KINDS, NEW))


def store_with(root: Path, **files: str) -> Store:
    for directory in ("config", "commitlog"):
        (root / directory).mkdir(parents=True)
    for name, text in files.items():
        (root / "config" / name).write_text(text)
    return survey(open_directory(root))


@pytest.mark.parametrize("kind", CONFIG_KINDS, ids=lambda kind: kind.path)
def test_a_row_names_what_there_is(kind: ConfigKind) -> None:
    assert kind.table in kind.shape
    assert kind_of(f"{kind.path}.bak") in (FileKind.CONFIG, FileKind.COMPACTION_CHECKPOINT)
    assert kind.loading is None or kind.loading.rule in {None, *(field.name for field in fields(BrokerRules))}


def test_a_broker_that_loads_it_does_not_start_with_a_broken_one(tmp_path: Path) -> None:
    store = store_with(tmp_path / "store", **{"newThing.json": CUT, "newThing.json.bak": CUT})
    for version, paths in {"4.9.7": [], "5.5.0": [NEW.path]}.items():
        assert list(load.blocking_configs(store, rules_for(version), StoreConfigs(store.view))) == paths


def test_a_new_store_has_the_entries_of_its_topics(tmp_path: Path) -> None:
    entries = [{"T": {"limit": 1}, "Other": {"limit": 2}}, {"T": {"limit": 3}, "U": {"limit": 4}}]
    stores = [
        store_with(tmp_path / str(number), **{"newThing.json": json.dumps({"newTable": table})})
        for number, table in enumerate(entries)
    ]
    content = new_store.config_files(stores, {"T", "U"}, with_offsets=False)[NEW.path]
    assert json.loads(content) == {"newTable": {"T": {"limit": 1}, "U": {"limit": 4}}}
