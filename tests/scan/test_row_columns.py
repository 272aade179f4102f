"""Rows by columns read like an array of rows, and are chosen from like one."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtool.scan.columns import row_dtype
from rmqtool.scan.row_columns import GROWTH, RowColumnsBuilder, kept_rows

NAMES = ("physical_offset", "size")


def rows_of(first: int, count: int) -> np.ndarray:
    rows = np.zeros(count, row_dtype())
    rows["physical_offset"] = np.arange(first, first + count)
    rows["size"] = rows["physical_offset"] * 2
    return rows


@pytest.mark.parametrize("room", [0, 1, 5, 100])
def test_rows_that_are_taken_are_kept_beyond_the_first_room(room: int) -> None:
    builder = RowColumnsBuilder(NAMES, room)
    for first in range(0, 60, 20):
        builder.take(rows_of(first, 20))
    columns = builder.rows()
    assert len(columns) == builder.count == 60
    assert columns["physical_offset"].tolist() == list(range(60))
    assert columns["size"].tolist() == list(range(0, 120, 2))
    assert builder.rows(10, 12)["physical_offset"].tolist() == [10, 11]


def test_room_grows_by_more_than_what_was_taken() -> None:
    builder = RowColumnsBuilder(NAMES, 1)
    builder.take(rows_of(0, 2))
    grown = builder.rows()["size"].base
    builder.take(rows_of(2, GROWTH))
    assert builder.rows()["size"].base is grown


def test_a_builder_that_was_cleared_begins_again() -> None:
    builder = RowColumnsBuilder(NAMES, 10)
    builder.take(rows_of(0, 5))
    builder.clear()
    builder.take(rows_of(7, 1))
    assert builder.rows()["physical_offset"].tolist() == [7]


def test_rows_are_chosen_by_number_slice_mask_and_numbers() -> None:
    builder = RowColumnsBuilder(NAMES, 10)
    builder.take(rows_of(0, 10))
    columns = builder.rows()
    assert columns[3] == {"physical_offset": 3, "size": 6}
    assert columns[2:4]["size"].tolist() == [4, 6]
    assert columns[columns["size"] > 14]["physical_offset"].tolist() == [8, 9]
    assert columns[np.array([9, 0])]["physical_offset"].tolist() == [9, 0]


def test_a_mask_that_keeps_all_rows_copies_none() -> None:
    rows = rows_of(0, 3)
    assert kept_rows(rows, np.ones(3, np.bool_)) is rows
    assert kept_rows(rows, np.array([True, False, True]))["physical_offset"].tolist() == [0, 2]
