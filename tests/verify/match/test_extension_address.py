"""An address in a queue's extension leads to the start of a unit there, and not into one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from tests.verify.stores import above_note, verified

TAGS_CODE_AT = 12


@pytest.mark.parametrize("step", [1, 2, -1])
@pytest.mark.parametrize("number", [1, 2])
def test_an_address_inside_a_unit(tmp_path: Path, number: int, step: int) -> None:
    """Without tags the bytes there may look like a unit with the right code."""
    make_store(RECIPES["cq-ext"], tmp_path, "5.5.0")
    assert above_note(verified(tmp_path, "5.5.0")[1]) == {}
    queue = min(tmp_path.glob("consumequeue/*/*/*"))
    with queue.open("r+b") as units:
        units.seek(number * 20 + TAGS_CODE_AT)
        address = int.from_bytes(units.read(8), "big", signed=True)
        units.seek(number * 20 + TAGS_CODE_AT)
        units.write((address + step).to_bytes(8, "big", signed=True))
    assert set(above_note(verified(tmp_path, "5.5.0")[1])) == {"consumequeue.bad-extension"}
