"""Dead units, which a repair leaves where a message is lost, are told from units of messages."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtool.formats.consumequeue import UNIT
from rmqtool.formats.tombstone import DEAD_BEFORE, DEAD_SIZE, are_dead
from rmqtool.quantities import JAVA_LONG_MAX

FILE = 65536


@pytest.mark.parametrize(
    ("unit", "dead"),
    [
        ((FILE - DEAD_BEFORE, DEAD_SIZE, 0), True),
        ((5 * FILE - DEAD_BEFORE, 1000, 0), True),
        ((FILE - DEAD_BEFORE, DEAD_SIZE - 1, 0), False),
        ((FILE - DEAD_BEFORE, DEAD_SIZE, 1), False),
        ((FILE - DEAD_BEFORE - 1, DEAD_SIZE, 0), False),
        ((FILE, DEAD_SIZE, 0), False),
        ((-DEAD_BEFORE, DEAD_SIZE, 0), False),
        ((0, 0, 0), False),
    ],
)
def test_dead_units(unit: tuple[int, int, int], dead: bool) -> None:
    assert are_dead(np.array([unit], UNIT.dtype.newbyteorder("=")), FILE).tolist() == [dead]


def test_a_file_size_beyond_all_offsets_makes_no_unit_dead() -> None:
    units = np.array([(100, DEAD_SIZE, 0)], UNIT.dtype.newbyteorder("="))
    assert not are_dead(units, JAVA_LONG_MAX + 10).any()
