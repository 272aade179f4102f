"""What consecutive queue offsets tell: which messages are missing, where, and which heads must be wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from rmqtool.engine.dispatch.queue_entries import QueueEntries
from rmqtool.verify.match.queue_order import MisplacedRecord, MissingRun, QueueOrder

TOPIC = b"orders"
SIZE = 100
Place = tuple[int, int]
"""Queue offset and number in the log; records lie SIZE bytes from each other."""


def entries(
    places: Sequence[Place], topic: bytes = TOPIC, queue_id: int = 0, *, own: bool = True, sizes: Sequence[int] = ()
) -> QueueEntries:
    offsets = np.array([place[0] for place in places], np.int64)
    count = offsets.size
    zeros, ones = np.zeros(count, np.int64), np.ones(count, np.int32)
    return QueueEntries(
        topic, queue_id, bool(sizes), offsets, np.array([SIZE * place[1] for place in places], np.int64), ones * SIZE,
        zeros, zeros, np.array(sizes, np.int32) if sizes else ones, np.full(count, own, np.bool_),
    )  # fmt: skip


def order(*parts: QueueEntries, begins_at_zero: bool = True) -> QueueOrder:
    found = QueueOrder(begins_at_zero=begins_at_zero)
    for part in parts:
        found.take(part)
    return found


def everywhere(_behind: int, _before: int) -> int:
    return 1 << 60


def nowhere(_behind: int, _before: int) -> int:
    return 0


def straight(*queue_offsets: int) -> list[Place]:
    return [(queue_offset, number) for number, queue_offset in enumerate(queue_offsets)]


def test_nothing_is_missing() -> None:
    found = order(entries(straight(0, 1, 2)), entries([(3, 7), (4, 8)]))
    assert found.judged(everywhere) == ([], [])
    assert [(each.first, each.end) for each in found.chains[TOPIC, 0, False]] == [(0, 5)]


def test_a_gap_between_good_records() -> None:
    (run,), misplaced = order(entries(straight(0, 1, 5, 6))).judged(everywhere)
    assert run == MissingRun((TOPIC, 0, False), 2, 3, SIZE, 2 * SIZE)
    assert misplaced == []


def test_a_gap_for_which_damage_has_no_room_is_none() -> None:
    assert order(entries(straight(0, 1, 5, 6))).judged(lambda _behind, _before: 3 * 91 - 1)[0] == []
    assert len(order(entries(straight(0, 1, 5, 6))).judged(lambda _behind, _before: 3 * 91)[0]) == 1


@pytest.mark.parametrize("begins_at_zero", [True, False])
def test_the_begin_is_known_only_of_a_log_that_has_it(*, begins_at_zero: bool) -> None:
    runs, _ = order(entries([(3, 9)]), begins_at_zero=begins_at_zero).judged(everywhere)
    assert runs == ([MissingRun((TOPIC, 0, False), 0, 3, -1, 9 * SIZE)] if begins_at_zero else [])


def test_a_record_ahead_of_all_others_hides_nothing() -> None:
    """A head with a flipped high bit: the offsets behind it are those that count."""
    found = order(entries(straight(0, 1, 1 << 40, 3, 4)))
    assert found.judged(nowhere) == ([], [MisplacedRecord(2 * SIZE, TOPIC, 0, 2)])
    assert found.chains[TOPIC, 0, False][-1].end == 5


@pytest.mark.parametrize("wild", [(1 << 63) - 1, (1 << 63) - 2])
def test_the_highest_queue_offset_stands_in_front_of_no_other(wild: int) -> None:
    missing, misplaced = order(entries(straight(0, 1, wild, 5, 6))).judged(
        lambda _behind, before: everywhere(0, 0) if before > 2 * SIZE else 0
    )
    assert [(run.first, run.length) for run in missing] == [(2, 3)]
    assert misplaced == [MisplacedRecord(2 * SIZE, TOPIC, 0, 2)]


def test_a_record_that_repeats_another_one_is_told_by_its_place() -> None:
    assert order(entries(straight(0, 1, 0, 3, 4))).judged(nowhere)[1] == [MisplacedRecord(2 * SIZE, TOPIC, 0, 2)]


@pytest.mark.parametrize(
    ("damage", "queue_offset"),
    [([4], 2), ([2], 4), ([2, 4], None), ([], None)],
    ids=["behind", "in-front", "both", "no"],
)
def test_a_record_ahead_of_all_others_beside_damage(damage: list[int], queue_offset: int | None) -> None:
    """Where something else is missing as well, it was lost where the damage is."""
    found = order(entries([(0, 0), (1, 1), (1 << 40, 3), (5, 5), (6, 6)]))
    between = [place * SIZE for place in damage]
    misplaced = found.judged(lambda behind, before: 3 * 91 * sum(behind < place < before for place in between))[1]
    assert misplaced == ([] if queue_offset is None else [MisplacedRecord(3 * SIZE, TOPIC, 0, queue_offset)])


def test_a_record_of_another_queue_is_told_by_the_hole_that_it_leaves() -> None:
    found = order(
        entries([(0, 0), (1, 1), (3, 3)]), entries([(2, 2)], queue_id=77), entries([(0, 4), (1, 5)], queue_id=1)
    )
    assert found.judged(nowhere)[1] == [MisplacedRecord(2 * SIZE, TOPIC, 0, 2)]


@pytest.mark.parametrize("topic", [b"ordert", b"orxyrs"])
def test_a_topic_with_few_wrong_bytes(topic: bytes) -> None:
    found = order(entries([(0, 0), (1, 1), (3, 3)]), entries([(2, 2)], topic))
    assert found.judged(nowhere)[1] == [MisplacedRecord(2 * SIZE, TOPIC, 0, 2)]


@pytest.mark.parametrize(
    "other",
    [
        entries([(2, 2)], b"payment"),  # another length
        entries([(2, 2)], b"paypal"),  # too many other bytes
        entries([(7, 2)], TOPIC, 77),  # another queue offset
        entries([(2, 9)], TOPIC, 77),  # somewhere else
        entries([(0, 6), (1, 7), (2, 2)], TOPIC, 77),  # in its own queue's order
    ],
)
def test_a_record_that_is_where_it_says_stays(other: QueueEntries) -> None:
    assert order(entries([(0, 0), (1, 1), (3, 3)]), other).judged(nowhere)[1] == []


@pytest.mark.parametrize("topic", [bytes(6), b"/o/d/r"])
def test_a_topic_that_no_directory_can_have(topic: bytes) -> None:
    own = entries([(0, 0), (2, 2)])
    assert order(own, entries([(1, 1)], topic)).judged(nowhere)[1] == [MisplacedRecord(SIZE, TOPIC, 0, 1)]
    assert order(own, entries([(1, 1)], topic, 1)).judged(nowhere)[1] == []
    assert order(own, entries([(1, 1)], topic[1:])).judged(nowhere)[1] == []


def test_two_that_may_be_the_missing_one_are_left_alone() -> None:
    found = order(entries([(0, 0), (1, 1), (3, 5)]), entries([(2, 2)], queue_id=77), entries([(2, 3)], queue_id=78))
    assert found.judged(nowhere)[1] == []


def test_what_another_stretch_has_is_not_missing() -> None:
    """A log that was cut and went on: offsets that were given twice."""
    places = straight(*range(10), *range(5, 30))
    assert order(entries(places)).judged(everywhere)[0] == []


def test_batches_count_their_messages() -> None:
    (run,), _ = order(entries([(0, 0), (4, 1), (10, 2)], sizes=[4, 3, 2])).judged(everywhere)
    assert (run.first, run.length, run.queue[2]) == (7, 3, True)


def test_queues_that_records_only_name_are_said_to_be_such() -> None:
    (run,), _ = order(entries(straight(0, 3), b"%LMQ%a", own=False)).judged(everywhere)
    assert run.is_further


@given(some.lists(some.booleans(), min_size=3, max_size=60), some.integers(1, 7))
def test_whatever_is_lost_is_found_missing(kept: list[bool], batch: int) -> None:
    """All lost ones that good records follow, once each, between the right neighbours."""
    places = [(number, number) for number, is_kept in enumerate(kept) if is_kept]
    parts = [entries(places[at : at + batch]) for at in range(0, len(places), batch)]
    runs, misplaced = order(*parts).judged(everywhere)
    missing = [queue_offset for run in runs for queue_offset in range(run.first, run.first + run.length)]
    last = places[-1][0] if places else 0
    assert missing == [number for number, is_kept in enumerate(kept) if not is_kept and number < last]
    for run in runs:
        assert run.behind == (run.first - 1) * SIZE or (run.behind, run.first) == (-1, 0)
        assert run.before == (run.first + run.length) * SIZE
    assert misplaced == []


@given(some.lists(some.integers(0, 30), min_size=1, max_size=40))
@example([0, 1, 1, 3, 4, 0, 1, 2])
def test_any_order_is_judged(queue_offsets: list[int]) -> None:
    runs, _ = order(entries(straight(*queue_offsets))).judged(everywhere)
    for run in runs:
        assert not {*range(run.first, run.first + run.length)} & set(queue_offsets)
        assert run.behind < run.before


def test_a_hundred_thousand_stretches_are_no_trouble() -> None:
    random = np.random.default_rng(1)
    places = [(int(queue_offset), number) for number, queue_offset in enumerate(random.integers(0, 1 << 40, 100_000))]
    found = order(entries(places))
    runs, _ = found.judged(nowhere)
    assert runs == []
