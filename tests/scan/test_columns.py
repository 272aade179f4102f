"""Rows of both readers are the same numbers under the same names."""

from __future__ import annotations

import numpy as np

from rmqtool.scan.columns import WIDE, Row, bare_row, row_dtype, row_tuples
from rmqtool.scan.rules import Verdict


def test_a_row_comes_back_from_an_array() -> None:
    rows = [Row(*range(len(Row._fields))), bare_row(1 << 40, 100, Verdict.BAD_SIZE, -1)]
    array = np.array(rows, row_dtype())
    assert row_tuples(array) == rows
    assert all(type(value) is int for row in row_tuples(array) for value in row)
    assert row_tuples(rows) is rows


def test_a_bare_row_has_its_place_only() -> None:
    row = bare_row(5, 6, Verdict.HOLE, 7)
    assert {name for name in Row._fields if getattr(row, name)} == {"physical_offset", "size", "verdict", "magic"}


def test_offsets_and_times_have_64_bits() -> None:
    assert {name for name in Row._fields if name.endswith(("_offset", "_ms"))} <= WIDE
    assert row_dtype()["physical_offset"].itemsize == 8
    assert row_dtype()["sys_flag"].itemsize == 4
