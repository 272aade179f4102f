"""Forecasts of several versions that share what they count say what each says alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqtool.engine.rules.versions import EXAMINED, rules_for
from rmqtool.forecast import forecast
from rmqtool.forecast.forecast import SharedStarts, forecast_store
from rmqtool.forecast.options import ForecastOptions
from tests import golden_stores
from tests.conftest import Unpacked
from tests.repair.golden_repairs import store_of

OFTEN = (
    "5.5.0-clean-basic",
    "5.5.0-crashed",
    "5.5.0-expired-head",
    "5.5.0-damage-zero-hole",
    "4.9.7-damage-cq-only-file-zero",
    "5.5.0-damage-index-zero",
)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow)
        for name in [*golden_stores.healthy_names(), *golden_stores.crashed_names(), *golden_stores.damaged_names()]
    ],
)
def test_sharing_changes_nothing(golden: Unpacked, name: str) -> None:
    store = store_of(golden(name), name)
    shared = SharedStarts()
    for version in EXAMINED:
        together = forecast_store(store, rules_for(version), shared=shared)
        assert together == forecast_store(store, rules_for(version))


def test_a_sound_store_is_counted_once(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    count = forecast._losses
    monkeypatch.setattr(forecast, "_losses", lambda *arguments: counted.append(1) or count(*arguments))
    store = store_of(golden("5.5.0-clean-basic"), "5.5.0-clean-basic")
    shared = SharedStarts()
    for version in EXAMINED:
        forecast_store(store, rules_for(version), shared=shared)
    assert len(counted) < len(EXAMINED)


@pytest.mark.parametrize("name", OFTEN)
@pytest.mark.parametrize("safe", [False, True])
def test_whether_the_index_is_counted_changes_nothing_else(golden: Unpacked, name: str, *, safe: bool) -> None:
    store = store_of(golden(name), name)
    for version in EXAMINED:
        options = ForecastOptions(message_index_safe=safe)
        found = forecast_store(store, rules_for(version), options)
        without = forecast_store(store, rules_for(version), replace(options, count_index=False))
        assert without == replace(found, unindexed_messages=0, duplicate_index_entries=0)
