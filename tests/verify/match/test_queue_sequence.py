"""The rule that tells a misplaced record from a wrong unit."""

from __future__ import annotations

import pytest

from rmqtool.verify.match.record_places import Neighbors, is_misplaced

GAP = Neighbors(7, 8)
"""The log lacks queue offset 7 there."""
NONE = Neighbors(None, None)


@pytest.mark.parametrize(
    ("own", "place"),
    [
        (Neighbors(3, 4), 3),  # between its neighbors
        (Neighbors(3, None), 3),  # the last one
        (Neighbors(None, 4), 3),  # the first one of a log whose beginning has expired
        (Neighbors(3, 20), 3),  # before a gap
        (Neighbors(1, 4), 3),  # after a gap
    ],
)
def test_a_record_that_continues_its_queue_is_right(own: Neighbors, place: int) -> None:
    assert not is_misplaced(own, (place, place + 1), GAP, (7, 8))


@pytest.mark.parametrize(
    ("own", "place"),
    [
        (Neighbors(7, 8), 1 << 40),  # a wrong number in its own queue
        (Neighbors(5, 5), 5),  # its queue is whole without it
        (Neighbors(5, 5), 9),
        (NONE, 7),  # alone in a queue that nothing else knows
    ],
)
def test_a_record_that_breaks_its_queue_belongs_into_the_gap(own: Neighbors, place: int) -> None:
    assert is_misplaced(own, (place, place + 1), GAP, (7, 8))


@pytest.mark.parametrize(
    "claimed",
    [
        NONE,
        Neighbors(8, 8),  # nothing is missing
        Neighbors(6, 8),  # more is missing
        Neighbors(7, 9),
        Neighbors(8, 9),  # something else is missing
    ],
)
def test_without_exactly_that_gap_in_the_log_the_unit_is_wrong(claimed: Neighbors) -> None:
    assert not is_misplaced(Neighbors(5, 5), (9, 10), claimed, (7, 8))


@pytest.mark.parametrize("claimed", [Neighbors(7, 8, is_damaged=True), Neighbors(4, None, is_damaged=True)])
def test_damage_in_the_gap_is_no_objection_only_where_the_own_place_is_impossible(claimed: Neighbors) -> None:
    assert not is_misplaced(NONE, (9, 10), claimed, (7, 8))  # it may have been lost
    assert not is_misplaced(Neighbors(5, 6), (9, 10), claimed, (7, 8))
    assert is_misplaced(Neighbors(5, 5), (9, 10), claimed, (7, 8))
    assert is_misplaced(NONE, (-3, -2), claimed, (7, 8))
    assert is_misplaced(Neighbors(7, 9), (5001, 5002), claimed, (7, 8), bytes_before=5000)
    assert not is_misplaced(Neighbors(7, 9), (5000, 5001), claimed, (7, 8), bytes_before=5000)
    assert not is_misplaced(Neighbors(7, 5002), (5001, 5002), claimed, (7, 8), bytes_before=5000)  # its queue goes on
    assert is_misplaced(NONE, (9, 10), claimed, (7, 8), is_text=False)
    assert not is_misplaced(Neighbors(5, 5), (9, 10), claimed, (2, 3))


def test_a_topic_that_is_no_text_continues_no_queue() -> None:
    """Brokers encode topics as UTF-8; the queue that the damaged name seems to begin at 0 does not exist."""
    first = Neighbors(0, None)
    assert not is_misplaced(first, (0, 1), GAP, (7, 8))
    assert is_misplaced(first, (0, 1), GAP, (7, 8), is_text=False)
    assert not is_misplaced(first, (0, 1), NONE, (7, 8), is_text=False)


def test_what_stands_apart_by_damage_needs_a_certain_gap() -> None:
    apart = Neighbors(3, None, is_damaged=True)
    assert not is_misplaced(apart, (7, 8), Neighbors(7, None), (7, 8))
    assert is_misplaced(apart, (7, 8), GAP, (7, 8))


def test_batches_count_their_messages() -> None:
    assert not is_misplaced(Neighbors(2, 6), (2, 6), Neighbors(9, 13), (9, 13))
    assert is_misplaced(Neighbors(5, 5), (2, 6), Neighbors(9, 13), (9, 13))
    assert not is_misplaced(Neighbors(5, 5), (2, 6), Neighbors(9, 12), (9, 13))
