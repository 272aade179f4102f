"""Which changed fields of a checkpoint the judge takes for what a broker could have left."""

import pytest

from tests.judge.faults_small import may_be, may_be_of_lost


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


@pytest.mark.parametrize(
    ("what", "is_possible"),
    [
        ("1 plus: 000001a207b62566 -> 000001a207b63566", True),
        ("1 random: 000001a207b62566 -> 774d1cb0347b1f27", False),
        ("0 zeroed: 000001a207b62566 -> 0000000000000000", False),
        ("2 negative: 000001a207b62566 -> ffffffffffffffff", False),
        ("3 plus: 0000000000008b32 -> 0000000000009b32", True),
        ("4 flipped: 0000000000008b32 -> 0000000001008b32", False),
    ],
)
def test_a_number_may_be_that_of_a_lost_record_unless_no_record_can_have_it(what: str, is_possible: bool) -> None:
    assert may_be_of_lost(what, 65536) is is_possible
