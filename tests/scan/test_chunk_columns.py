"""What is gathered of a chunk are the columns of its rows, however many there are."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtool.scan import plain_rows
from rmqtool.scan.columns import MULTI_DISPATCH, row_dtype
from rmqtool.scan.plain_rows import (
    CHUNK,
    COMPILED_FROM_ROWS,
    GROWTH,
    RowColumnsBuilder,
)
from tests.scan.logs import numbered_rows


@pytest.mark.parametrize("room", [0, 1, 5, 100])
def test_rows_that_are_taken_are_kept_beyond_the_first_room(room: int) -> None:
    builder = RowColumnsBuilder(room)
    for first in range(0, 60, 20):
        builder.take(numbered_rows(first, 20))
    columns = builder.rows()
    assert len(columns) == builder.count == 60
    assert columns["physical_offset"].tolist() == list(range(60))
    assert columns["size"].tolist() == list(range(0, 120, 2))
    assert builder.rows(10, 12)["physical_offset"].tolist() == [10, 11]


@pytest.mark.parametrize("compiled", [False, True])
def test_rows_are_taken_with_all_their_columns(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_rows, "is_worth", lambda _count, _least: compiled)
    rows = np.zeros(COMPILED_FROM_ROWS, row_dtype())
    rows.view(np.int32)[:] = np.random.default_rng(1).integers(-(1 << 31), 1 << 31, rows.nbytes // 4)
    rows["features"] = 0
    with_features = rows[:10].copy()
    with_features["features"][7] = MULTI_DISPATCH
    builder = RowColumnsBuilder(10)
    assert not builder.take(rows)
    assert builder.take(with_features)
    for name in CHUNK:
        assert np.array_equal(builder.rows()[name], np.concatenate([rows[name], with_features[name]]))


def test_room_grows_by_more_than_what_was_taken() -> None:
    builder = RowColumnsBuilder(1)
    builder.take(numbered_rows(0, 2))
    grown = builder.rows()["size"].base
    builder.take(numbered_rows(2, GROWTH))
    assert builder.rows()["size"].base is grown


def test_a_builder_that_was_cleared_begins_again() -> None:
    builder = RowColumnsBuilder(10)
    builder.take(numbered_rows(0, 5))
    builder.count = 0
    builder.take(numbered_rows(7, 1))
    assert builder.rows()["physical_offset"].tolist() == [7]
