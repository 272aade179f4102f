"""Lost records take the places that are missing in queues which records only name: all of a gap, or none of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqtool.repair.salvage.damaged_ranges import DamagedRange
from rmqtool.repair.salvage.layout import add_further
from rmqtool.repair.salvage.lost_records import LostInRange, LostRecord
from rmqtool.verify.match.queue_order import MissingRun

NAMED = b"%LMQ%a"
DAMAGE = DamagedRange("commitlog/x", 0, 4096, 1000, 2000, (1000,))


def least(lost: LostRecord | None) -> int:
    return 91 + 30 * (0 if lost is None else len(lost.further))


def gap(length: int) -> MissingRun:
    return MissingRun((NAMED, 0, False), 3, length, 500, 2500, is_further=True)


def lost(count: int, size: int | None = None) -> list[LostRecord]:
    return [
        LostRecord(b"T", 0, number, physical_offset=None if size is None else 1000 + number * size, size=size)
        for number in range(count)
    ]


def named(losses: LostInRange) -> list[tuple[tuple[bytes, int], ...]]:
    return [each.further for each in (*losses.placed, *losses.unplaced)]


@pytest.mark.parametrize("size", [None, 200])
def test_a_gap_is_filled_in_log_order(size: int | None) -> None:
    records = lost(3, size)
    losses = LostInRange(unplaced=records) if size is None else LostInRange(placed=records)
    add_further([DAMAGE], [losses], [gap(3)], least, ())
    assert named(losses) == [((NAMED, 3),), ((NAMED, 4),), ((NAMED, 5),)]


@pytest.mark.parametrize(
    ("records", "length"), [(lost(2), 3), (lost(3, 100), 3), (lost(10), 10)], ids=["too-few", "too-short", "no-room"]
)
def test_a_gap_that_cannot_be_filled_stays_whole(records: list[LostRecord], length: int) -> None:
    """A queue that is filled in part is displaced behind the rest of the gap."""
    losses = LostInRange(records, []) if records[0].size else LostInRange([], records)
    assert add_further([DAMAGE], [losses], [gap(length)], least, ()) == [gap(length)]
    assert named(losses) == [()] * len(records)


def _with_known(offset: int, *, at: int) -> LostInRange:
    records = lost(4, 200)
    records[at] = replace(records[at], further=((NAMED, offset),))
    return LostInRange(placed=records)


def test_what_is_known_counts() -> None:
    losses = _with_known(4, at=2)
    assert add_further([DAMAGE], [losses], [gap(3)], least, ()) == []
    assert named(losses) == [((NAMED, 3),), (), ((NAMED, 4),), ((NAMED, 5),)]


def test_what_a_unit_says_gives_way_where_it_leaves_no_room() -> None:
    losses = _with_known(4, at=0)
    assert add_further([DAMAGE], [losses], [gap(3)], least, ()) == []
    assert named(losses) == [((NAMED, 3),), ((NAMED, 4),), ((NAMED, 5),), ()]
