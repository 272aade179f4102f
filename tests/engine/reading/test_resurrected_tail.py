"""Only records at the log's end that are older by the times of broker and producers are a tail that came back."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rmqtool.engine.reading.resurrected_tail import ResurrectedTail, resurrected_tail
from rmqtool.formats import commitlog
from rmqtool.scan.columns import row_dtype
from rmqtool.scan.rules import Verdict

SIZE = 100
SECOND = 1000


Queues = Sequence[tuple[int, int]]


def batches(stored: Sequence[float], born: Sequence[int], length: int, queues: Queues | None = None) -> list[Any]:
    """Messages of one size in batches of a length, with a blank and a bad range after them; times in seconds.

    Args:
        queues: queue id and queue offset of each; left out, all are of one queue that has each offset once.
    """
    rows = np.zeros(len(stored) + 2, row_dtype())
    rows["physical_offset"] = np.arange(len(rows)) * SIZE
    rows["size"] = SIZE
    rows["verdict"] = Verdict.GOOD
    rows["magic"] = commitlog.MAGIC_V1
    rows["store_timestamp_ms"][:-2] = np.array(stored) * SECOND
    rows["born_timestamp_ms"][:-2] = np.array(born) * SECOND
    rows["magic"][-2] = commitlog.MAGIC_BLANK
    rows["verdict"][-1] = Verdict.STALE
    queues = queues or [(0, number) for number in range(len(stored))]
    rows["queue_id"][:-2], rows["queue_offset"][:-2] = np.array(queues, np.int64).reshape(-1, 2).T
    parts = [rows[at : at + length] for at in range(0, len(rows), length)]
    return [SimpleNamespace(as_array=lambda part=part: part, topics=[b"A"]) for part in parts]


NONE = [
    ("times that rise", [10, 20, 30, 40], [9, 19, 29, 39]),
    ("one record that is too old", [10, 20, 3, 40], [9, 19, 2, 39]),
    ("a clock that was set back, not those of producers", [10, 20, 3, 4], [9, 19, 29, 39]),
    ("a flipped bit in one store time", [10, 99, 30, 40], [9, 19, 29, 39]),
    ("newer records after those that came back", [10, 50, 20, 60], [9, 49, 19, 59]),
    ("no record", [], []),
]


@pytest.mark.parametrize("length", [1, 2, 3, 100])
@pytest.mark.parametrize(("stored", "born"), [row[1:] for row in NONE], ids=[row[0] for row in NONE])
def test_other_times_are_no_tail_that_came_back(stored: list[int], born: list[int], length: int) -> None:
    assert resurrected_tail(lambda: batches(stored, born, length)) is None


@pytest.mark.parametrize("length", [1, 2, 3, 100])
def test_a_flipped_bit_is_no_new_record_whatever_producers_say(length: int) -> None:
    times = [1_700_000_000, 1_700_000_001, 1_700_000_002, 1_700_000_003]
    flipped = [times[0], (times[1] * SECOND ^ 1 << 36) / SECOND, *times[2:]]
    assert flipped[1] > max(times)
    assert resurrected_tail(lambda: batches(flipped, times, length)) is None


@pytest.mark.parametrize("length", [1, 2, 3, 100])
def test_times_of_producers_that_are_no_clock_s_tell_nothing(length: int) -> None:
    stored = [1_700_000_000, 1_700_000_001, 1_700_000_055, 1_700_000_002, 1_700_000_003]
    tail = resurrected_tail(lambda: batches(stored, [1, 2, 0, 3, 4], length))
    assert tail is not None
    assert (tail.begin, tail.record_count) == (3 * SIZE, 2)


@pytest.mark.parametrize("length", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("stored", "begin", "newest"),
    [([10, 20, 50, 21, 22], 3, 22), ([50, 20], 1, 20), ([10, 50, 51, 30, 40, 20], 3, 40), ([10, 50, 49, 51, 9], 4, 9)],
)
def test_a_tail_that_came_back_is_known_however_it_is_read(
    stored: list[int], begin: int, newest: int, length: int
) -> None:
    count = len(stored) - begin
    before_ms = stored[begin - 1] * SECOND
    expected = ResurrectedTail(begin * SIZE, len(stored) * SIZE, count, before_ms, newest * SECOND)
    assert resurrected_tail(lambda: batches(stored, [time - 1 for time in stored], length)) == expected


PROOFS = [
    ("each queue goes on", [(0, 5), (1, 3), (0, 6), (1, 4), (0, 7)], False),
    ("an offset comes twice", [(0, 5), (1, 3), (1, 4), (1, 4), (0, 6)], True),
    ("the old record of an offset is the second of the tail", [(0, 5), (0, 6), (1, 3), (1, 4), (0, 6)], True),
    ("offsets of one queue are missing", [(0, 5), (0, 6), (0, 7), (1, 4), (0, 9)], False),
    ("a topic was deleted and made again", [(0, 5), (0, 6), (0, 7), (0, 0), (0, 1)], False),
]


@pytest.mark.parametrize("length", [1, 2, 3, 100])
@pytest.mark.parametrize(("queues", "is_proven"), [row[1:] for row in PROOFS], ids=[row[0] for row in PROOFS])
def test_only_a_queue_offset_that_comes_twice_proves_it(queues: Queues, length: int, *, is_proven: bool) -> None:
    stored = [10, 20, 50, 21, 22]
    tail = resurrected_tail(lambda: batches(stored, [time - 1 for time in stored], length, queues))
    assert tail is not None
    assert (tail.begin, tail.is_proven) == (3 * SIZE, is_proven)
