"""A log file of which all units were seen already costs a forecast no count, and any change to them brings it back."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.stores import write_store
from rmqtool.engine.dispatch.placed_messages import QUEUES_MAX, PlacedMessages
from rmqtool.engine.dispatch.queue_entries import QueueEntries
from rmqtool.engine.rules.versions import NEWEST, rules_for
from rmqtool.forecast.forecast import forecast_store
from rmqtool.forecast.losses import LossCounter
from rmqtool.forecast.options import ForecastOptions
from rmqtool.forecast.result import Forecast
from rmqtool.scan.row_cache import RowCache
from rmqtool.store.directory import Settings, Store, survey
from rmqtool.store.view import open_directory
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import VerifyOptions

LOG_FILE_SIZE = 256 << 10
QUEUE_FILE_SIZE = 1000
RULES = rules_for(NEWEST)
MESSAGES = 3_000


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("placed") / "store"
    write_store(
        root,
        MESSAGES,
        100,
        LOG_FILE_SIZE,
        consumequeue_file_size=QUEUE_FILE_SIZE,
        index_slot_count=1000,
        index_entry_count=20_000,
    )
    return root


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "store")


@pytest.fixture
def cache() -> Iterator[RowCache]:
    with RowCache() as cache:
        yield cache


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files of the log whose messages are counted one by one."""
    paths: list[str] = []
    count_file: Callable[..., None] = LossCounter._count_file

    def noting(counter: LossCounter, segment: object, batches: object) -> None:
        paths.append(segment.path)  # type: ignore[attr-defined]
        count_file(counter, segment, batches)

    monkeypatch.setattr(LossCounter, "_count_file", noting)
    return paths


def store_at(path: Path) -> Store:
    return survey(open_directory(path), Settings(consumequeue_file_size=QUEUE_FILE_SIZE))


def checked(path: Path, cache: RowCache) -> Store:
    store = store_at(path)
    verify_store(store, RULES, VerifyOptions(cache=cache, threads=1))
    return store


def forecast(store: Store, cache: RowCache | None = None) -> Forecast:
    return forecast_store(store, RULES, ForecastOptions(cache=cache, count_index=False))


def test_nothing_is_counted_after_a_check(path: Path, cache: RowCache, counted: list[str]) -> None:
    store = checked(path, cache)
    assert forecast(store, cache).lost.messages == 0
    assert counted == []
    assert forecast(store, cache) == forecast(store)
    assert len(counted) > 1


def test_a_start_that_enters_all_messages_itself_needs_no_count(
    path: Path, cache: RowCache, counted: list[str]
) -> None:
    store = checked(path, cache)
    shutil.rmtree(path / "consumequeue")
    store = store_at(path)
    entered = forecast(store, cache)
    assert entered.lost.messages == 0
    assert counted == []
    assert entered == forecast(store)
    assert all(queue.next_queue_offset == MESSAGES // 32 + (MESSAGES % 32 > 0) for queue in entered.queues[:2])


@pytest.mark.parametrize("at", [0, QUEUE_FILE_SIZE - 20])
def test_a_unit_that_changes_after_the_check_is_looked_at(
    path: Path, cache: RowCache, counted: list[str], at: int
) -> None:
    store = checked(path, cache)
    file = path / "consumequeue/TopicTest1/2/00000000000000000000"
    raw = bytearray(file.read_bytes())
    raw[at + 7] ^= 1
    file.write_bytes(raw)
    lost = forecast(store, cache)
    assert lost.lost.messages == 1
    assert store.commitlog[0].path in counted
    assert lost == forecast(store_at(path))


def test_a_queue_without_its_last_units_is_looked_at(path: Path, cache: RowCache, counted: list[str]) -> None:
    (path / "abort").unlink()
    store = checked(path, cache)
    last = max((path / "consumequeue/TopicTest1/2").iterdir())
    last.write_bytes(bytes(QUEUE_FILE_SIZE))
    assert forecast(store, cache) == forecast(store_at(path))
    assert counted


def test_a_check_that_has_findings_leaves_nothing(path: Path, cache: RowCache, counted: list[str]) -> None:
    file = path / "consumequeue/TopicTest1/2/00000000000000000000"
    raw = bytearray(file.read_bytes())
    raw[40 + 7] ^= 1
    file.write_bytes(raw)
    store = checked(path, cache)
    assert forecast(store, cache).lost.messages == 1
    assert counted == [store.commitlog[0].path]


def entries(topic: bytes = b"T", offsets: tuple[int, ...] = (3, 4), *, own: bool = True) -> QueueEntries:
    numbers = np.array(offsets, np.int64)
    narrow = numbers.astype(np.int32)
    return QueueEntries(topic, 0, False, numbers, numbers, narrow, numbers, numbers, narrow, np.full(len(offsets), own))


def test_spans_reach_from_the_lowest_to_the_highest_queue_offset() -> None:
    placed, others = PlacedMessages(), PlacedMessages()
    placed.take(entries(offsets=(7, 8)))
    others.take(entries(offsets=(3, 4)))
    others.take(entries(b"U", (0,)))
    placed.add(others)
    assert (placed.count, placed.spans) == (5, {(b"T", 0): (3, 8), (b"U", 0): (0, 0)})


@pytest.mark.parametrize("odd", [entries(own=False), entries()._replace(is_batch=True)])
def test_what_has_several_places_is_not_known(odd: QueueEntries) -> None:
    placed, others = PlacedMessages(), PlacedMessages()
    placed.take(entries())
    others.take(odd)
    placed.add(others)
    placed.take(entries())
    assert (placed.count, placed.spans) == (-1, {})


def test_a_file_of_very_many_queues_is_not_known() -> None:
    placed = PlacedMessages()
    for number in range(QUEUES_MAX + 1):
        placed.take(entries(b"%d" % number))
    assert (placed.count, placed.spans) == (-1, {})
