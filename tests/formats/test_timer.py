"""The timer's files: their sizes, bits of units, and what is packed is what the declared formats read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats import timer

int64 = st.integers(-(2**63), 2**63 - 1)


@given(st.builds(timer.TimerCheck, *[int64] * 7))
def test_a_checkpoint_is_read_as_it_was_written(check: timer.TimerCheck) -> None:
    raw = timer.build_check(check)
    assert len(raw) == timer.CHECK_FILE_SIZE
    assert timer.parse_check(raw) == check
    assert timer.parse_check(raw[: timer.CHECK_SIZE]) == check


def test_a_short_checkpoint_is_filled_with_zeros() -> None:
    raw = timer.build_check(timer.TimerCheck(1, 2, 3, 4, 5, 6, 7))
    assert timer.parse_check(raw[:16]) == timer.TimerCheck(1, 2)
    assert timer.parse_check(b"") == timer.TimerCheck()


def test_packed_slots_and_units_are_what_the_formats_declare() -> None:
    slot = timer.SLOT.struct.parse(timer.pack_slot((1, 2, 3, -4, 5)))
    assert [slot[field.name] for field in timer.SLOT.fields] == [1, 2, 3, -4, 5]
    values = [timer.UNIT_SIZE, -1, 1, 10, 11, 12, 13, 14, 0]
    unit = timer.UNIT.struct.parse(timer.pack_unit(values))
    assert [unit[field.name] for field in timer.UNIT.fields] == values


def test_a_blank_has_its_magic_and_size() -> None:
    blank = timer.BLANK.struct.parse(timer.pack_blank(68))
    assert (blank.size, blank.magic) == (68, timer.BLANK_MAGIC)


@pytest.mark.parametrize(("magic", "is_unit"), [(0, True), (7, True), (15, True), (16, False), (-1, False)])
def test_bits_that_a_broker_takes_for_those_of_a_unit(magic: int, is_unit: bool) -> None:
    assert timer.is_unit_magic(magic) is is_unit


def test_the_wheel_has_a_slot_for_each_second_of_two_weeks() -> None:
    assert timer.WHEEL_SIZE == 14 * 24 * 3600 * timer.SLOT_SIZE
