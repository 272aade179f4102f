"""`dump` of the timer's files: what a real broker's wheel, log and checkpoint hold, damage included."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rmqtool.formats.timer import CHECK_FILE_SIZE, SLOT_COUNT, UNIT_SIZE, WHEEL_SIZE, TimerCheck, build_check, pack_unit
from tests import golden_stores
from tests.conftest import Unpacked
from tests.dump.row_schema import dumped
from tests.store_state import assert_store_unchanged

STORE = "broker-5.5.0-timer"
LOG = "timerlog/00000000000000000000"
FILE = "00000000000000000000"
JsonRow = dict[str, Any]


def test_each_unit_is_of_the_message_that_the_broker_acknowledged(golden: Unpacked) -> None:
    store = golden(STORE)
    sent = golden_stores.broker_manifest(STORE)["acknowledged"]
    with assert_store_unchanged(store):
        code, units = dumped(store, "--type", "timerlog")
    assert code == 0
    assert [unit["physical_offset"] for unit in units] == [message["physical_offset"] for message in sent]
    for unit, message in zip(units, sent, strict=True):
        assert unit["deletes"] == ("TIMER_DEL_UNIQKEY" in message)
        if "TIMER_DELAY_SEC" in message:
            assert unit["delay_ms"] <= int(message["TIMER_DELAY_SEC"]) * 1000


def test_slots_lead_to_the_units_of_their_second(golden: Unpacked) -> None:
    store = golden(STORE)
    _, units = dumped(store, "--type", "timerlog")
    code, slots = dumped(store, "--type", "timerwheel")
    assert code == 0
    by_position = {unit["position"]: unit for unit in units}
    reached = set()
    for slot in slots:
        assert slot["number"] == slot["due_tick"] % SLOT_COUNT
        position = slot["last_position"]
        while position != -1:
            assert by_position[position]["due_timestamp_ms"] == slot["due_tick"] * 1000
            reached.add(position)
            first, position = position, by_position[position]["previous_position"]
        assert first == slot["first_position"]
    assert reached == by_position.keys()


def test_the_checkpoint_tells_how_far_the_timer_came(golden: Unpacked) -> None:
    code, [row] = dumped(golden(STORE), "--type", "timercheck")
    assert code == 0
    assert (row["flushed_position"], row["queue_offset"], row["master_queue_offset"]) == (3120, 61, 61)
    assert dumped(golden(STORE) / "config/timercheck")[1] == [row]
    assert dumped(golden(STORE) / "config/timermetrics")[1][0]["type"] == "config"


def test_bytes_are_shown_field_by_field(golden: Unpacked) -> None:
    for kind in ("timerlog", "timerwheel", "timercheck"):
        code, rows = dumped(golden(STORE), "--type", kind, "--hex", "--limit", "1")
        assert code == 0
        assert rows[0]["bytes"]


def unit(position: int, due_ms: int = 5000, previous: int = -1) -> bytes:
    return pack_unit((UNIT_SIZE, previous, 1, 1000, due_ms - 1000, position, 100, 7, 0))


def write_log(folder: Path, content: bytes, size: int = 1000) -> Path:
    path = folder / LOG
    path.parent.mkdir(parents=True)
    path.write_bytes(content.ljust(size, b"\0"))
    return path


def test_bytes_that_are_no_unit_are_a_row(tmp_path: Path) -> None:
    path = write_log(tmp_path, unit(0) + bytes(UNIT_SIZE) + b"\xff" * UNIT_SIZE + unit(1) + b"rest")
    code, rows = dumped(path)
    assert code == 3
    assert [(row["type"], row.get("file_position", row.get("position")), row["size"]) for row in rows] == [
        ("timer-unit", 0, 52),
        ("bad", 52, 104),
        ("timer-unit", 156, 52),
        ("bad", 208, 52),
    ]
    assert {row["finding"] for row in rows if row["type"] == "bad"} == {"timer.bad-unit"}


@pytest.mark.parametrize("room", [16, 20, 52, 67])
def test_the_blank_that_ends_a_file(tmp_path: Path, room: int) -> None:
    blank = room.to_bytes(4, "big") + bytes(8) + (-875286124).to_bytes(4, "big", signed=True)
    path = write_log(tmp_path, unit(0) + unit(1) + blank, 2 * UNIT_SIZE + room)
    code, rows = dumped(path)
    assert (code, [row["type"] for row in rows]) == (0, ["timer-unit", "timer-unit", "timer-blank"])
    assert (rows[-1]["position"], rows[-1]["size"]) == (104, room)


def test_positions_go_on_over_files(tmp_path: Path) -> None:
    folder = write_log(tmp_path, unit(0), 104).parent
    (folder / "00000000000000000104").write_bytes(unit(1) + bytes(52))
    _, rows = dumped(folder)
    assert [row["position"] for row in rows] == [0, 104]
    assert all(first["position"] < second["position"] for first, second in pairwise(rows))


def test_a_wheel_and_a_checkpoint_of_another_length_are_named(tmp_path: Path) -> None:
    (tmp_path / "timerwheel").write_bytes(bytes(1000))
    code, rows = dumped(tmp_path / "timerwheel")
    assert (code, [row["finding"] for row in rows]) == (3, ["timer.wrong-file-size"])
    (tmp_path / "config").mkdir()
    check = build_check(TimerCheck(5, 6, 7, 8))
    assert len(check) == CHECK_FILE_SIZE
    (tmp_path / "config/timercheck").write_bytes(check[:20])
    code, rows = dumped(tmp_path / "config/timercheck")
    assert (code, rows[0]["finding"], rows[0]["read_timestamp_ms"]) == (3, "timer.bad-check", 5)


def test_empty_and_hollow_files_have_no_rows(tmp_path: Path) -> None:
    with (tmp_path / "timerwheel").open("wb") as wheel:
        wheel.truncate(WHEEL_SIZE)
    assert dumped(tmp_path / "timerwheel") == (0, [])
    assert dumped(write_log(tmp_path, b"", 104_857_600)) == (0, [])
