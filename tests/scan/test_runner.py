"""Threads give results in the order of the items, begin little ahead, and end with whoever takes the results."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from rmqtool.errors import UnreadableError
from rmqtool.scan.runner import ThreadRunner, read_ahead


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_results_come_in_the_order_of_the_items(threads: int) -> None:
    items = list(range(100))
    assert list(ThreadRunner(threads).map(lambda item: item * item, items)) == [item * item for item in items]
    assert list(ThreadRunner(threads).map(lambda item: item, [])) == []


def test_one_item_runs_in_the_thread_of_the_caller() -> None:
    assert list(ThreadRunner(4).map(lambda _: threading.current_thread(), [1])) == [threading.current_thread()]


def test_little_is_begun_ahead_of_who_takes_the_results() -> None:
    begun: list[int] = []
    results = ThreadRunner(2).map(begun.append, range(1000))
    next(results)
    assert len(begun) <= 2 * 2 + 1
    results.close()
    assert len(begun) <= 2 * 2 + 1


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_reaches_the_caller_at_its_item(threads: int) -> None:
    results = ThreadRunner(threads).map(lambda item: 10 // item, [5, 2, 0, 1])
    assert [next(results), next(results)] == [2, 5]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_blocks_that_are_read_ahead_come_in_order_one_at_a_time() -> None:
    taken: list[int] = []

    def blocks() -> Iterator[int]:
        for number in range(5):
            taken.append(number)
            yield number

    seen = [(block, len(taken)) for block in read_ahead(blocks())]
    assert [block for block, _ in seen] == [0, 1, 2, 3, 4]
    assert all(count <= block + 2 for block, count in seen)


def test_an_error_of_a_block_comes_after_the_blocks_before_it() -> None:
    def blocks() -> Iterator[int]:
        yield 1
        raise UnreadableError("bad sector")

    ahead = read_ahead(blocks())
    assert next(ahead) == 1
    with pytest.raises(UnreadableError, match="bad sector"):
        next(ahead)


def test_whoever_stops_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    ahead = read_ahead(iter(range(5)))
    assert next(ahead) == 0
    ahead.close()
    assert threading.active_count() == before
