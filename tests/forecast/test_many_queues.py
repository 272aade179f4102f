"""What a forecast of a store of many queues spares: files that are opened again, and a list that nobody reads."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from benchmarks.stores import QUEUE_COUNT, write_store
from rmqtool.engine.rules.versions import EXAMINED, rules_for
from rmqtool.engine.segments.open_files import OPEN_MAX
from rmqtool.forecast.forecast import forecast_store
from rmqtool.forecast.options import ForecastOptions
from rmqtool.store.directory import Store, survey
from rmqtool.store.source import ByteSource
from rmqtool.store.view import DirectoryView

FEW = 2
"""Files that are looked at besides, of whichever queue."""
TOPICS = 2 * OPEN_MAX // QUEUE_COUNT


class CountingView(DirectoryView):
    """Counts how often each file is opened."""

    opened: ClassVar[Counter[str]] = Counter()

    def open(self, path: str) -> ByteSource:
        self.opened[path] += 1
        return super().open(path)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("stores") / "queues"
    write_store(store, 3 * TOPICS * QUEUE_COUNT, 50, 1 << 20, topic_count=TOPICS, consumequeue_file_size=6000)
    return store


@pytest.fixture
def store(root: Path) -> Store:
    CountingView.opened.clear()
    return survey(CountingView(root))


@pytest.mark.parametrize("version", EXAMINED)
def test_a_start_opens_each_file_of_a_queue_twice(version: str, store: Store) -> None:
    forecast = forecast_store(store, rules_for(version))
    assert forecast.starts
    assert not forecast.lost.messages
    assert forecast.filler_units == 0
    opened = {path: count for path, count in CountingView.opened.items() if path.startswith("consumequeue/")}
    assert len(opened) == TOPICS * QUEUE_COUNT
    assert sum(opened.values()) <= 2 * len(opened) + FEW, "once for its end, and once for what is lost"


@pytest.mark.parametrize("version", EXAMINED)
def test_a_forecast_without_its_queues_is_the_same_beside(version: str, store: Store) -> None:
    whole = forecast_store(store, rules_for(version))
    part = forecast_store(store, rules_for(version), ForecastOptions(lists_queues=False))
    assert len(whole.queues) == TOPICS * QUEUE_COUNT
    assert part == replace(whole, queues=())


def test_a_later_survey_holds_nothing_twice_that_is_the_same(root: Path) -> None:
    first = survey(DirectoryView(root))
    same = survey(DirectoryView(root), first.settings, first)
    assert same == first
    assert all(same.files[kind] is entries for kind, entries in first.files.items())
    assert same.queues is first.queues
    path = next(iter(first.queues.values())).segments[0].path
    with (root / path).open("ab") as file:
        file.write(bytes(20))
    changed = survey(DirectoryView(root), first.settings, first)
    assert changed == survey(DirectoryView(root))
    entries = {entry.path: entry for entries in first.files.values() for entry in entries}
    other = [entry.path for kept in changed.files.values() for entry in kept if entry is not entries[entry.path]]
    assert other == [path]
    assert changed.queues is not first.queues
