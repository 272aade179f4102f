"""Which changed fields of a checkpoint the judge takes for what a broker could have left."""

import pytest

from tests.judge.faults_small import may_be


@pytest.mark.parametrize(
    ("number", "new", "silent"),
    [
        (4, 0, True),
        (0, 0, False),
        (1, 0, False),
        (2, 0, True),
        (0, 25564, True),
        (4, 1 << 40, False),
        (4, -1, False),
        (4, 29661, True),
        (5, 30000, True),
        (5, 30001, False),
        (1, 29661, False),
    ],
)
def test_an_offset_and_the_index_time_may_be_0_and_other_times_may_not(number: int, new: int, silent: bool) -> None:
    assert may_be(number, f"zeroed: {25565:016x} -> {new & (1 << 64) - 1:016x}", 30000) is silent
