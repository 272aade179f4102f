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


@pytest.mark.parametrize(("code", "expected"), [(7, True), (0, False)])
def test_a_tags_code_instead_of_its_address_says_nothing(tmp_path: Path, code: int, expected: bool) -> None:
    unit = UNITS[0][:12] + (-(1 << 63) + 420).to_bytes(8, "big", signed=True)
    base = _written(tmp_path / "base", [unit])
    extension = base / QUEUE.replace("consumequeue", "consumequeue_ext")
    extension.parent.mkdir(parents=True)
    extension.write_bytes(bytes(400))
    extension.with_name(f"{400:020d}").write_bytes(bytes(20) + (20).to_bytes(2, "big") + (7).to_bytes(8, "big"))
    store = _written(tmp_path / "store", [unit[:12] + code.to_bytes(8, "big")])
    assert says_nothing(base, store, QUEUE, {100}) is expected
