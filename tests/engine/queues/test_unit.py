"""How many units of a block a recovery takes: up to the first that is negative, or has no size."""

from __future__ import annotations

from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.engine.queues.unit import (
    BATCH,
    BATCH_UNITS,
    PLAIN,
    PLAIN_UNITS,
    Extension,
    QueueUnit,
    whole_units,
)

odd = st.sampled_from([0, 1, -1, 255, 256, 1 << 24, -(1 << 31), (1 << 31) - 1])
longs = st.sampled_from([0, 1, 256, 1 << 40, -1, -(1 << 63)])
shorts = st.sampled_from([0, 1, 256, -1, -(1 << 15)])


@given(st.lists(st.tuples(longs, odd, longs), max_size=12), st.binary(max_size=19))
def test_plain_units_count_up_to_the_first_invalid_one(units: list[tuple[int, int, int]], rest: bytes) -> None:
    expected = len(list(takewhile(lambda unit: unit[0] >= 0 and unit[1] > 0, units)))
    assert PLAIN_UNITS.valid_count(b"".join(PLAIN.pack(*unit) for unit in units) + rest) == expected


@given(st.lists(st.tuples(longs, odd, longs, longs, longs, shorts), max_size=12), st.binary(max_size=45))
def test_batch_units_count_up_to_the_first_invalid_one(units: list[tuple[int, ...]], rest: bytes) -> None:
    expected = len(list(takewhile(lambda unit: unit[0] >= 0 and unit[1] > 0 and unit[4] >= 0 and unit[5] > 0, units)))
    assert BATCH_UNITS.valid_count(b"".join(BATCH.pack(*unit, -1, 0) for unit in units) + rest) == expected


@pytest.mark.parametrize(("length", "whole"), [(0, 0), (19, 0), (20, 20), (41, 40)])
def test_a_block_ends_with_a_whole_unit(length: int, whole: int) -> None:
    assert len(whole_units(bytes(length), 20)) == whole


@pytest.mark.parametrize(
    ("stored", "extension", "code"),
    [
        (7, None, 7),
        (-(1 << 31), None, -(1 << 31)),
        (-(1 << 63), None, None),
        (-(1 << 63), Extension(20, 42, 0), 42),
    ],
)
def test_the_code_to_filter_by(stored: int, extension: Extension | None, code: int | None) -> None:
    assert QueueUnit(0, 0, 1, stored, extension=extension).tags_code == code
