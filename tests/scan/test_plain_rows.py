"""The compiled columns of plain rows are those of the plain ones, and rows that are not plain have none."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtool.formats import system_flag
from rmqtool.formats.commitlog import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from rmqtool.scan import plain_rows as module
from rmqtool.scan.columns import WIDE, Row, row_dtype
from rmqtool.scan.plain_rows import plain_rows
from rmqtool.scan.row_columns import PlainRows
from rmqtool.scan.rules import Verdict

COUNT = 100


@pytest.fixture(params=[False, True], ids=["plain", "compiled"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_worth", lambda _count, _least: request.param)


def _rows() -> np.ndarray:  # type: ignore[type-arg]
    chance = np.random.default_rng(1)
    rows = np.zeros(COUNT, row_dtype())
    for name in Row._fields:
        bits = 63 if name in WIDE else 31
        rows[name] = chance.integers(-(1 << bits), 1 << bits, COUNT)
    rows["size"] = chance.integers(91, 1000, COUNT)
    rows["physical_offset"] = rows["own_offset"] = (1 << 40) + np.cumsum(rows["size"]) - rows["size"]
    rows["topic_length"] = chance.integers(1, 128, COUNT)
    rows["sys_flag"] &= ~(system_flag.BORN_HOST_V6 | system_flag.STORE_HOST_V6)
    rows["verdict"], rows["magic"], rows["features"] = int(Verdict.GOOD), MAGIC_V1, 0
    return rows


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("count", [1, 2, COUNT])
def test_columns_and_bounds_are_those_of_the_rows(count: int) -> None:
    rows = _rows()[:count]
    plain = plain_rows(rows)
    assert isinstance(plain, PlainRows)
    assert set(plain.bounds) == {*module.WIDE, *module.NARROW}
    for name, (least, most) in plain.bounds.items():
        assert (least, most) == (rows[name].min(), rows[name].max())
    for name in plain.rows.names:
        assert plain.rows[name].dtype == rows[name].dtype
        assert np.array_equal(plain.rows[name], rows[name])


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("number", [0, COUNT // 2, COUNT - 1])
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("verdict", int(Verdict.BODY_CRC_MISMATCH)),
        ("magic", MAGIC_V2),
        ("magic", MAGIC_BLANK),
        ("features", 1),
        ("sys_flag", system_flag.BORN_HOST_V6),
        ("sys_flag", system_flag.STORE_HOST_V6),
        ("topic_length", 0),
        ("own_offset", 1),
    ],
)
def test_a_row_that_is_not_plain_is_seen(number: int, column: str, value: int) -> None:
    rows = _rows()
    rows[column][number] = value
    assert plain_rows(rows) is None


@pytest.mark.usefixtures("_way")
def test_rows_that_lie_apart_are_not_plain() -> None:
    assert plain_rows(np.delete(_rows(), 7)) is None
    assert plain_rows(_rows()[:0]) is None
