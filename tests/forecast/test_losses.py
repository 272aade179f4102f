"""What a start costs in a queue of batches: a client goes on after the last message of the unit that it got."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.versions import NEWEST, rules_for
from rmqtool.forecast.forecast import forecast_store
from rmqtool.forecast.served_units import given_units
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


def test_a_unit_inside_the_one_before_is_passed_over(golden_copy: Unpacked) -> None:
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


def given(bases: list[int], sizes: list[int], at: int, stop: int) -> list[int]:
    units = np.array(bases), np.array(bases) + np.array(sizes)
    return np.flatnonzero(given_units(*units, at, stop)[0]).tolist()


def test_units_that_overlap_are_given_where_a_client_comes_to_them() -> None:
    assert given([0, 4, 8], [5, 4, 1], 0, 9) == [0, 1, 2]
    assert given([0, 4, 8], [9, 4, 1], 0, 9) == [0]


@pytest.mark.parametrize("seed", range(6))
def test_units_out_of_order_are_lost_where_no_pull_finds_them(golden_copy: Unpacked, seed: int) -> None:
    """In two files: of those the last one is read that does not begin after what is asked for."""
    path, draw = golden_copy(STORE), np.random.default_rng(seed)
    file = queue_file(path)
    raw, units = file.read_bytes(), units_of(file)
    count = int(np.count_nonzero(units["record_size"]))
    units["base_queue_offset"][: count - 1] = draw.integers(0, 12, count - 1)
    file.write_bytes(units.tobytes() + raw[units.nbytes :])
    rows = np.concatenate([units_of(other) for other in file.parent.iterdir()])
    sizes = {int(row["physical_offset"]): int(row["batch_size"]) for row in rows if row["record_size"]}
    topic, queue_id = file.parts[-3], int(file.parts[-2])
    with open_reader(survey(open_directory(path)), rules_for(NEWEST)) as reader:
        queue = reader.queue(topic, queue_id)
        pulled, at = set(), queue.min_queue_offset
        while at < queue.max_queue_offset:
            unit = queue.unit_at(at)
            at = at + 1 if unit is None else max(at + 1, unit.queue_offset + unit.message_count)
            pulled |= {unit.physical_offset} if unit is not None else set()
    assert 0 < len(pulled) < len(sizes)
    assert lost(path) == sum(size for physical_offset, size in sizes.items() if physical_offset not in pulled)
