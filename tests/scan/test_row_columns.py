"""Rows by columns read like an array of rows, and are chosen from like one."""

from __future__ import annotations

import numpy as np

from rmqtool.scan.plain_rows import CHUNK, RowColumnsBuilder
from rmqtool.scan.row_columns import kept_rows
from tests.scan.logs import numbered_rows


def test_rows_are_chosen_by_number_slice_mask_and_numbers() -> None:
    builder = RowColumnsBuilder(10)
    builder.take(numbered_rows(0, 10))
    columns = builder.rows()
    assert columns[3] == dict.fromkeys(CHUNK, 0) | {"physical_offset": 3, "size": 6}
    assert columns[2:4]["size"].tolist() == [4, 6]
    assert columns[columns["size"] > 14]["physical_offset"].tolist() == [8, 9]
    assert columns[np.array([9, 0])]["physical_offset"].tolist() == [9, 0]


def test_a_mask_that_keeps_all_rows_copies_none() -> None:
    rows = numbered_rows(0, 3)
    assert kept_rows(rows, np.ones(3, np.bool_)) is rows
    assert kept_rows(rows, np.array([True, False, True]))["physical_offset"].tolist() == [0, 2]
