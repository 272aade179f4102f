"""Keyed sums over the entries of an index file, by which long runs of them are compared without being read again.

Each entry adds a number that is made of all that it says, with a key that nobody knew when the file was written: other
entries have the same sum by chance only, of 1 in 2^64. The sums themselves are made by `index_kernel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_bytes
from typing import Final, NamedTuple

import numpy as np

from rmqtool.engine.dispatch.index_entries import KERNEL
from rmqtool.scan.compiled import load_kernel
from rmqtool.verify.survey.queue_map import SAMPLE_EVERY, Array

_MASK: Final = (1 << 64) - 1


class SummedEntries(NamedTuple):
    """Entries of which only the sum is at hand."""

    entry_count: int
    total: int


@dataclass(frozen=True)
class EntrySums:
    """The sums of one file.

    Attributes:
        totals: of all entries below each multiple of `SAMPLE_EVERY`.
    """

    key: Array
    totals: Array

    @classmethod
    def of(cls, entry_count: int) -> EntrySums:
        """For a file of so many entries, of which none has been added."""
        return cls(np.frombuffer(token_bytes(16), np.uint64), np.zeros(entry_count // SAMPLE_EVERY + 2, np.uint64))

    def between(self, first: int, stop: int) -> SummedEntries:
        """Entries [first, stop), both multiples of `SAMPLE_EVERY`."""
        low, high = (int(self.totals[number // SAMPLE_EVERY]) for number in (first, stop))
        return SummedEntries(stop - first, high - low & _MASK)

    def are_met(self, summed: SummedEntries, first_number: int, begin_ms: int, expected: Sequence[Array]) -> bool:
        """Whether expected entries are those that were summed.

        Args:
            begin_ms: the file's, from which the times of its entries count.
            expected: hashes, physical offsets and times, as many as were summed.
        """
        total = load_kernel(KERNEL).expected_sum(self.key, first_number, begin_ms, *expected)
        return int(total) == summed.total
