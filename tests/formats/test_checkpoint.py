"""The checkpoint file is read as it was written, however short it is, and impossible numbers are named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats import checkpoint

int64 = st.integers(-(2**63), 2**63 - 1)


@given(st.builds(checkpoint.Checkpoint, *[int64] * 6))
def test_a_checkpoint_is_read_as_it_was_written(found: checkpoint.Checkpoint) -> None:
    raw = checkpoint.build_checkpoint(found)
    assert len(raw) == 4096
    assert not any(raw[48:])
    assert checkpoint.parse_checkpoint(raw) == found


@pytest.mark.parametrize("length", [0, 7, 8, 12, 24, 47])
def test_a_short_checkpoint_is_filled_with_zeros(length: int) -> None:
    raw = checkpoint.build_checkpoint(checkpoint.Checkpoint(1, 2, 3, 4, 5, 6))
    assert checkpoint.parse_checkpoint(raw[:length]) == checkpoint.parse_checkpoint(raw[:length] + bytes(4096 - length))


def test_no_checkpoint_is_all_zero() -> None:
    assert checkpoint.parse_checkpoint(b"") == checkpoint.Checkpoint()


@pytest.mark.parametrize(
    ("values", "log_end", "names"),
    [
        ((1, 2, 3, 4, 5, 6), None, []),
        ((-1, 0, 0, 0, -5, 0), None, ["commitlog_timestamp_ms", "confirm_physical_offset"]),
        ((0, 0, 0, 0, 100, 101), 100, ["consumequeue_physical_offset"]),
        ((checkpoint.LATEST_MS, 0, 0, 0, 0, 0), 100, []),
        ((checkpoint.LATEST_MS + 1, 0, 0, 0, 0, 0), 100, ["commitlog_timestamp_ms"]),
        ((checkpoint.LATEST_MS + 1, 0, 0, 0, 1 << 60, 0), None, []),
    ],
)
def test_impossible_fields(values: tuple[int, ...], log_end: int | None, names: list[str]) -> None:
    assert checkpoint.impossible_fields(checkpoint.Checkpoint(*values), log_end) == names
