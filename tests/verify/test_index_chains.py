"""The compiled loop over an index file's chains tells what the sort tells."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtool.verify.index_map import _compiled_chains, _plain_chains


@pytest.mark.parametrize(("slot_count", "counts"), [(1, (5, 3)), (7, (100, 1, 50)), (5_000, (20_000, 20_000))])
def test_both_loops_agree(slot_count: int, counts: tuple[int, ...]) -> None:
    chance = np.random.default_rng(slot_count)
    plain, compiled = np.zeros(slot_count, np.int32), np.zeros(slot_count, np.int32)
    number = 1
    for count in counts:
        slots = chance.integers(0, slot_count, count, np.int64)
        expected = _plain_chains(slots, number, plain)
        assert np.array_equal(_compiled_chains(slots, number, compiled), expected)
        assert np.array_equal(plain, compiled)
        assert (expected < np.arange(number, number + count)).all()
        number += count
