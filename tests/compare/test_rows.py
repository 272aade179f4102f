"""Totals of parts of a log add up to those of the log, and queues are numbered as they are met."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.compare.rows import ROW, LogTotals, QueueNumbers, TopicTotal, block_of, is_message, low_bits, sum_of

numbers = st.integers(0, 2**64 - 1)
topic_totals = st.builds(TopicTotal, st.integers(0, 9), st.integers(0, 999), st.none() | numbers)
offsets = st.none() | st.integers(0, 1 << 40)
totals = st.builds(
    LogTotals, offsets, offsets, st.dictionaries(st.sampled_from([b"a", b"b"]), topic_totals), st.integers(0, 9)
)


def merged(*parts: LogTotals) -> LogTotals:
    whole = LogTotals()
    for part in parts:
        whole.merge(part)
    return whole


@given(totals, totals, totals)
def test_parts_may_be_merged_in_any_grouping(one: LogTotals, two: LogTotals, three: LogTotals) -> None:
    assert merged(merged(one, two), three) == merged(one, merged(two, three))


def test_a_digest_that_is_not_known_makes_the_sum_unknown() -> None:
    total = TopicTotal(1, 10, 2**64 - 1)
    total.add(TopicTotal(2, 5, 3))
    assert total == TopicTotal(3, 15, 2)
    total.add(TopicTotal(1, 1, None))
    total.add(TopicTotal(1, 1, 1))
    assert total == TopicTotal(5, 17, None)


def test_queues_are_numbered_in_the_order_in_which_they_are_met() -> None:
    queues = QueueNumbers([(b"b", 1)])
    assert queues.numbers_of([(b"a", 0), (b"b", 1), (b"a", 0), (b"a", 1)]) == [1, 0, 1, 2]
    assert queues.keys == [(b"b", 1), (b"a", 0), (b"a", 1)]
    assert queues.translation([(b"a", 1), (b"c", 0)]).tolist() == [2, 3]


@given(st.lists(numbers, max_size=20))
def test_sums_of_digests_wrap(digests: list[int]) -> None:
    array = np.array(digests, np.uint64)
    assert sum_of(array) == sum(digests) % 2**64
    assert low_bits(array).tolist() == [digest % 2**32 for digest in digests]


def test_a_block_reaches_from_its_first_row_to_the_end_of_its_last() -> None:
    rows = np.zeros(3, ROW)
    rows["physical_offset"], rows["size"], rows["queue"] = [10, 20, 30], [10, 10, 7], [0, -1, -2]
    block = block_of(rows, 5)
    assert (block.begin, block.end, block.digest) == (10, 37, 5)
    assert is_message(rows).tolist() == [True, False, False]
