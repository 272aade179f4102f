"""The descriptions of broker versions: every one found, none older, newer ones said to be unknown."""

from __future__ import annotations

import itertools
import re
from dataclasses import fields
from pathlib import Path

import pytest

from rmqtool.engine.rules import versions
from rmqtool.engine.rules.broker_rules import (
    AbnormalStart,
    BrokerRules,
    MinOffsetSearch,
    NormalStart,
    ReputStart,
    SizeMismatch,
    TimeLookup,
)
from rmqtool.engine.rules.versions import NEWEST, RANGES, SUPPORTED, parse_version, rules_for
from rmqtool.errors import UsageError
from rmqtool.store.config.config_kinds import CONFIG_KINDS


def test_ranges_and_releases_are_in_order() -> None:
    firsts = [parse_version(rules.first) for rules in RANGES]
    assert firsts == sorted(set(firsts))
    assert [parse_version(version) for version in SUPPORTED] == sorted(parse_version(version) for version in SUPPORTED)


@pytest.mark.parametrize("version", SUPPORTED)
def test_a_known_release_has_its_rules_without_a_note(version: str) -> None:
    rules = rules_for(version)
    assert (rules.version, rules.note) == (version, None)


def test_each_range_differs_from_the_one_before() -> None:
    names = [field.name for field in fields(RANGES[0]) if field.name not in ("version", "first", "note")]
    for earlier, later in itertools.pairwise(RANGES):
        assert any(getattr(earlier, name) != getattr(later, name) for name in names), later.first


@pytest.mark.parametrize(
    ("switch", "releases"),
    [
        ("trailing_separator", (("4.4.0", "4.9.0"), ("5.2.0", NEWEST))),
        ("schedule_loaded_after_recovery", (("4.9.2", "4.9.8"),)),
        ("reads_v2", (("5.1.0", NEWEST),)),
        ("deletes_empty_last_file", (("5.1.3", NEWEST),)),
        ("checks_remaining_bytes", (("5.3.2", NEWEST),)),
        ("index_tags", (("5.4.0", NEWEST),)),
        ("abort_holds_process_id", (("5.0.0", NEWEST),)),
        ("queue_end_is_record_start", (("4.4.0", "4.4.0"),)),
        ("compaction", (("5.1.0", NEWEST),)),
        ("overflow_restarts_at_zero", (("4.4.0", "4.9.3"),)),
        ("multiple_log_paths", (("4.9.2", NEWEST),)),
        ("pop", (("5.0.0", NEWEST),)),
        ("rocksdb_config", (("5.1.4", NEWEST),)),
    ],
)
def test_a_switch_is_on_in_exactly_these_releases(switch: str, releases: tuple[tuple[str, str], ...]) -> None:
    expected = [
        version
        for version in SUPPORTED
        if any(parse_version(low) <= parse_version(version) <= parse_version(high) for low, high in releases)
    ]
    assert [version for version in SUPPORTED if getattr(rules_for(version), switch)] == expected


def test_every_rule_is_read_by_somebody() -> None:
    """A switch that nothing reads is a claim about brokers that no test can hold."""
    package = Path(versions.__file__).parents[2]
    texts = [path.read_text("utf-8") for path in package.rglob("*.py") if path != Path(versions.__file__)]
    loading = {kind.loading.rule for kind in CONFIG_KINDS if kind.loading is not None}
    unread = [
        field.name
        for field in fields(BrokerRules)
        if field.name not in {"first", *loading} and not any(re.search(rf"\.{field.name}\b", text) for text in texts)
    ]
    assert not unread


def test_algorithms_change_with_the_right_release() -> None:
    lenient = [version for version in SUPPORTED if rules_for(version).size_mismatch is SizeMismatch.IGNORE_REST]
    assert lenient == ["4.4.0", "4.9.2"]
    linear = [version for version in SUPPORTED if rules_for(version).min_offset_search is MinOffsetSearch.LINEAR]
    assert linear[-1] == "4.9.8"
    nearest = [version for version in SUPPORTED if rules_for(version).time_lookup is TimeLookup.NEAREST]
    assert nearest[-1] == "5.1.0"
    starts = {version: rules_for(version).normal_start for version in ("5.3.1", "5.3.2", "5.3.3", "5.3.4")}
    assert list(starts.values()) == [
        NormalStart.THIRD_FROM_END,
        NormalStart.START_BELOW_QUEUES,
        NormalStart.START_BELOW_QUEUES,
        NormalStart.FIRST_RECORD_BELOW_DISPATCH,
    ]
    assert rules_for("5.4.0").abnormal_start is AbnormalStart.CHECKED_AND_TIME
    assert rules_for("5.5.0").abnormal_start is AbnormalStart.CHECKED_AND_OFFSET
    assert [rules_for(version).reput_start for version in ("4.4.0", "4.9.8", "5.0.0")] == [
        ReputStart.LOG_END,
        ReputStart.QUEUES,
        ReputStart.CONFIRMED,
    ]
    assert [rules_for(version).checkpoint_field_count for version in ("4.9.8", "5.0.0", "5.1.1", "5.5.0")] == [
        3,
        4,
        5,
        6,
    ]
    assert [rules_for(version).recover_files_max for version in ("5.3.4", "5.4.0")] == [None, 10]


def test_a_newer_version_gets_the_newest_rules_and_a_note() -> None:
    rules = rules_for("6.0.0")
    assert rules.version == "6.0.0"
    assert rules.note is not None
    assert NEWEST in rules.note
    assert rules.empty_queue_examined_again


def test_an_unexamined_release_in_between_says_so() -> None:
    assert "4.6.1" in (rules_for("4.6.9").note or "")


@pytest.mark.parametrize("text", ["", "5", "5.5", "5.5.x", "v5.5.0", "5.5.0 ", "-5.5.0", "5.5.0.1", "٥.٥.٠", "4.3.2"])
def test_what_is_no_known_version_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(UsageError, match="version") as caught:
        rules_for(text)
    assert "\n" not in str(caught.value)
