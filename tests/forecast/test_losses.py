"""What a start costs in a queue of batches: a client goes on after the last message of the unit that it got."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rmqtool.engine.rules.versions import NEWEST, rules_for
from rmqtool.forecast import losses
from rmqtool.forecast.forecast import forecast_store
from rmqtool.formats.consumequeue import BATCH_UNIT
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.conftest import Unpacked

STORE = "5.5.0-inner-batch"


def queue_file(path: Path) -> Path:
    return max(path.glob("batchconsumequeue/*/*/*"), key=lambda file: np.count_nonzero(units_of(file)["record_size"]))


def units_of(file: Path) -> np.ndarray:
    raw = file.read_bytes()
    return np.frombuffer(raw[: len(raw) // BATCH_UNIT.size * BATCH_UNIT.size], BATCH_UNIT.dtype).copy()


def lost(path: Path) -> int:
    return forecast_store(survey(open_directory(path)), rules_for(NEWEST)).lost.messages


@pytest.mark.parametrize("block", [1, 2, 100_000])
def test_a_unit_inside_the_one_before_is_passed_over(
    golden_copy: Unpacked, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(losses, "BLOCK_UNITS", block)
    path = golden_copy(STORE)
    assert lost(path) == 0
    file = queue_file(path)
    raw, units = file.read_bytes(), units_of(file)
    count = int(np.count_nonzero(units["record_size"]))
    assert count > 2
    sizes = units["batch_size"].astype(int)
    for number in range(count - 1):
        changed = units.copy()
        changed["batch_size"][number] += sizes[number + 1]  # reaches to the end of the next one
        file.write_bytes(changed.tobytes() + raw[changed.nbytes :])
        assert lost(path) == sizes[number + 1]


def test_a_last_unit_at_the_highest_queue_offset_is_counted(golden_copy: Unpacked) -> None:
    path = golden_copy(STORE)
    file = max(queue_file(path).parent.iterdir())
    raw, units = file.read_bytes(), units_of(file)
    units["base_queue_offset"][np.count_nonzero(units["record_size"]) - 1] = JAVA_LONG_MAX - 1
    file.write_bytes(units.tobytes() + raw[units.nbytes :])
    assert lost(path) == 0


def test_units_that_overlap_are_given_where_a_client_comes_to_them() -> None:
    bases, ends = np.array([0, 4, 8]), np.array([5, 8, 9])
    given, at = losses._asked_for(bases, ends, np.array([4, 8, 9]), 0)
    assert (given.tolist(), at) == ([True, True, True], 9)
    given, at = losses._asked_for(bases, np.array([9, 8, 9]), np.array([4, 8, 9]), 0)
    assert (given.tolist(), at) == ([True, False, False], 9)
