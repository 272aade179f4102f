"""Loading a queue: where it ends, where it begins, by each version's search, and how little is read for it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.engine.queues.file_queue import FileQueue
from rmqtool.engine.queues.unit import BATCH_UNITS, PLAIN_UNITS
from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.versions import rules_for
from rmqtool.store.directory import survey
from rmqtool.store.source import ByteSource
from rmqtool.store.view import DirectoryView, open_directory
from tests.conftest import Unpacked
from tests.engine.memory_view import log_file, made_store, queue_file, segment_name
from tests.golden_stores import manifest

Unit = tuple[int, int, int]
SMALL = st.sampled_from([0, 1, -1, 256, 1 << 24, -(1 << 24), (1 << 31) - 1, -(1 << 31)])
WIDE = st.one_of(SMALL, st.sampled_from([1 << 32, -(1 << 63), (1 << 63) - 1]))


@settings(max_examples=300)
@given(st.lists(st.tuples(WIDE, SMALL, WIDE), max_size=30), st.integers(0, 19))
def test_units_are_counted_as_one_by_one(units: list[Unit], torn: int) -> None:
    block = b"".join(struct.pack(">qiq", *unit) for unit in units) + bytes(torn)
    valid = [physical_offset >= 0 and record_size > 0 for physical_offset, record_size, _ in units]
    assert PLAIN_UNITS.valid_count(block) == (valid.index(False) if False in valid else len(units))


@settings(max_examples=300)
@given(st.lists(st.tuples(WIDE, SMALL, WIDE, st.sampled_from([0, 1, -1, 256, 32767])), max_size=20))
def test_batch_units_are_counted_as_one_by_one(units: list[tuple[int, int, int, int]]) -> None:
    block = b"".join(struct.pack(">qiqqqhii", at, size, 0, 0, base, count, -1, 0) for at, size, base, count in units)
    valid = [at >= 0 and size > 0 and base >= 0 and count > 0 for at, size, base, count in units]
    assert BATCH_UNITS.valid_count(block) == (valid.index(False) if False in valid else len(units))


def loaded(files: list[tuple[int, list[Unit]]], *, version: str = "5.5.1", log_start: int = 0) -> FileQueue:
    """A queue with files of ten units, by (number of the file, units)."""
    content = {f"commitlog/{segment_name(log_start)}": log_file([], 100)}
    content |= {f"consumequeue/T/0/{segment_name(number * 200)}": queue_file(units) for number, units in files}
    store = made_store(content, commitlog_file_size=100, consumequeue_file_size=200)
    queue = open_reader(store, rules_for(version)).queue("T", 0)
    assert isinstance(queue, FileQueue)
    return queue


def full(first: int, step: int = 10) -> list[Unit]:
    return [(first + number * step, 10, 0) for number in range(10)]


def test_an_invalid_unit_ends_the_queue_and_drops_later_files() -> None:
    broken = full(100)
    broken[4] = (140, 0, 0)
    assert loaded([(0, full(0)), (1, broken), (2, full(200))]).max_queue_offset == 14
    # Only the last three files are looked at.
    assert loaded([(0, broken), (1, full(100)), (2, full(200)), (3, full(300)[:3])]).max_queue_offset == 33


def test_a_missing_file_in_the_middle_is_no_end() -> None:
    queue = loaded([(0, full(0)), (2, full(200)[:5])])
    assert queue.max_queue_offset == 25
    assert queue.units_from(12) is None
    assert queue.next_file_queue_offset(12) == 20


def test_an_all_zero_last_file_holds_nothing() -> None:
    assert loaded([(0, full(0)), (1, [])]).max_queue_offset == 10


def test_units_behind_an_invalid_one_are_not_read() -> None:
    broken = full(0)
    broken[4] = (-1, 10, 0)
    queue = loaded([(0, broken)])
    assert [unit.physical_offset for unit in queue.units_from(0) or ()] == [0, 10, 20, 30]
    assert queue.units_from(4) is None


@pytest.mark.parametrize("version", ["4.4.0", "4.9.8", "5.0.0", "5.5.1"])
@pytest.mark.parametrize(("log_start", "minimum"), [(0, 0), (50, 5), (90, 9)])
def test_the_minimum_is_the_first_unit_not_below_the_log(version: str, log_start: int, minimum: int) -> None:
    assert loaded([(0, full(0)), (1, full(100))], version=version, log_start=log_start).min_queue_offset == minimum


def test_the_searches_differ_where_the_first_file_is_all_below() -> None:
    files = [(0, full(0)), (1, full(100))]
    assert loaded(files, version="4.9.8", log_start=150).min_queue_offset == 0
    assert loaded(files, version="5.0.0", log_start=150).min_queue_offset == 0
    # Where even the last unit lies below, only the later search takes the queue as empty.
    assert loaded(files, version="4.9.8", log_start=900).min_queue_offset == 0
    assert loaded(files, version="5.0.0", log_start=900).min_queue_offset == 20


def test_a_binary_search_can_step_over_what_a_linear_one_finds() -> None:
    units = full(0)
    units[2] = (95, 10, 0)
    assert loaded([(0, units)], version="4.9.8", log_start=60).min_queue_offset == 2
    assert loaded([(0, units)], version="5.5.1", log_start=60).min_queue_offset == 6


def test_a_queue_that_begins_later_begins_where_its_files_do() -> None:
    assert loaded([(3, full(0))], version="5.5.1").min_queue_offset == 30
    assert loaded([(3, full(0))], version="4.9.8").min_queue_offset == 30


@pytest.mark.parametrize(("version", "maximum"), [("4.4.0", 10), ("4.9.2", 10), ("4.9.3", 30), ("5.5.1", 30)])
def test_lenient_brokers_leave_a_file_of_another_size_and_all_later_ones_out(version: str, maximum: int) -> None:
    content = {f"commitlog/{segment_name(0)}": log_file([], 100)}
    for number in range(3):
        content[f"consumequeue/T/0/{segment_name(number * 200)}"] = queue_file(full(number * 100), 200)
    content[f"consumequeue/T/0/{segment_name(200)}"] += b"x"
    store = made_store(content, commitlog_file_size=100, consumequeue_file_size=200)
    assert open_reader(store, rules_for(version)).queue("T", 0).max_queue_offset == maximum


class CountingView(DirectoryView):
    """Counts the bytes that are read."""

    count = 0

    def open(self, path: str) -> ByteSource:
        return _Counting(super().open(path), self)


class _Counting:
    def __init__(self, source: ByteSource, view: CountingView) -> None:
        self._source = source
        self._view = view
        self.name = source.name
        self.size = source.size
        self.identity = source.identity
        self.extents = source.extents
        self.close = source.close

    def read_into(self, position: int, buffer: memoryview) -> int:
        count = self._source.read_into(position, buffer)
        type(self._view).count += count
        return count


@pytest.mark.parametrize("name", ["4.9.7-default-size", "5.5.0-default-size"])
def test_a_store_of_default_size_is_answered_from_a_few_megabytes(golden: Unpacked, name: str) -> None:
    path = golden(name)
    store = survey(open_directory(path))
    counted = CountingView(path)
    CountingView.count = 0
    with open_reader(survey(counted), rules_for("5.5.0")) as reader:
        topic, queue_id = reader.queues()[0]
        assert reader.get_message(topic, queue_id, 0).messages
        keyed = next(found for found in manifest(name).records if found.properties.get("UNIQ_KEY"))
        assert any(reader.query_message(keyed.topic, keyed.properties["UNIQ_KEY"]).carries_key)
    assert sum(entry.size for entries in store.files.values() for entry in entries) > 1 << 30
    assert CountingView.count < 32 << 20
