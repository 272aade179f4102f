"""Columns come back as they were kept, in few bytes where few bytes do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.scan.row_cache import KeptColumn, columns_values, keep_column


def no_file(_place: int, _size: int) -> bytes:
    raise AssertionError("nothing was written")


@pytest.mark.parametrize("dtype", ["i4", "i8"])
@given(data=st.data())
def test_a_column_comes_back_as_it_was_kept(dtype: str, data: st.DataObject) -> None:
    bounds = np.iinfo(dtype)
    few = data.draw(st.lists(st.integers(int(bounds.min), int(bounds.max)), min_size=1, max_size=5))
    numbers = data.draw(
        st.one_of(
            st.lists(st.integers(int(bounds.min), int(bounds.max)), max_size=50),
            st.lists(st.integers(0, 300), max_size=50),
            st.lists(st.sampled_from(few), max_size=600),
        )
    )
    values = np.array(numbers, dtype)
    column = keep_column(values, lambda content: content)
    again = columns_values([column], len(values), no_file)[0]
    assert again.dtype == values.dtype
    assert again.tolist() == numbers


@pytest.mark.parametrize(
    ("numbers", "size"),
    [
        ([7] * 1000, 0),
        (list(range(1000, 1256)), 256),
        ([0, 1 << 60] * 500, 1000),
        ([*range(0, 70_000, 70)], 4000),
    ],
    ids=["equal", "narrow range", "few distinct", "wide range"],
)
def test_bytes_that_a_column_needs(numbers: list[int], size: int) -> None:
    kept: list[bytes] = []
    keep_column(np.array(numbers, "i8"), lambda content: kept.append(content) or content)
    assert sum(map(len, kept)) == size


def test_a_column_in_a_file_is_read_from_its_place() -> None:
    file = bytearray(b"before")

    def keep(content: bytes) -> int:
        file.extend(content)
        return len(file) - len(content)

    values = np.arange(100, dtype="i4") * 1000
    column = keep_column(values, keep)
    assert column.content == len(b"before")
    again = columns_values([column], 100, lambda place, size: bytes(file[place : place + size]))[0]
    assert (again == values).all()


def test_no_numbers_need_no_bytes() -> None:
    assert keep_column(np.empty(0, "i4"), no_bytes) == KeptColumn("<i4", "", 0, b"", b"")


def no_bytes(_content: bytes) -> bytes:
    raise AssertionError("nothing is to be kept")
