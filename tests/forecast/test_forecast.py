"""Forecasts of several versions that share what they count say what each says alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.stores import write_store
from rmqtool.engine.rules.versions import EXAMINED, rules_for
from rmqtool.forecast.forecast import SharedStarts, forecast_store
from rmqtool.forecast.losses import LossCounter
from rmqtool.forecast.options import ForecastOptions
from rmqtool.formats.consumequeue import UNIT_SIZE
from rmqtool.scan.walk import Batch
from rmqtool.store.directory import Segment, Settings, survey
from rmqtool.store.overlay import Overlay
from rmqtool.store.source import Zeros
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
    count = LossCounter.count
    monkeypatch.setattr(LossCounter, "count", lambda *arguments: counted.append(1) or count(*arguments))
    store = store_of(golden("5.5.0-clean-basic"), "5.5.0-clean-basic")
    shared = SharedStarts()
    for version in EXAMINED:
        forecast_store(store, rules_for(version), shared=shared)
    assert len(counted) < len(EXAMINED)


def test_a_file_of_which_nothing_is_lost_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By starts of all versions, on the store as it is and as a plan would leave it."""
    path = tmp_path / "store"
    write_store(path, 3_000, 100, 1 << 17, index_slot_count=1000, index_entry_count=30_000)
    store = survey(open_directory(path), Settings(commitlog_file_size=1 << 17))
    view = Overlay(store.view)
    view.remove("abort")
    after = survey(view, store.settings)
    alone = {
        (version, number): forecast_store(one, rules_for(version))
        for version in EXAMINED
        for number, one in enumerate((store, after))
    }
    counted: list[str] = []
    count_file = LossCounter._count_file

    def noted(self: LossCounter, segment: Segment, batches: Iterable[Batch]) -> None:
        counted.append(segment.path)
        count_file(self, segment, batches)

    monkeypatch.setattr(LossCounter, "_count_file", noted)
    now = SharedStarts()
    then = SharedStarts(now.reads, now.clean)
    options = ForecastOptions(count_index=False)
    for (version, number), forecast_alone in alone.items():
        together = forecast_store((store, after)[number], rules_for(version), options, (now, then)[number])
        assert together.lost == forecast_alone.lost
        assert together.queues == forecast_alone.queues
    assert len(counted) == len(set(counted)) > 5


def test_files_are_counted_again_where_a_plan_changes_a_queue(tmp_path: Path) -> None:
    path = tmp_path / "store"
    write_store(path, 3_000, 100, 1 << 17, index_slot_count=1000, index_entry_count=30_000)
    store = survey(open_directory(path), Settings(commitlog_file_size=1 << 17))
    (file,) = store.queues["TopicTest1", 2].segments
    view = Overlay(store.view)
    view.remove("abort")
    view.lay(file.path, 0, Zeros(40 * UNIT_SIZE))
    after = survey(view, store.settings)
    now = SharedStarts()
    for one, shared in ((store, now), (after, SharedStarts(now.reads, now.clean))):
        together = forecast_store(one, rules_for("5.5.0"), shared=shared)
        assert together == forecast_store(one, rules_for("5.5.0"))
    assert together.lost.messages >= 40


@pytest.mark.parametrize("name", OFTEN)
@pytest.mark.parametrize("safe", [False, True])
def test_whether_the_index_is_counted_changes_nothing_else(golden: Unpacked, name: str, *, safe: bool) -> None:
    store = store_of(golden(name), name)
    for version in EXAMINED:
        options = ForecastOptions(message_index_safe=safe)
        found = forecast_store(store, rules_for(version), options)
        without = forecast_store(store, rules_for(version), replace(options, count_index=False))
        assert without == replace(found, unindexed_messages=0, duplicate_index_entries=0)
