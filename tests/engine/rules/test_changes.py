"""Every difference between two versions is a reason, or says why it is none."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.changes import VERSION_CHANGES, WITHOUT_REASON, Feature, VersionChange
from rmqtool.engine.rules.versions import RANGES

NAMING = {"version", "first", "note"}
RULES = {field.name for field in fields(BrokerRules)} - NAMING
REASONED = {name for change in VERSION_CHANGES for name in change.rules}


def test_every_rule_has_a_reason_or_says_why_not() -> None:
    assert REASONED | WITHOUT_REASON.keys() == RULES
    assert not REASONED & WITHOUT_REASON.keys()


def test_ids_and_features_are_used_once() -> None:
    ids = [change.id for change in VERSION_CHANGES]
    assert len(set(ids)) == len(ids)
    assert {change.feature for change in VERSION_CHANGES} - {None} == set(Feature)


@pytest.mark.parametrize("change", VERSION_CHANGES, ids=lambda change: change.id)
def test_a_reason_concerns_some_pair_and_not_one_version_that_knows_all(change: VersionChange) -> None:
    concerned = [(one, other) for one in RANGES for other in RANGES if change.concerns(one, other)]
    assert concerned
    assert (RANGES[-1], RANGES[-1]) not in concerned
    assert "{to}" in change.text or "{to}" in (change.command or "")


@pytest.mark.parametrize("change", VERSION_CHANGES, ids=lambda change: change.id)
def test_a_reason_concerns_versions_that_differ_in_its_rules(change: VersionChange) -> None:
    """Without its rules two versions have nothing to do with it."""
    for one in RANGES:
        for other in RANGES:
            if not change.concerns(one, other):
                continue
            like = {name: getattr(one, name) for name in change.rules}
            newest = {name: getattr(RANGES[-1], name) for name in change.rules}
            assert not change.concerns(one, replace(other, **like)) or not change.concerns(
                one, replace(other, **newest)
            )
