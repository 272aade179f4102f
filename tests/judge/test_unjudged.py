"""Which units the judge expects nobody to miss: those of which no intact record tells."""

from pathlib import Path

import pytest

from tests.judge.unjudged import says_nothing

QUEUE = "consumequeue/T/0/00000000000000000000"
UNITS = [number.to_bytes(8, "big") + (90).to_bytes(4, "big") + bytes(8) for number in (100, 200, 300)]
ZEROS = bytes(20)
WRONG_SIZE = UNITS[1][:8] + (91).to_bytes(4, "big") + bytes(8)


def _written(root: Path, units: list[bytes]) -> Path:
    file = root / QUEUE
    file.parent.mkdir(parents=True)
    file.write_bytes(b"".join(units).ljust(200, b"\0"))
    return root


@pytest.mark.parametrize(
    ("units", "intact", "expected"),
    [
        (UNITS, {100}, False),
        ([UNITS[0], ZEROS, ZEROS], {100}, True),
        ([UNITS[0], ZEROS, ZEROS], {100, 300}, False),
        ([UNITS[0], ZEROS, UNITS[2]], {100, 300}, False),
        ([UNITS[0], WRONG_SIZE, UNITS[2]], {100, 300}, True),
        ([UNITS[0], WRONG_SIZE, UNITS[2]], {100, 200}, False),
    ],
)
def test_units_say_nothing_without_their_records(
    tmp_path: Path, units: list[bytes], intact: set[int], expected: bool
) -> None:
    base, store = _written(tmp_path / "base", UNITS), _written(tmp_path / "store", units)
    assert says_nothing(base, store, QUEUE, intact) is expected
