"""Offsets by time: boundaries against brute force, and the older search by modification time and nearness."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.engine.queues.unit import Boundary
from rmqtool.engine.reading.reader import Reader, open_reader
from rmqtool.engine.rules.versions import rules_for
from tests.engine.memory_view import batch_queue_file, log_file, made_store, queue_file, record, segment_name

UNITS_PER_FILE = 4
LOG_FILE = 4000
RECORD_SIZE = len(record(0))


def reader_over(times: list[int], version: str, *, mtimes_ms: dict[int, int] | None = None, below: int = 0) -> Reader:
    """A queue with files of four units and a log whose records have these times; the first `below` are expired.

    Args:
        mtimes_ms: modification times by number of the queue's file.
    """
    per_file = LOG_FILE // RECORD_SIZE
    places = [number // per_file * LOG_FILE + number % per_file * RECORD_SIZE for number in range(len(times))]
    logs: dict[int, list[bytes]] = {0: []}
    for place, time in zip(places, times, strict=True):
        logs.setdefault(place // LOG_FILE, []).append(record(place, store_timestamp_ms=time))
    files = {f"commitlog/{segment_name(number * LOG_FILE)}": log_file(logs[number], LOG_FILE) for number in logs}
    if below:
        assert below == per_file
        del files[f"commitlog/{segment_name(0)}"]
    units = [(place, RECORD_SIZE, 0) for place in places]
    mtimes: dict[str, int] = {}
    size = UNITS_PER_FILE * 20
    for number in range(0, len(units), UNITS_PER_FILE):
        path = f"consumequeue/T/0/{segment_name(number * 20)}"
        files[path] = queue_file(units[number : number + UNITS_PER_FILE], size)
        mtimes[path] = (mtimes_ms or {}).get(number // UNITS_PER_FILE, 0)
    store = made_store(files, mtimes_ms=mtimes, commitlog_file_size=LOG_FILE, consumequeue_file_size=size)
    return open_reader(store, rules_for(version))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(10, 30), min_size=1, max_size=20), st.integers(1, 40), st.sampled_from(["5.1.1", "5.5.1"]))
def test_boundaries_agree_with_brute_force(times: list[int], asked: int, version: str) -> None:
    times.sort()
    reader = reader_over(times, version)
    lower = reader.offset_in_queue_by_time("T", 0, asked, Boundary.LOWER)
    upper = reader.offset_in_queue_by_time("T", 0, asked, Boundary.UPPER)
    # Runs of equal times are not followed across a file's end: within the file that is searched, each is at its edge.
    not_earlier = [number for number, time in enumerate(times) if time >= asked]
    not_later = [number for number, time in enumerate(times) if time <= asked]
    assert lower == (not_earlier[0] if not_earlier else len(times))
    assert upper == (not_later[-1] if not_later else 0)


def test_without_a_boundary_the_lower_one_is_meant() -> None:
    reader = reader_over([10, 20, 20, 20, 30], "5.5.1")
    assert reader.offset_in_queue_by_time("T", 0, 20) == 1
    assert reader.offset_in_queue_by_time("T", 0, 20, Boundary.UPPER) == 3


def test_what_lies_below_the_log_counts_as_too_early() -> None:
    count = LOG_FILE // RECORD_SIZE
    times = list(range(100, 100 + count + 10))
    for version in ("5.1.1", "5.5.1"):
        reader = reader_over(times, version, below=count)
        assert reader.offset_in_queue_by_time("T", 0, 100) == count
        assert reader.offset_in_queue_by_time("T", 0, 100 + count + 3) == count + 3


def test_an_unknown_queue_has_offset_0() -> None:
    for version in ("4.9.8", "5.5.1"):
        for boundary in Boundary:
            assert reader_over([10], version).offset_in_queue_by_time("other", 0, 10, boundary) == 0


@pytest.mark.parametrize(
    ("asked", "queue_offset"),
    [(5, 0), (10, 0), (14, 0), (15, 0), (16, 1), (20, 1), (99, 3)],
)
def test_older_brokers_take_the_nearest_of_a_file(asked: int, queue_offset: int) -> None:
    reader = reader_over([10, 20, 30, 40], "4.9.8", mtimes_ms={0: 1000})
    for boundary in Boundary:
        assert reader.offset_in_queue_by_time("T", 0, asked, boundary) == queue_offset


def test_older_brokers_choose_the_file_by_its_modification_time() -> None:
    times = [10, 20, 30, 40, 50, 60, 70, 80]
    assert reader_over(times, "5.1.0", mtimes_ms={0: 45, 1: 85}).offset_in_queue_by_time("T", 0, 44) == 3
    assert reader_over(times, "5.1.0", mtimes_ms={0: 45, 1: 85}).offset_in_queue_by_time("T", 0, 46) == 4
    # A copy that did not keep the times sends every question to the first file.
    assert reader_over(times, "5.1.0", mtimes_ms={0: 900, 1: 900}).offset_in_queue_by_time("T", 0, 80) == 3
    # Times before all messages send it to the last.
    assert reader_over(times, "5.1.0", mtimes_ms={0: 1, 1: 1}).offset_in_queue_by_time("T", 0, 10) == 4
    assert reader_over(times, "5.1.1", mtimes_ms={0: 1, 1: 1}).offset_in_queue_by_time("T", 0, 10) == 0


def batch_reader(version: str) -> Reader:
    units = [(0, RECORD_SIZE, 0, 10, 0, 4), (200, RECORD_SIZE, 0, 20, 4, 1), (400, RECORD_SIZE, 0, 30, 5, 10)]
    files = {
        f"commitlog/{segment_name(0)}": log_file([], LOG_FILE),
        f"batchconsumequeue/B/0/{segment_name(0)}": batch_queue_file(units[:2], 92),
        f"batchconsumequeue/B/0/{segment_name(92)}": batch_queue_file(units[2:], 92),
    }
    return open_reader(made_store(files, commitlog_file_size=LOG_FILE, batch_file_size=92), rules_for(version))


@pytest.mark.parametrize(("asked", "queue_offset"), [(5, 0), (10, 0), (11, 4), (20, 4), (30, 5), (99, 5)])
def test_batch_queues_know_their_times(asked: int, queue_offset: int) -> None:
    assert batch_reader("5.5.1").offset_in_queue_by_time("B", 0, asked) == queue_offset
