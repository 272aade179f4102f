"""Rows come back in their partitions in the order in which they were added, from memory or from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rmqtool.compare.rows import ROW
from rmqtool.compare.spill import Spill
from rmqtool.errors import WriteError


def rows_of(*sizes: int) -> np.ndarray:
    rows = np.zeros(len(sizes), ROW)
    rows["size"] = sizes
    return rows


@pytest.mark.parametrize("memory_max", [0, 300, 1 << 20])
@pytest.mark.parametrize("count", [1, 4])
def test_rows_come_back(tmp_path: Path, memory_max: int, count: int) -> None:
    with Spill(count, lambda rows: rows["size"] % count, tmp_path, memory_max) as spill:
        for first in range(0, 60, 3):
            spill.take(0, rows_of(first, first + 1, first + 2))
            spill.take(1, rows_of(first))
        spill.take(1, rows_of())
        for number in range(count):
            mine = [size for size in range(60) if size % count == number]
            assert spill.rows(0, number, ROW)["size"].tolist() == mine
            assert spill.rows(1, number, ROW)["size"].tolist() == [size for size in mine if size % 3 == 0]
            assert spill.rows(2, number, ROW).size == 0
        assert bool(list(tmp_path.iterdir())) == (memory_max < 1000)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_no_files_is_an_error(tmp_path: Path) -> None:
    with Spill(1, lambda rows: rows["size"], tmp_path / "gone", 0) as spill, pytest.raises(WriteError, match="gone"):
        spill.take(0, rows_of(1))
