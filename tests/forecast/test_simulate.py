"""What single versions do with small made stores: the places where their rules part."""

from __future__ import annotations

import gc
import struct
import weakref
from typing import Any

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UnsupportedError
from rmqtool.forecast.forecast import forecast_store
from rmqtool.forecast.options import ForecastOptions
from rmqtool.forecast.result import Forecast
from rmqtool.forecast.simulate import Simulation
from rmqtool.formats import commitlog
from tests.engine.memory_view import log_file, made_store, queue_file, record, segment_name

FILE = 4096
QUEUE_FILE = 200
SIZES: dict[str, Any] = {"commitlog_file_size": FILE, "consumequeue_file_size": QUEUE_FILE}
BLANK = struct.Struct(">ii")

Files = dict[str, bytes]


def messages(count: int, *, start: int = 0, first: int = 0, **fields: Any) -> list[bytes]:
    """Records of queue T/0 one behind the other."""
    made: list[bytes] = []
    at = start
    for number in range(count):
        made.append(record(at, queue_offset=first + number, **fields))
        at += len(made[-1])
    return made


def full_file(records: list[bytes]) -> bytes:
    """A file that is closed by a blank."""
    used = b"".join(records)
    return (used + BLANK.pack(FILE - len(used), commitlog.MAGIC_BLANK)).ljust(FILE, b"\0")


def units(records: list[bytes], start: int = 0) -> list[tuple[int, int, int]]:
    """The queue's units of these records."""
    found = []
    for each in records:
        found.append((start, len(each), 0))
        start += len(each)
    return found


def healthy(count: int = 5) -> Files:
    made = messages(count)
    return {
        f"commitlog/{segment_name(0)}": log_file(made, FILE),
        f"consumequeue/T/0/{segment_name(0)}": queue_file(units(made), QUEUE_FILE),
    }


def forecast(files: Files, version: str, **options: Any) -> Forecast:
    return forecast_store(made_store(files, **SIZES), rules_for(version), ForecastOptions(**options))


def bounds(found: Forecast) -> list[tuple[str, int, int, int]]:
    return [(queue.topic, queue.queue_id, queue.min_queue_offset, queue.max_queue_offset) for queue in found.queues]


@pytest.mark.parametrize("version", ["4.4.0", "4.9.8", "5.0.0", "5.3.3", "5.4.0", "5.5.1"])
@pytest.mark.parametrize("crashed", [False, True])
def test_a_healthy_store_loses_nothing(version: str, crashed: bool) -> None:
    files = healthy() | ({"abort": b""} if crashed else {})
    found = forecast(files, version)
    assert found.starts
    assert found.mode == ("abnormal" if crashed else "normal")
    assert (found.lost.messages, found.deleted_files) == (0, ())
    assert bounds(found) == [("T", 0, 0, 5)]
    assert [queue.offsets_repeat for queue in found.queues] == [False]


def test_a_stray_file_stops_most_versions_and_hides_the_rest_from_others() -> None:
    made = messages(3)
    files = healthy() | {
        f"commitlog/{segment_name(FILE)}": log_file(messages(3, start=FILE, first=5), FILE),
        f"commitlog/{segment_name(1)}.bak": b"x",
    }
    assert len(made) == 3
    assert not forecast(files, "4.9.8").starts
    assert not forecast(files, "5.5.0").starts
    found = forecast(files, "4.9.2")
    assert found.starts
    assert found.log_end_offset == sum(map(len, messages(5)))
    assert found.lost.by_topic == {"T": 3}


@pytest.mark.parametrize(("version", "starts"), [("4.9.8", False), ("5.1.2", False), ("5.1.3", True)])
def test_an_empty_last_file(version: str, starts: bool) -> None:
    path = f"commitlog/{segment_name(FILE)}"
    found = forecast(healthy() | {path: b""}, version)
    assert found.starts is starts
    assert found.deleted_files == ((path,) if starts else ())
    if not starts:
        assert found.why_not is not None
        assert path in found.why_not


@pytest.mark.parametrize(("version", "starts"), [("5.0.0", True), ("5.1.0", False), ("5.3.3", False), ("5.5.1", False)])
def test_the_left_over_file_of_a_compaction(version: str, starts: bool) -> None:
    path = f"compaction/compactionLog/T/0/{segment_name(FILE)}.delete"
    found = forecast(healthy() | {path: b""}, version)
    assert found.starts is starts
    if not starts:
        assert found.why_not is not None
        assert path in found.why_not


@pytest.mark.parametrize(("version", "end"), [("5.0.0", 1), ("5.1.0", 3)])
def test_the_second_magic_is_the_end_of_the_log_for_old_versions(version: str, end: int) -> None:
    first = record(0)
    second = record(len(first), queue_offset=1, magic=commitlog.MAGIC_V2)
    third = record(len(first + second), queue_offset=2)
    made = [first, second, third]
    files = {
        f"commitlog/{segment_name(0)}": log_file(made, FILE),
        f"consumequeue/T/0/{segment_name(0)}": queue_file(units(made), QUEUE_FILE),
    }
    found = forecast(files, version)
    assert found.log_end_offset == len(b"".join(made[:end]))
    assert found.lost.messages == 3 - end
    assert bounds(found) == [("T", 0, 0, end)]
    assert [queue.offsets_repeat for queue in found.queues] == [end < 3]


@pytest.mark.parametrize(("version", "served"), [("4.9.8", 10), ("5.3.1", 5), ("5.3.3", 9), ("5.5.0", 9)])
def test_abort_removed_by_hand(version: str, served: int) -> None:
    made = messages(10)
    files = {
        f"commitlog/{segment_name(0)}": log_file(made, FILE),
        f"consumequeue/T/0/{segment_name(0)}": queue_file(units(made)[:5], QUEUE_FILE),
    }
    found = forecast(files, version)
    assert found.lost.messages == 10 - served
    assert bounds(found) == [("T", 0, 0, served)]
    # With `abort` kept nothing is lost on any version.
    assert forecast(files | {"abort": b""}, version).lost.messages == 0


@pytest.mark.parametrize(("version", "starts"), [("4.9.8", False), ("5.3.1", False), ("5.3.2", True)])
def test_a_huge_size_ends_versions_that_believe_it(version: str, starts: bool) -> None:
    files = healthy()
    path = f"commitlog/{segment_name(0)}"
    end = len(b"".join(messages(5)))
    files[path] = files[path][:end] + BLANK.pack(0x7FFFFFFF, commitlog.MAGIC_V1) + files[path][end + 8 :]
    found = forecast(files, version)
    assert found.starts is starts
    if not starts:
        assert found.why_not is not None
        assert "memory" in found.why_not


@pytest.mark.parametrize(("version", "served"), [("5.3.3", 52), ("5.4.0", 40)])
def test_no_more_than_ten_files_are_searched(version: str, served: int) -> None:
    files: Files = {"abort": b""}
    for number in range(13):
        made = messages(4, start=number * FILE, first=number * 4)
        files[f"commitlog/{segment_name(number * FILE)}"] = full_file(made) if number < 12 else log_file(made, FILE)
    found = forecast(files, version)
    assert found.lost.messages == 52 - served
    assert bounds(found) == [("T", 0, 52 - served, 52)]
    assert found.filler_units == (52 - served) % (QUEUE_FILE // 20)
    assert forecast(files, version, recover_files_max=13).lost.messages == 0


@pytest.mark.parametrize(("version", "gone"), [("4.4.0", 0), ("4.5.1", 1), ("5.5.0", 1)])
def test_an_empty_log_takes_the_queues_with_it(version: str, gone: int) -> None:
    files = healthy()
    del files[f"commitlog/{segment_name(0)}"]
    found = forecast(files, version)
    assert found.starts
    assert len(found.deleted_files) == gone


def test_stale_units_behind_a_bad_one_come_back() -> None:
    made = messages(10)
    listed = units(made)
    listed[2] = (-1, 0, 0)
    files = {
        f"commitlog/{segment_name(0)}": log_file(made, FILE),
        f"consumequeue/T/0/{segment_name(0)}": queue_file(listed, QUEUE_FILE),
        f"consumequeue/U/0/{segment_name(0)}": queue_file([units(made)[9]], QUEUE_FILE),
        "abort": b"",
        "checkpoint": struct.pack(">6q", 2_000_000, 2_000_000, 0, 0, 0, 0).ljust(4096, b"\0"),
    }
    found = forecast(files, "5.3.3")
    assert bounds(found)[0] == ("T", 0, 0, 10)
    assert found.lost.messages == 0


def test_damage_that_is_not_looked_at_is_listed() -> None:
    made = messages(4)
    broken = bytearray(b"".join(made))
    broken[len(made[0]) + 90] ^= 1
    files = healthy()
    later = messages(2, start=FILE, first=4)
    files[f"commitlog/{segment_name(0)}"] = full_file([bytes(broken)])
    files[f"commitlog/{segment_name(FILE)}"] = log_file(later, FILE)
    files[f"consumequeue/T/0/{segment_name(0)}"] = queue_file([*units(made), *units(later, FILE)], QUEUE_FILE)
    found = forecast(files, "5.5.0")
    assert found.scan_start_offset == FILE
    assert [(damage.finding, damage.physical_offset) for damage in found.unnoticed_damage] == [
        ("commitlog.body-crc-mismatch", len(made[0]))
    ]
    old = forecast(files, "5.3.1")
    assert (old.log_end_offset, old.lost.messages) == (len(made[0]), 4)
    assert old.stops_at is not None
    assert old.stops_at.finding == "commitlog.body-crc-mismatch"
    assert old.deleted_files == (f"commitlog/{segment_name(FILE)}",)


def test_a_file_without_blank_hides_the_next() -> None:
    made, later = messages(4), messages(2, start=FILE, first=4)
    files = {
        "abort": b"",
        f"commitlog/{segment_name(0)}": log_file(made, FILE),
        f"commitlog/{segment_name(FILE)}": log_file(later, FILE),
    }
    found = forecast(files, "4.9.8")
    assert found.stops_at is not None
    assert (found.stops_at.physical_offset, found.stops_at.finding) == (
        len(b"".join(made)),
        "commitlog.missing-end-blank",
    )
    assert found.lost.messages == 2


def test_a_record_that_lies_about_its_place_is_entered_where_it_says() -> None:
    made = messages(3)
    made[1] = made[1][:28] + bytes(8) + made[1][36:]
    files = {"abort": b"", f"commitlog/{segment_name(0)}": log_file(made, FILE)}
    found = forecast(files, "5.5.0")
    assert found.log_end_offset == len(b"".join(made))
    # Its end lies in front of what was entered already, so it has no unit, and the next one moves up.
    assert bounds(found) == [("T", 0, 0, 2)]


@pytest.mark.parametrize(("version", "records"), [("5.4.0", 3), ("5.5.0", 1)])
def test_the_own_place_can_be_checked(version: str, records: int) -> None:
    made = messages(3)
    made[1] = made[1][:28] + struct.pack(">q", FILE + 1) + made[1][36:]
    files = {"abort": b"", f"commitlog/{segment_name(0)}": log_file(made, FILE)}
    found = forecast(files, version, check_physical_offset=True)
    assert found.log_end_offset == len(b"".join(made[:records]))
    assert forecast(files, version).log_end_offset == len(b"".join(made))


def test_other_kinds_of_store_are_named() -> None:
    with pytest.raises(UnsupportedError, match="DLedger"):
        forecast({"dledger-n0/data/00000000000000000000": b"x"}, "4.9.8")
    rocks = healthy() | {"consumequeue/CURRENT": b"MANIFEST-000001\n"}
    assert forecast(rocks, "5.5.0").not_simulated == ("queues in RocksDB, beside those in files",)
    del rocks[f"consumequeue/T/0/{segment_name(0)}"]
    assert not forecast(rocks, "5.5.0").starts
    assert forecast(rocks, "5.1.4").starts


def test_the_json_has_the_names_of_the_contract() -> None:
    found = forecast(healthy(), "5.5.0").as_json()
    assert found["lost"] == {"messages": 0, "bytes": 0, "by_topic": {}}
    assert found["queues"] == [
        {
            "topic": "T",
            "queue_id": 0,
            "min_queue_offset": 0,
            "max_queue_offset": 5,
            "next_queue_offset": 5,
            "offsets_repeat": False,
        }
    ]
    assert found["stops_at"] == {"physical_offset": found["log_end_offset"], "finding": None}


def test_a_record_that_no_queue_takes_is_not_where_the_queue_begins() -> None:
    wild = record(0, queue_offset=(1 << 63) // 20 - 1)
    made = [wild, *messages(3, start=len(wild), first=7)]
    found = forecast({"abort": b"", f"commitlog/{segment_name(0)}": log_file(made, FILE)}, "4.9.8")
    assert bounds(found) == [("T", 0, 0, 10)]  # filler stands in front


def test_topics_that_are_one_string_are_one_queue_in_the_order_of_the_log() -> None:
    size = len(record(0, topic="T\udcff"))
    topics = ("T\udcff", "T\udcfe")
    made = [record(size * number, queue_offset=number, topic=topics[number % 2]) for number in range(6)]
    found = forecast({"abort": b"", f"commitlog/{segment_name(0)}": log_file(made, FILE)}, "5.5.0")
    assert bounds(found) == [("T\ufffd", 0, 0, 6)]
    assert found.lost.messages == 0


@pytest.mark.parametrize(
    ("version", "is_clean"), [("4.4.0", False), ("4.9.7", False), ("4.9.7", True), ("5.3.1", False), ("5.5.1", True)]
)
def test_no_queue_gets_anything_after_a_topic_with_a_zero(version: str, *, is_clean: bool) -> None:
    """4.9.7, 5.3.1 and 5.5.0 make no file for such a queue, and then enter nothing in others either."""
    topics = ["T", "a\0", "T", "U"]
    contents: list[bytes] = []
    for number, topic in enumerate(topics):
        start = sum(map(len, contents))
        contents.append(record(start, topic, queue_offset=topics[:number].count(topic)))
    files = {f"commitlog/{segment_name(0)}": log_file(contents, FILE)} | ({} if is_clean else {"abort": b""})
    after = forecast(files, version)
    bounds = {queue.topic: (queue.min_queue_offset, queue.max_queue_offset) for queue in after.queues}
    assert after.starts
    assert bounds["T"] == (0, 1)
    assert bounds["a\0"] == bounds["U"] == (0, 0)
    assert after.lost.by_topic == {"T": 1, "U": 1, "a\0": 1}


def test_a_closed_simulation_is_freed_at_once_with_all_its_queues() -> None:
    gc.disable()  # it frees circles late, when many more simulations have run
    try:
        with Simulation(made_store(healthy(), **SIZES), rules_for("5.5.1"), ForecastOptions()) as simulation:
            simulation.run()
            states = [weakref.ref(simulation), weakref.ref(simulation.sides)]
        del simulation
        assert [state() for state in states] == [None, None]
    finally:
        gc.enable()
