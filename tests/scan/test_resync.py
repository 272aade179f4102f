"""After damage the search finds the next good record, wherever it begins, and no record inside a body."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.commitlog import MAGIC_BLANK
from rmqtool.scan.blocks import Window
from rmqtool.scan.walk import FIRST_STEP, find_next
from rmqtool.store.source import BytesSource
from tests.scan.logs import Message

BASE = 1 << 30


def searched(content: bytes, start: int = 0, *, is_good: bool | None = True) -> int | None:
    source = BytesSource("log", content)
    return find_next(Window(source), start, source.size, BASE, lambda _position: is_good)


@given(st.integers(0, 3 * FIRST_STEP), st.binary(max_size=40))
def test_a_record_is_found_wherever_it_begins(garbage: int, before: bytes) -> None:
    position = garbage + len(before)
    content = bytes(garbage) + before + Message().record(BASE + position) + bytes(100)
    assert searched(content) == position
    assert searched(content, position) == position
    assert searched(content, position + 1) is None


def test_a_record_at_the_border_of_two_steps_is_found() -> None:
    for position in range(FIRST_STEP - 120, FIRST_STEP + 4):
        assert searched(b"x" * position + Message().record(BASE + position)) == position


def test_a_record_of_another_place_is_passed_over() -> None:
    foreign = Message().record(BASE + 7777)
    own = Message().record(BASE + len(foreign))
    assert searched(foreign + own) == len(foreign)
    assert searched(foreign) is None


def test_a_blank_that_fills_the_file_is_found() -> None:
    blank = (100).to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big", signed=True) + bytes(92)
    assert searched(b"x" * 50 + blank) == 50
    assert searched(b"x" * 50 + blank + b"x") is None


def test_the_judge_has_the_last_word() -> None:
    content = Message().record(BASE) + bytes(50)
    assert searched(content, is_good=False) is None
    assert searched(content, is_good=None) is None
