"""Which version reads which setting; tests/broker/test_settings.py holds the list against the published classes."""

from __future__ import annotations

import re

import pytest

from rmqtool.engine.rules.settings import (
    all_settings,
    nearest_setting,
    read_settings,
    settings_of,
    unread_settings,
    value_problems,
)
from rmqtool.engine.rules.versions import SUPPORTED, rules_for
from rmqtool.store.config.broker_conf import ANY_VERSION, broker_conf


def test_every_line_of_the_list_is_a_setting_of_known_releases() -> None:
    for setting in all_settings().values():
        assert re.fullmatch(r"[a-zA-Z0-9]+", setting.name)
        assert setting.kind in ("int", "long", "double", "boolean", "text") or "|" in setting.kind
        for first, last in setting.ranges:
            assert first in SUPPORTED
            assert last is None or last in SUPPORTED
        assert setting.group


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("4.4.0", {"mapedFileSizeCommitLog", "mapedFileSizeConsumeQueue"}),
        ("4.5.0", {"mapedFileSizeCommitLog", "mapedFileSizeConsumeQueue"}),
        ("4.5.1", {"mapedFileSizeCommitLog", "mapedFileSizeConsumeQueue"}),
        ("4.5.2", {"mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"}),
        ("5.5.1", {"mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"}),
        ("6.0.0", {"mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"}),
    ],
)
def test_a_version_reads_one_spelling_of_the_sizes(version: str, names: set[str]) -> None:
    assert {name for name in settings_of(version) if re.match("map+edFileSizeCo[a-zA-Z]+(Log|Queue)$", name)} == names


def test_a_setting_may_go_and_come_back() -> None:
    having = [version for version in SUPPORTED if "configBlackList" in settings_of(version)]
    assert having[:2] == ["4.9.8", "5.2.0"]


def test_how_a_version_reads_is_data_of_the_version() -> None:
    assert read_settings(None) is ANY_VERSION
    for version, expected in (
        ("4.4.0", (False, False, False)),
        ("4.9.2", (False, True, False)),
        ("4.9.4", (False, True, True)),
        ("5.2.0", (True, True, True)),
    ):
        reads = read_settings(rules_for(version))
        assert (reads.trims_texts, reads.splits_log_paths, reads.log_is_below_root) == expected


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("storetype", "storeType"),
        ("enableDLedgerCommitLog", "enableDLegerCommitLog"),
        ("mapedFileSizeComitLog", "mapedFileSizeCommitLog"),
        ("nothing", None),
    ],
)
def test_the_nearest_setting_is_the_one_that_was_meant(name: str, nearest: str | None) -> None:
    assert nearest_setting(name) == nearest


def test_what_a_version_does_not_read_is_named_with_who_does() -> None:
    properties = {"mapedFileSizeCommitLog": "1", "storePathConsumeQueue": "/q", "abortFile": "/a", "brokerName": "a"}
    assert list(unread_settings(properties, rules_for("5.5.0"))) == [
        "mapedFileSizeCommitLog means nothing to 5.5.0, which 4.4.0 to 4.5.1 read; it reads mappedFileSizeCommitLog",
        "storePathConsumeQueue means nothing to 5.5.0, which no version reads; it reads storePathConsumerQueue"
        if "storePathConsumerQueue" in all_settings()
        else "storePathConsumeQueue means nothing to 5.5.0, which no version reads",
        "abortFile means nothing to 5.5.0, which no version reads",
    ]
    assert len(list(unread_settings(properties, rules_for("4.4.0")))) == 2


def test_a_value_that_a_version_does_not_take_is_named() -> None:
    properties = {
        "mappedFileSizeCommitLog": "1 ",
        "brokerRole": " SLAVE",
        "fileReservedTime": "x",
        "timerRocksDBRollMaxTps": "fast",
        "maxIndexNum": "1",
        "abortFile": "x",
    }

    def named(version: str) -> list[str]:
        rules = rules_for(version)
        conf = broker_conf(properties, reads=read_settings(rules))
        return [problem.partition("=")[0] for problem in value_problems(conf, rules)]

    assert named("4.9.7") == ["mappedFileSizeCommitLog", "brokerRole", "fileReservedTime", "maxIndexNum"]
    assert named("5.5.1") == ["mappedFileSizeCommitLog", "fileReservedTime", "timerRocksDBRollMaxTps", "maxIndexNum"]
