"""The compiled loop that enters index entries into their chains does what the plain one does."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtool.engine.dispatch.index_writer import OpenIndexFile, compiled_chain, plain_chain
from rmqtool.formats.index import IndexHeader


@pytest.mark.parametrize("slot_count", [1, 7, 5_000])
def test_both_loops_agree(slot_count: int) -> None:
    chance = np.random.default_rng(slot_count)
    # A crash leaves slots that name entries which were not written, or none: they count as empty.
    slots = chance.integers(-3, 400, slot_count, np.int32)
    plain, compiled = (OpenIndexFile("index/1", IndexHeader(), slots.copy()) for _ in range(2))
    number = 200
    for count in (3, 0, 1, 5_000, 20_000):
        hashes = chance.integers(0, 1 << 31, count).astype(np.int32)
        expected, found = plain_chain(plain, hashes, number), compiled_chain(compiled, hashes, number)
        assert found[1] == expected[1]
        for one, other in ((found[0], expected[0]), (compiled.slots, plain.slots)):
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)
        assert np.array_equal(compiled.changed_pages, plain.changed_pages)
        assert (expected[0] <= np.arange(number, number + count)).all()
        number += count
    assert compiled.changed_pages.all()
