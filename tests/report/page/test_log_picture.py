"""The picture of the log shows each damage, however small it is, and what was not checked."""

from __future__ import annotations

from typing import Any

import pytest

from rmqtool.report.page.log_picture import FILES_MAX, DrawnFile, LogPicture
from rmqtool.report.page.strip import BINS, WIDTH, Axis, Paint, Strip

SIZE = 1 << 30


def log(count: int) -> LogPicture:
    return LogPicture([DrawnFile(f"commitlog/{number:020}", number * SIZE, SIZE) for number in range(count)])


def finding(kind: str, at: int, length: int = 48, severity: str = "error") -> dict[str, Any]:
    file = f"commitlog/{at // SIZE:020}"
    return {
        "id": f"commitlog.{kind}", "severity": severity, "file": file, "physical_offset": at, "length": length,
        "count": 1,
    }  # fmt: skip


def kinds(picture: LogPicture) -> list[str]:
    return [bar.kind for bar in picture.bars]


def test_a_small_damage_in_a_terabyte_is_seen() -> None:
    picture = log(1000)
    picture.add(finding("hole", 500 * SIZE + 7))
    picture.finish(999 * SIZE + 5)
    assert kinds(picture) == ["intact", "damaged", "intact"]
    damaged = picture.bars[1]
    assert damaged.x <= 500 * SIZE * WIDTH / (1000 * SIZE) <= damaged.x + damaged.width
    assert damaged.width == WIDTH / BINS


def test_stale_records_lie_after_the_end() -> None:
    picture = log(1)
    picture.add(finding("stale-tail", SIZE // 2, SIZE // 4, "warning"))
    picture.finish(SIZE // 2)
    assert kinds(picture) == ["intact", "stale", "unwritten"]


def test_a_gap_between_files_is_missing() -> None:
    picture = LogPicture([DrawnFile("a", 0, SIZE), DrawnFile("b", 2 * SIZE, SIZE)])
    picture.finish(3 * SIZE)
    assert "missing" in kinds(picture)


def test_what_was_not_checked_is_not_called_intact() -> None:
    picture = log(2)
    picture.add(finding("bad-size", 5))
    picture.finish(None)
    assert kinds(picture) == ["damaged", "unchecked"]


@pytest.mark.parametrize("kind", ["wrong-file-size", "tombstone", "store-time-regress"])
def test_what_leaves_all_bytes_readable_is_not_painted(kind: str) -> None:
    picture = log(1)
    picture.add(finding(kind, 0, severity="error" if kind == "wrong-file-size" else "note"))
    picture.finish(SIZE)
    assert kinds(picture) == ["intact"]


def test_files_with_findings_have_rows_and_the_rest_is_counted() -> None:
    picture = log(1000)
    for number in (400, 700):
        picture.add(finding("hole", number * SIZE))
    picture.finish(1000 * SIZE)
    rows, after = picture.rows()
    assert [row.file.start // SIZE for row in rows] == [0, 1, 2, 400, 700, 997, 998, 999]
    assert sum(row.hidden for row in rows) + after + len(rows) == 1000
    assert [row.findings for row in rows if row.findings] == [[("commitlog.hole", 1)]] * 2


def test_rows_are_bounded_where_every_file_is_damaged() -> None:
    picture = log(1000)
    for number in range(1000):
        picture.add(finding("hole", number * SIZE))
    picture.finish(1000 * SIZE)
    assert len(picture.rows()[0]) == FILES_MAX
    assert picture.marked_file_count == 1000


@pytest.mark.parametrize(("begin", "end"), [(-5, 0), (100, 200), (50, 50), (0, 100), (99, 100), (-1 << 70, 1 << 70)])
def test_cells_stay_within_the_axis(begin: int, end: int) -> None:
    cells = Axis(0, 100).cells(begin, end)
    assert set(cells) <= set(range(BINS))
    assert bool(cells) == (max(begin, 0) < 100 and end > 0)


def test_an_axis_without_length_shows_nothing() -> None:
    assert not Axis(5, 5).cells(5, 6)


def test_the_worst_of_a_cell_is_shown() -> None:
    strip = Strip(Axis(0, 10_000))
    strip.paint(0, 1, Paint.DAMAGED)
    strip.paint(0, 10_000, Paint.INTACT)
    assert [bar.kind for bar in strip.bars()] == ["damaged", "intact"]
