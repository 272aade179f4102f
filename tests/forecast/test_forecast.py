"""Forecasts of several versions that share what they count say what each says alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import EXAMINED, rules_for
from rmqtool.forecast import forecast
from rmqtool.forecast.forecast import SharedStarts, forecast_store
from rmqtool.forecast.options import ForecastOptions
from rmqtool.store.directory import Settings, survey
from rmqtool.store.view import open_directory
from tests import golden_stores
from tests.commands.transcripts import rmqtool
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


def test_versions_share_no_loss_where_a_part_of_a_unit_ends_a_queue(tmp_path: Path) -> None:
    """A pull of the last unit throws there up to 4.9."""
    path, size = tmp_path / "store", "mappedFileSizeConsumeQueue=2000"
    assert rmqtool("append", path, "--create", "--topic", "T", "--body", "x", "--count", "90", "--set", size).code == 0
    assert rmqtool("append", path, "--topic", "T", "--body", "x", "--transaction", "rollback").code == 0
    (file,) = (path / "consumequeue/T/0").iterdir()
    file.rename(file.with_name("1"))
    store = survey(open_directory(path), Settings(consumequeue_file_size=2000))
    shared = SharedStarts()
    lost = {version: forecast_store(store, rules_for(version), shared=shared).lost.messages for version in EXAMINED}
    assert lost == {version: forecast_store(store, rules_for(version)).lost.messages for version in EXAMINED}
    assert lost["4.9.8"] == lost["5.1.4"] + 1


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
