"""Settings that change a start are simulated or named, and none is forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rmqtool.engine.rules.settings import all_settings, read_settings
from rmqtool.engine.rules.versions import rules_for
from rmqtool.forecast.options import forecast_options
from rmqtool.forecast.unsimulated import NAMED, unsimulated_settings
from rmqtool.store.config.broker_conf import broker_conf
from rmqtool.store.directory import Store, survey
from rmqtool.store.view import open_directory


class Asked(Mapping[str, str]):
    """Properties that give every setting a value, and remember which were looked up."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return {"brokerRole": "SLAVE", "storePathCommitLog": "/a,/b"}.get(name, "true")

    def __iter__(self) -> Iterator[str]:
        return iter(all_settings())

    def __len__(self) -> int:
        return len(all_settings())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "commitlog").mkdir()
    return survey(open_directory(tmp_path))


def names_with(effect: str) -> set[str]:
    return {name for name, setting in all_settings().items() if setting.effect == effect}


def test_each_setting_has_one_of_three_effects() -> None:
    assert {setting.effect for setting in all_settings().values()} == {"simulated", "named", "none"}


def test_what_is_said_to_be_simulated_is_read_for_a_forecast() -> None:
    asked = Asked()
    conf = broker_conf(asked)
    conf.settings()
    forecast_options(conf)
    assert names_with("simulated") - asked.names == set()


def test_what_is_said_to_be_named_is_named() -> None:
    assert names_with("named") == NAMED - {"commitLogRecoverMaxNum"}  # of which only odd numbers are not simulated


def rows(store: Store, version: str = "5.5.1", **properties: str) -> list[str]:
    conf = broker_conf(properties, reads=read_settings(rules_for(version)))
    return [row.reason for row in unsimulated_settings(conf, store)]


@pytest.mark.parametrize(
    ("version", "name", "value", "text"),
    [
        ("5.5.1", "duplicationEnable", "true", "duplicationEnable=true is not simulated"),
        ("5.5.1", "mappedFileSizeCommitLog", "0", "no file has such a size"),
        ("5.5.1", "commitLogRecoverMaxNum", "-1", "is not simulated"),
        ("5.5.1", "cleanResourceInterval", "0", "a start fails"),
        ("4.9.7", "flushDelayOffsetInterval", "0", "a start fails"),
        ("5.5.1", "configManagerVersion", "v2", "in another place"),
        ("5.5.1", "storePathCommitLog", "$HOME/log", "taken literally"),
        ("5.5.1", "storePathCommitLog", "/a, /b", "taken literally"),
        ("4.9.7", "storePathRootDir", " /data/store", "taken literally"),
        ("4.9.1", "storePathCommitLog", "/a,/b", "one directory to this version"),
        ("4.9.3", "storePathRootDir", "/data/store", "in store/commitlog of its user's home"),
    ],
)
def test_what_is_not_simulated_is_a_row(store: Store, version: str, name: str, value: str, text: str) -> None:
    [row] = rows(store, version, **{name: value})
    assert text in row


@pytest.mark.parametrize(
    ("version", "name", "value"),
    [
        ("5.5.1", "duplicationEnable", "true "),
        ("4.9.7", "commitLogRecoverMaxNum", "-1"),
        ("5.5.1", "storePathRootDir", " /data/store"),
        ("4.9.2", "storePathCommitLog", "/a,/b"),
        ("4.9.4", "storePathRootDir", "/data/store"),
        ("4.9.3", "storePathRootDir", "/home/rocketmq/store"),
        ("5.5.1", "fileReservedTime", "0"),
    ],
)
def test_what_a_version_reads_otherwise_is_none(store: Store, version: str, name: str, value: str) -> None:
    assert rows(store, version, **{name: value}) == []
