"""The compiled loop that enters index entries into their chains does what the plain one does."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtool.engine.dispatch.index_entries import IndexEntries
from rmqtool.engine.dispatch.index_writer import OpenIndexFile, compiled_enter, plain_enter
from rmqtool.formats.index import ENTRY, IndexHeader


@pytest.mark.parametrize("slot_count", [1, 7, 5_000])
def test_both_loops_agree(slot_count: int) -> None:
    chance = np.random.default_rng(slot_count)
    # A crash leaves slots that name entries which were not written, or none: they count as empty.
    slots = chance.integers(-3, 400, slot_count, np.int32)
    plain, compiled = (OpenIndexFile("index/1", IndexHeader(), slots.copy()) for _ in range(2))
    number, longest = 200, np.iinfo(np.int64).max
    for count in (3, 0, 1, 5_000, 20_000):
        hashes = chance.integers(0, 1 << 31, count).astype(np.int32)
        offsets, times_ms = chance.integers(0, longest, count), chance.integers(-longest, longest, count)
        times_ms[::2] = chance.integers(0, 1 << 42, times_ms[::2].size)
        entries = IndexEntries(hashes, offsets, times_ms, ends_without=False)
        begins = (count % 2 * 1_700_000_000_000, 1_700_000_000_000 if count != 5_000 else -1)
        expected, newly_used = plain_enter(plain, number, entries, begins)
        raw, compiled_newly_used = compiled_enter(compiled, number, entries, begins)
        assert raw == expected
        assert compiled_newly_used == newly_used
        assert np.array_equal(compiled.slots, plain.slots)
        assert np.array_equal(compiled.changed_pages, plain.changed_pages)
        rows = np.frombuffer(raw, ENTRY.dtype)
        assert (rows["physical_offset"] == offsets).all()
        assert (rows["previous_entry"] <= np.arange(number, number + count)).all()
        number += count
    assert compiled.changed_pages.all()
