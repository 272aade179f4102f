"""Batch bodies fall into the parts of which they were made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.batch import BATCH_PART_SIZE_MIN, BatchPart, join_batch
from tests.formats.reference import split_batch

parts = st.builds(
    BatchPart, flag=st.integers(-(2**31), 2**31 - 1), body=st.binary(max_size=50), properties=st.binary(max_size=50)
)
TWO = [BatchPart(-1, b"hi", b"a\x01b\x02"), BatchPart(0, b"", b"")]
TWO_RAW = bytes.fromhex(
    "0000001c 00000000 00000000 ffffffff 00000002 6869 0004 6101620200000016 00000000 00000000 00000000 00000000 0000"
)


def test_two_parts() -> None:
    assert join_batch(TWO) == TWO_RAW
    assert split_batch(TWO_RAW) == TWO
    assert BATCH_PART_SIZE_MIN == 22


def test_no_parts() -> None:
    assert split_batch(join_batch([])) == []


@given(st.lists(parts, max_size=8))
def test_what_is_joined_is_split(found: list[BatchPart]) -> None:
    assert split_batch(join_batch(found)) == found


def test_a_cut_batch_is_an_error() -> None:
    for length in set(range(len(TWO_RAW))) - {0, 28}:
        with pytest.raises(ValueError, match=f"at byte {0 if length < 28 else 28}"):
            split_batch(TWO_RAW[:length])


@pytest.mark.parametrize(("at", "value"), [(0, 27), (0, 29), (16, 3), (16, -1), (16, 2**31 - 1), (22, -1)])
def test_a_wrong_length_is_an_error(at: int, value: int) -> None:
    raw = (
        TWO_RAW[:at] + value.to_bytes(2 if at == 22 else 4, "big", signed=True) + TWO_RAW[at + (2 if at == 22 else 4) :]
    )
    with pytest.raises(ValueError, match="batch part at byte 0"):
        split_batch(raw)


@given(st.binary(max_size=80))
def test_random_bytes_are_parts_or_an_error(raw: bytes) -> None:
    try:
        found = split_batch(raw)
    except ValueError:
        return
    assert sum(BATCH_PART_SIZE_MIN + len(part.body) + len(part.properties) for part in found) == len(raw)


def test_a_batch_of_very_many_parts_takes_no_square_of_time() -> None:
    body = join_batch([BatchPart(0, b"", b"")]) * 20_000
    assert len(split_batch(body)) == 20_000
