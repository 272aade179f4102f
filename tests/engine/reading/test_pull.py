"""Pulls over hand-made queues: statuses, skipping, limits, tag filters, batches, and what a slave answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqtool.engine.queues.batch_queue import BatchQueue
from rmqtool.engine.queues.file_queue import FileQueue
from rmqtool.engine.queues.unit import QueueUnit
from rmqtool.engine.reading.reader import GetMessageResult, PullLimits, Reader, open_reader
from rmqtool.engine.rules.versions import SUPPORTED, rules_for
from rmqtool.errors import UnsupportedError, UsageError
from rmqtool.formats.consumequeue import EXTENSION_ADDRESS_BASE, FILLER_UNIT
from rmqtool.formats.java_text import java_hash
from rmqtool.formats.properties import SCHEDULE_TOPIC
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.conftest import Unpacked
from tests.engine.memory_view import (
    batch_queue_file,
    log_file,
    made_store,
    queue_file,
    record,
    segment_name,
)
from tests.engine.reading.golden_answers import open_golden
from tests.golden_stores import healthy_names, manifest

Unit = tuple[int, int, int]
LOG_FILE = 4096


def small_store(
    units: list[Unit], *, version: str = "5.5.1", log_start: int = 0, is_slave: bool = False, tags: str = "a"
) -> Reader:
    """Two commitlog files of 4096 bytes with records of one size, and one queue of these units."""
    files: dict[str, bytes] = {}
    for number in range(2):
        start = log_start + number * LOG_FILE
        size = len(record(start, properties={"TAGS": tags}))
        records = [
            record(start + at, queue_offset=at // size, properties={"TAGS": tags}) for at in range(0, 20 * size, size)
        ]
        files[f"commitlog/{segment_name(start)}"] = log_file(records, LOG_FILE)
    for number in range(0, max(1, len(units)), 10):
        files[f"consumequeue/T/0/{segment_name(number * 20)}"] = queue_file(units[number : number + 10])
    store = made_store(files, commitlog_file_size=LOG_FILE, consumequeue_file_size=200)
    return open_reader(store, rules_for(version), is_slave=is_slave)


SIZE = len(record(0, properties={"TAGS": "a"}))


def units_of(*numbers: int, code: int = 97, start: int = 0) -> list[Unit]:
    return [(start + number * SIZE, SIZE, code) for number in numbers]


def summary(found: GetMessageResult) -> tuple[str, int, list[int]]:
    return found.status.value, found.next_begin_offset, [message.physical_offset for message in found.messages]


@pytest.mark.parametrize("version", SUPPORTED)
def test_every_status_outside_the_queue(version: str) -> None:
    with small_store(units_of(*range(5)), version=version) as reader:
        assert summary(reader.get_message("T", 0, -1)) == ("OFFSET_TOO_SMALL", 0, [])
        assert summary(reader.get_message("T", 0, 5)) == ("OFFSET_OVERFLOW_ONE", 5, [])
        # Up to 4.9.3 a consumer is sent back to the queue's first message, if that is the first of all.
        following = 0 if rules_for(version).overflow_restarts_at_zero else 5
        assert summary(reader.get_message("T", 0, 6)) == ("OFFSET_OVERFLOW_BADLY", following, [])
        assert summary(reader.get_message("T", 7, 3)) == ("NO_MESSAGE_IN_QUEUE", 0, [])
        assert summary(reader.get_message("other", 0, 0)) == ("NO_MESSAGE_IN_QUEUE", 0, [])
        assert summary(reader.get_message("T", 0, 3)) == ("FOUND", 5, [3 * SIZE, 4 * SIZE])


def test_a_slave_leaves_the_offset_to_the_consumer() -> None:
    with small_store(units_of(*range(5)), is_slave=True) as reader:
        assert summary(reader.get_message("T", 0, -1)) == ("OFFSET_TOO_SMALL", -1, [])
        assert summary(reader.get_message("T", 0, 9)) == ("OFFSET_OVERFLOW_BADLY", 9, [])
        assert summary(reader.get_message("T", 7, 3)) == ("NO_MESSAGE_IN_QUEUE", 3, [])


def test_a_pull_ends_with_its_queue_file() -> None:
    with small_store(units_of(*range(15))) as reader:
        assert reader.get_message("T", 0, 2).next_begin_offset == 10
        assert reader.get_message("T", 0, 10).next_begin_offset == 15


def test_a_missing_queue_file_leads_to_the_next() -> None:
    with small_store(units_of(*range(20), *range(20))) as whole:
        files = dict(whole.store.view.files)  # type: ignore[attr-defined]
    del files[f"consumequeue/T/0/{segment_name(200)}"]
    store = made_store(files, commitlog_file_size=LOG_FILE, consumequeue_file_size=200)
    with open_reader(store, rules_for("5.5.1")) as reader:
        assert summary(reader.get_message("T", 0, 13)) == ("OFFSET_FOUND_NULL", 20, [])


@pytest.mark.parametrize("version", ["4.9.7", "5.5.1"])
def test_an_unreadable_unit_hides_what_points_below_the_next_log_file(version: str) -> None:
    bad = (3 * SIZE, LOG_FILE, 97)
    in_next_file = units_of(2, start=LOG_FILE)
    with small_store([*units_of(0), bad, *units_of(4, 5), *in_next_file, *units_of(6)], version=version) as reader:
        found = reader.get_message("T", 0, 0)
        assert summary(found) == ("FOUND", 6, [0, in_next_file[0][0], 6 * SIZE])
        assert summary(reader.get_message("T", 0, 1, 1)) == ("FOUND", 5, [in_next_file[0][0]])
    with small_store([*units_of(0), bad, *units_of(4, 5)], version=version) as reader:
        assert summary(reader.get_message("T", 0, 1)) == ("MESSAGE_WAS_REMOVING", 4, [])


def test_a_dead_unit_hides_nothing_but_itself() -> None:
    dead = (LOG_FILE - 8, 16, 0)
    with small_store([*units_of(0), dead, *units_of(1, start=LOG_FILE)]) as reader:
        assert summary(reader.get_message("T", 0, 0)) == ("FOUND", 3, [0, LOG_FILE + SIZE])


def test_a_phantom_unit_is_found_and_empty() -> None:
    with small_store([(0, 0, 0), *units_of(1)]) as reader:
        # The phantom is not valid, so the queue ends before it as long as truncation has not accepted it.
        assert reader.queue("T", 0).max_queue_offset == 0
    with small_store([*units_of(*range(30)), (0, 0, 0)]) as reader:
        assert reader.queue("T", 0).max_queue_offset == 30


def test_a_readable_filler_skips_to_the_second_log_file() -> None:
    with small_store([FILLER_UNIT, *units_of(1, 2), *units_of(1, start=LOG_FILE)]) as reader:
        assert summary(reader.get_message("T", 0, 0)) == ("FOUND", 4, [LOG_FILE + SIZE])


def test_limits_by_count_bytes_and_disk() -> None:
    with small_store(units_of(*range(10))) as reader:
        assert len(reader.get_message("T", 0, 0, 4).messages) == 4
        small = PullLimits(bytes_in_memory=3 * SIZE)
        assert len(reader.get_message("T", 0, 0, limits=small).messages) == 3
        # The first message is handed out whatever the limits.
        assert len(reader.get_message("T", 0, 0, limits=PullLimits(bytes_in_memory=1)).messages) == 1
        on_disk = PullLimits(broker_memory_bytes=1000)
        assert len(reader.get_message("T", 0, 0, limits=on_disk).messages) == 8
        enough = PullLimits(broker_memory_bytes=1 << 30)
        assert len(reader.get_message("T", 0, 0, limits=enough).messages) == 10


def test_a_pull_examines_16000_bytes_of_units_at_most() -> None:
    files = {
        f"commitlog/{segment_name(0)}": log_file([record(0, properties={"TAGS": "a"})], LOG_FILE),
        f"consumequeue/T/0/{segment_name(0)}": queue_file([(0, SIZE, 97)] * 2000, 40_000),
    }
    store = made_store(files, commitlog_file_size=LOG_FILE, consumequeue_file_size=40_000)
    for version in ("4.9.7", "5.5.1"):
        with open_reader(store, rules_for(version)) as reader:
            assert summary(reader.get_message("T", 0, 100, 32, "b")) == ("NO_MATCHED_MESSAGE", 900, [])
            assert summary(reader.get_message("T", 0, 100, 1000, "b")) == ("NO_MATCHED_MESSAGE", 1100, [])


def test_more_queue_files_are_searched_only_where_the_version_can() -> None:
    for version, following in (("4.9.7", 10), ("5.5.1", 20)):
        with small_store(units_of(*range(20), *range(5)), version=version) as reader:
            found = reader.get_message("T", 0, 0, 32, "b", PullLimits(queue_files=2))
            assert summary(found) == ("NO_MATCHED_MESSAGE", following, [])


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_no_filter_lets_everything_through(expression: str | None) -> None:
    with small_store(units_of(0, 1)) as reader:
        assert len(reader.get_message("T", 0, 0, 32, expression).messages) == 2


@pytest.mark.parametrize("expression", ["||", " || ", " "])
def test_an_expression_without_a_tag_is_refused(expression: str) -> None:
    with small_store(units_of(0)) as reader, pytest.raises(UsageError, match="no tag"):
        reader.get_message("T", 0, 0, 32, expression)


def test_the_filter_knows_hashes_only() -> None:
    assert java_hash("Aa") == java_hash("BB")
    with small_store(units_of(0, code=java_hash("Aa"))) as reader:
        assert len(reader.get_message("T", 0, 0, 32, "BB").messages) == 1
        # Only the low 32 bits are compared, so a delivery time in the schedule topic can pass too.
    with small_store(units_of(0, code=(7 << 32) + java_hash("Aa"))) as reader:
        assert len(reader.get_message("T", 0, 0, 32, "BB").messages) == 1


def test_a_code_in_an_extension_that_is_gone_lets_its_message_through() -> None:
    with small_store(units_of(0, code=EXTENSION_ADDRESS_BASE + 5)) as reader:
        assert len(reader.get_message("T", 0, 0, 32, "zzz").messages) == 1


@pytest.mark.parametrize("name", [name for name in healthy_names() if "large" not in name])
def test_tag_filters_agree_with_the_records(golden: Unpacked, name: str) -> None:
    """Brute force over the units' records, extension stores included."""
    found = manifest(name)
    records = {each.at: each for each in found.records}
    all_tags = {each.properties.get("TAGS") for each in found.records}
    tags = sorted(tag for tag in all_tags if tag and "||" not in tag and tag == tag.strip())[:4]
    with open_golden(golden(name), name, found.writer) as reader:
        for topic, queue_id in reader.queues():
            places = [unit.physical_offset for unit in _all_units(reader.queue(topic, queue_id))]
            # Delivery times stand for tags in the schedule topic; offset 0 is looked up elsewhere in a later log.
            if topic == SCHEDULE_TOPIC or (reader.log.minimum > 0 and 0 in places):
                continue
            for expression in (*tags, " || ".join(tags[:2]) or "none", "noSuchTag"):
                wanted = {java_hash(tag.strip()) for tag in expression.split("||")}
                expected = [
                    place
                    for place in places
                    if place in records and java_hash(records[place].properties.get("TAGS") or "") in wanted
                ]
                assert _pull_all(reader, topic, queue_id, expression) == expected


def _all_units(queue: FileQueue | BatchQueue) -> Iterator[QueueUnit]:
    at = queue.min_queue_offset
    while at < queue.max_queue_offset:
        units = queue.units_from(at)
        if units is None:
            at = queue.next_file_queue_offset(at)
            continue
        for unit in units:
            yield unit
            at = unit.queue_offset + unit.message_count


def _pull_all(reader: Reader, topic: str, queue_id: int, expression: str) -> list[int]:
    at = reader.queue(topic, queue_id).min_queue_offset
    places: list[int] = []
    while True:
        found = reader.get_message(topic, queue_id, at, 32, expression)
        places += [message.physical_offset for message in found.messages]
        if found.next_begin_offset <= at:
            return places
        at = found.next_begin_offset


def batch_store(version: str = "5.5.1") -> Reader:
    units = [
        (0, SIZE, 97, 1000, 0, 4),
        (SIZE, SIZE, 98, 2000, 4, 1),
        (2 * SIZE, SIZE, 97, 3000, 5, 10),
        (3 * SIZE, SIZE, 97, 4000, 15, 2),
    ]
    files = {
        f"commitlog/{segment_name(0)}": log_file(
            [record(n * SIZE, properties={"TAGS": "a"}) for n in range(4)], LOG_FILE
        ),
        f"batchconsumequeue/B/0/{segment_name(0)}": batch_queue_file(units[:3], 138),
        f"batchconsumequeue/B/0/{segment_name(138)}": batch_queue_file(units[3:], 138),
    }
    return open_reader(made_store(files, commitlog_file_size=LOG_FILE, batch_file_size=138), rules_for(version))


def test_a_batch_queue_is_found_by_any_offset_inside_a_batch() -> None:
    with batch_store() as reader:
        queue = reader.queue("B", 0)
        assert (queue.min_queue_offset, queue.max_queue_offset) == (0, 17)
        assert summary(reader.get_message("B", 0, 3)) == ("FOUND", 15, [0, SIZE, 2 * SIZE])
        assert summary(reader.get_message("B", 0, 9)) == ("FOUND", 15, [2 * SIZE])
        assert summary(reader.get_message("B", 0, 16)) == ("FOUND", 17, [3 * SIZE])
        assert summary(reader.get_message("B", 0, 0, 5)) == ("FOUND", 5, [0, SIZE])
        assert summary(reader.get_message("B", 0, 0, 32, "b")) == ("FOUND", 15, [SIZE])


def test_brokers_without_batch_queues_know_none() -> None:
    with batch_store("4.9.8") as reader:
        assert summary(reader.get_message("B", 0, 0)) == ("NO_MESSAGE_IN_QUEUE", 0, [])


def test_queues_in_a_database_need_a_library(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtool.store.databases.rocksdb.LIBRARY", "no_such_library")
    with open_golden(golden("5.5.0-rocksdb-cq"), "5.5.0-rocksdb-cq", "5.5.0") as reader:
        (topic,) = {each.topic for each in manifest("5.5.0-rocksdb-cq").records[:1]}
        with pytest.raises(UnsupportedError, match="RocksDB"):
            reader.get_message(topic, 0, 0)


def test_a_log_kept_by_dledger_is_said_to_be_unsupported(golden: Unpacked) -> None:
    name = "broker-4.9.7-dledger"
    with pytest.raises(UnsupportedError, match="DLedger"):
        open_reader(survey(open_directory(golden(name))), rules_for("4.9.7"))
