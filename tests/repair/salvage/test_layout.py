"""However damage and lost records lie: the fillings fill the range, and whatever has a place is at it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from unittest.mock import Mock

from hypothesis import example, given
from hypothesis import strategies as some

from rmqtool.engine.reading.record import Record
from rmqtool.formats.commitlog import BLANK_SIZE_MIN
from rmqtool.repair.salvage.damaged_ranges import DamagedRange
from rmqtool.repair.salvage.layout import BRIDGE_MAX, Filling, lay_out
from rmqtool.repair.salvage.lost_records import LostInRange, LostRecord

FILE_SIZE = 16 << 20
FILE_START = 3 * FILE_SIZE
LEAST = 91
HEAD = Mock(spec=Record)


def least(lost: LostRecord | None) -> int:
    return LEAST + (1 if lost is None else len(lost.topic) + 30 * len(lost.further))


def damage(start: int, length: int, *, is_last: bool = False) -> DamagedRange:
    begin = FILE_START + start
    return DamagedRange("commitlog/x", FILE_START, FILE_SIZE, begin, begin + length, (begin,), is_last=is_last)


def lost(number: int, place: int | None = None, size: int | None = None, topic: bytes = b"T") -> LostRecord:
    return LostRecord(topic, 0, number, physical_offset=place, size=size)


@some.composite
def ranges(draw: some.DrawFn) -> tuple[DamagedRange, LostInRange]:
    length = draw(some.integers(1, 3000) | some.integers(1, 3 * BRIDGE_MAX))
    where = draw(some.sampled_from(["begin", "middle", "end", "last"]))
    start = {"begin": 0, "middle": 4096, "end": FILE_SIZE - length, "last": 4096}[where]
    damaged = damage(start, length, is_last=where == "last")
    placed, at = [], damaged.start
    for number in range(draw(some.integers(0, 6))):
        at += draw(some.integers(0, 400))
        size = draw(some.integers(80, 600))
        placed.append(lost(10 * number + 5, at, size))
        at += size
    unplaced = [
        lost(draw(some.integers(0, 60)), topic=draw(some.sampled_from([b"T", b"Other", b"L" * 100])))
        for _ in range(draw(some.integers(0, 12)))
    ]
    return damaged, LostInRange(placed, unplaced)


@given(ranges())
def test_fillings_fill_the_range(case: tuple[DamagedRange, LostInRange]) -> None:
    damaged, losses = case
    fillings = lay_out(damaged, losses, least)
    if fillings is None:
        assert damaged.length < LEAST + BLANK_SIZE_MIN + max(map(least, (None, *losses.placed, *losses.unplaced)))
        return
    assert all(one.end == two.start for one, two in pairwise(fillings))
    assert not any(filling.is_blank for filling in fillings[:-1])
    if fillings:
        assert fillings[0].start == damaged.start
    if not damaged.is_last:
        assert (fillings[-1].end if fillings else damaged.start) == damaged.end
        assert not damaged.reaches_file_end or fillings[-1].is_blank
    for filling in fillings:
        smallest = BLANK_SIZE_MIN if filling.is_blank else least(filling.lost)
        assert filling.length >= smallest
        assert filling.is_blank or filling.lost is not None or filling.length < BRIDGE_MAX + LEAST + BRIDGE_MAX // 2


@given(ranges())
@example((damage(0, 404), LostInRange([lost(5, FILE_START, 80), lost(15, FILE_START + 92, 92)], [])))
@example((damage(0, 277), LostInRange([lost(5, FILE_START, 80), lost(15, FILE_START + 185, 92)], [])))
def test_a_record_with_a_place_is_at_it_if_it_can_be(case: tuple[DamagedRange, LostInRange]) -> None:
    damaged, losses = case
    fillings = lay_out(damaged, losses, least) or []
    file_end = FILE_START + FILE_SIZE
    limit = file_end - BLANK_SIZE_MIN if damaged.is_last or damaged.end == file_end else damaged.end
    for record in losses.placed:
        start, end = record.place
        (found,) = [filling for filling in fillings if filling.lost is record] or [None]
        if end <= limit and end - start >= least(record) and fillings:
            # Bytes that are too few for a record of their own are a neighbor's; a packed one may lie there by chance.
            is_at_it = (
                found is not None
                and start - least(None) <= found.start <= start
                and end <= found.end <= end + LEAST + BLANK_SIZE_MIN + 120
            )
            assert is_at_it or _stand_for_more(damaged, losses, fillings)
        else:
            assert found is None or _stand_for_more(damaged, losses, fillings)


def _stand_for_more(damaged: DamagedRange, losses: LostInRange, fillings: list[Filling]) -> bool:
    """Whether places that units tell were given up so that fewer records are left out."""
    certain = [replace(record, head=HEAD) for record in losses.placed]
    as_told = lay_out(damaged, LostInRange(certain, losses.unplaced), least) or []
    return sum(filling.lost is not None for filling in fillings) > sum(filling.lost is not None for filling in as_told)


@given(ranges())
def test_each_record_stands_once_and_in_the_order_of_its_queue(case: tuple[DamagedRange, LostInRange]) -> None:
    damaged, losses = case
    ordered = sorted({record.queue_offset: record for record in losses.unplaced}.values(), key=lambda r: r.queue_offset)
    known = {(record.topic, record.queue_offset) for record in losses.placed}
    unplaced = [record for record in ordered if (record.topic, record.queue_offset) not in known]
    fillings = lay_out(damaged, LostInRange(losses.placed, unplaced), least) or []
    stand = [filling.lost for filling in fillings if filling.lost is not None]
    assert len(set(map(id, stand))) == len(stand)
    for topic in {record.topic for record in stand}:
        offsets = [record.queue_offset for record in stand if record.topic == topic]
        assert offsets == sorted(offsets)


def test_exactly_where_they_lay() -> None:
    damaged = damage(4096, 1000)
    placed = [lost(number, damaged.start + 250 * number, 250) for number in range(4)]
    assert lay_out(damaged, LostInRange(placed), least) == [
        Filling(record.place[0], record.place[1], record) for record in placed
    ]


def test_packed_where_nothing_tells_their_places() -> None:
    damaged = damage(4096, 1000)
    unplaced = [lost(number) for number in range(4)]
    fillings = lay_out(damaged, LostInRange([], unplaced), least) or []
    assert [filling.lost for filling in fillings] == unplaced
    assert [filling.length for filling in fillings] == [92, 92, 92, 1000 - 3 * 92]


def test_places_that_leave_no_room_for_a_message_of_their_queue_are_given_up() -> None:
    damaged = damage(4096, 1000)
    told = [lost(4, damaged.start + 400, 300), lost(5, damaged.start + 700, 300)]
    other = lost(7, damaged.start, 300, topic=b"Other")
    fillings = lay_out(damaged, LostInRange([other, *told], [lost(6)]), least) or []
    assert [filling.lost.queue_offset for filling in fillings if filling.lost is not None] == [7, 4, 5, 6]


def test_a_head_keeps_its_place_even_if_that_leaves_no_room() -> None:
    damaged = damage(4096, 1000)
    record = replace(lost(5, damaged.start + 700, 300), head=HEAD)
    fillings = lay_out(damaged, LostInRange([record], [lost(6)]), least) or []
    assert fillings[-1] == Filling(damaged.start + 700, damaged.end, record)


def test_nobody_can_bridge_less_than_a_record() -> None:
    assert lay_out(damage(4096, 91), LostInRange(), least) is None
    assert lay_out(damage(4096, 92), LostInRange(), least) == [Filling(FILE_START + 4096, FILE_START + 4188)]


def test_the_end_of_a_file_is_a_blank() -> None:
    assert lay_out(damage(FILE_SIZE - 8, 8), LostInRange(), least) == [
        Filling(FILE_START + FILE_SIZE - 8, FILE_START + FILE_SIZE, is_blank=True)
    ]
    assert lay_out(damage(0, FILE_SIZE), LostInRange(), least) == [
        Filling(FILE_START, FILE_START + FILE_SIZE, is_blank=True)
    ]


def test_long_damage_is_bridged_in_parts_that_every_broker_can_hold() -> None:
    fillings = lay_out(damage(0, 15 << 20), LostInRange(), least) or []
    assert max(filling.length for filling in fillings) <= BRIDGE_MAX
    assert sum(filling.length for filling in fillings) == 15 << 20


def test_a_million_waiting_records_are_packed_in_no_time() -> None:
    placed = [lost(number, FILE_START + 200 * number, 100, b"P") for number in range(50_000)]
    unplaced = [lost(number) for number in range(50_000)]
    fillings = lay_out(damage(0, 200 * 50_000), LostInRange(placed, unplaced), least) or []
    assert sum(filling.lost is not None for filling in fillings) == 100_000
