"""Which of several records has a place in a queue that is built: the one that consumers get, else the newest one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rmqtool.engine.dispatch.queue_entries import QueueEntries
from rmqtool.engine.rules.versions import NEWEST, rules_for
from rmqtool.formats.consumequeue import FILLER_UNIT, UNIT, UNIT_SIZE
from rmqtool.repair.derived.build import build
from rmqtool.repair.derived.gap_queue_writer import GapPreservingQueueWriter, KeptUnits, RecordOffsets
from rmqtool.repair.derived.result import BuildRequest
from rmqtool.store.sink import DirectorySink
from tests.engine.memory_view import log_file, made_store, queue_file, record

LOG_SIZE = 1 << 16
FILE_UNITS = 10
QUEUE = "consumequeue/T/0"

Parts = Sequence[Sequence[int]]


def sizes_of(offsets: Sequence[int]) -> list[int]:
    return [len(record(0, queue_offset=offset)) for offset in offsets]


def built(
    directory: Path,
    offsets: Sequence[int],
    kept: Sequence[int] = (),
    *,
    parts: Parts = (),
    removed_before: int = 0,
    log_start: int = 0,
) -> tuple[list[int], GapPreservingQueueWriter]:
    """Numbers of the records in the queue's places, -1 for none; and the writer.

    Args:
        offsets: queue offsets of the log's records.
        kept: numbers of the records in the places of the queue that is there.
        parts: numbers of the records that are put together; all of them.
        removed_before: number of the first record that was not removed.
        log_start: physical offset at which the log begins.
    """
    records, places = list[bytes](), list[int]()
    for offset in offsets:
        places.append(log_start + sum(map(len, records)))
        records.append(record(places[-1], queue_offset=offset))
    files = {f"commitlog/{log_start:020d}": log_file(records, LOG_SIZE)}
    units = [(places[number], len(records[number]), 0) for number in kept]
    for start in range(0, len(units), FILE_UNITS):
        files[f"{QUEUE}/{start * UNIT_SIZE:020d}"] = queue_file(units[start : start + FILE_UNITS])
    store = made_store(files, commitlog_file_size=LOG_SIZE, consumequeue_file_size=FILE_UNITS * UNIT_SIZE)
    rules = rules_for(NEWEST)
    directory.mkdir(exist_ok=True)
    with DirectorySink(directory) as sink:
        writer = GapPreservingQueueWriter(
            sink, QUEUE, FILE_UNITS * UNIT_SIZE, rules, log=RecordOffsets([log_start]), kept=KeptUnits(store, rules),
            removed_before=places[removed_before] if removed_before else 0,
        )  # fmt: skip
        for part in parts or [range(len(offsets))]:
            chosen = np.array(part, np.int64)
            sizes = np.array([len(records[number]) for number in part], np.int32)
            ones = np.ones(len(part), np.int32)
            writer.put(
                QueueEntries(
                    b"T", 0, False, np.array(offsets, np.int64)[chosen], np.array(places, np.int64)[chosen], sizes,
                    np.zeros(len(part), np.int64), np.zeros(len(part), np.int64), ones, np.ones(len(part), np.bool_),
                )
            )  # fmt: skip
        writer.finish()
    content = b"".join(file.read_bytes() for file in sorted(directory.glob(f"{QUEUE}/*")))
    result = [
        places.index(int(unit["physical_offset"])) if unit["record_size"] and tuple(unit) != FILLER_UNIT else -1
        for unit in np.frombuffer(content, UNIT.dtype)
    ]
    while result and result[-1] < 0:
        result.pop()
    return result, writer


def test_a_queue_that_began_again_has_its_newest_records_only(tmp_path: Path) -> None:
    queue, writer = built(tmp_path, [*range(15), 0, 1, 2])
    assert queue == [15, 16, 17]
    assert writer.superseded == 15
    assert writer.generations.begin == sum(sizes_of(range(15)))
    assert [file.name for file in (tmp_path / QUEUE).iterdir()] == [f"{0:020d}"]


def test_a_damaged_offset_costs_no_look_at_the_places_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    units_at = GapPreservingQueueWriter._units_at

    def counted(writer: GapPreservingQueueWriter, place: int, count: int) -> object:
        looks.append(place)
        assert len(looks) < 100
        return units_at(writer, place, count)

    monkeypatch.setattr(GapPreservingQueueWriter, "_units_at", counted)
    queue, writer = built(tmp_path, [1 << 44, 1, 2, 3])
    assert queue == [-1, 1, 2, 3]
    assert writer.superseded == 1


@pytest.mark.parametrize("parts", [[range(6), range(6, 7), range(7, 9)], [range(9)]])
def test_a_queue_that_goes_on_in_its_middle(tmp_path: Path, parts: Parts) -> None:
    queue, writer = built(tmp_path, [0, 1, 2, 3, 4, 5, 3, 4, 5], parts=parts)
    assert queue == [0, 1, 2, 6, 7, 8]
    assert (writer.superseded, writer.generations.begin) == (3, None)


def test_one_record_that_steps_back_is_left_out(tmp_path: Path) -> None:
    queue, writer = built(tmp_path, [0, 1, 2, 3, 1, 4, 5])
    assert queue == [0, 1, 2, 3, 5, 6]
    assert (writer.ignored, writer.superseded) == (1, 0)
    assert built(tmp_path / "one", [0, 1, 2, 3, 1])[0] == [0, 1, 2, 3]
    # Brokers append what says 0, and here it has the place that the log lacks.
    assert built(tmp_path / "end", [0, 1, 2, 3, 0])[0] == [0, 1, 2, 3, 4]
    assert built(tmp_path / "place", [0, 1, 2, 0, 4, 5])[0] == [0, 1, 2, 3, 4, 5]
    assert built(tmp_path / "none", [0, 1, 2, 0, 3, 4])[0] == [0, 1, 2, 4, 5]


def test_the_record_that_the_queue_has_keeps_its_place(tmp_path: Path) -> None:
    # As a broker leaves it that entered a deleted topic again after a kill.
    older, writer = built(tmp_path / "older", [0, 1, 2, 3, 0, 1], kept=[0, 1, 2, 3])
    assert older == [0, 1, 2, 3]
    assert writer.ignored == 2
    newer, _ = built(tmp_path / "newer", [0, 1, 2, 2], kept=[0, 1, 3])
    assert newer == [0, 1, 3]
    first, _ = built(tmp_path / "first", [0, 1, 2, 2, 3], kept=[0, 1, 2, 4])
    assert first == [0, 1, 2, 4]


def test_a_queue_that_began_again_before_the_oldest_record_of_the_log(tmp_path: Path) -> None:
    # Older files have expired; a newer record has a place before those of what is left of a deleted topic.
    again, writer = built(tmp_path / "again", [5, 6, 7, 8, 0, 1, 2], kept=[4, 5, 6], log_start=LOG_SIZE)
    assert again == [4, 5, 6]
    assert writer.superseded >= 4
    older, _ = built(tmp_path / "older", [2, 3, 0, 1], kept=[2, 3, 0, 1], log_start=LOG_SIZE)
    assert older == [2, 3, 0, 1]
    later, _ = built(
        tmp_path / "later", [3, 4, 0, 1, 2], kept=[2, 3, 4], parts=[[0], [1, 2], [3, 4]], log_start=LOG_SIZE
    )
    assert later == [2, 3, 4]


def test_exchanged_queue_offsets_stay_exchanged(tmp_path: Path) -> None:
    # Log and units say the same: two records four apart have each other's queue offset.
    offsets = [0, 1, 6, 3, 4, 5, 2, 7, 8]
    queue, writer = built(tmp_path, offsets, kept=[0, 1, 6, 3, 4, 5, 2, 7, 8])
    assert queue == [0, 1, 6, 3, 4, 5, 2, 7, 8]
    assert (writer.misplaced, writer.ignored, writer.superseded) == (0, 0, 0)


def test_removed_records_stay_out_but_for_those_that_the_queue_has(tmp_path: Path) -> None:
    assert built(tmp_path / "none", [0, 1, 2], removed_before=2)[0] == [-1, -1, 2]
    assert built(tmp_path / "kept", [0, 1, 2], kept=[0, 1], removed_before=2)[0] == [0, 1, 2]


def test_what_comes_after_a_record_that_the_queue_has_continues_it(tmp_path: Path) -> None:
    assert built(tmp_path / "after", [0, 1, 2, 3], kept=[0, 1], removed_before=3)[0] == [0, 1, 2, 3]
    parts = ([0, 1], [2], [3])
    assert built(tmp_path / "parts", [0, 1, 2, 3], kept=[0, 1], removed_before=3, parts=parts)[0] == [0, 1, 2, 3]


def test_single_records_of_the_last_generation_count_too(tmp_path: Path) -> None:
    """One queue shows where the topic began again; in another one its new record steps back alone."""
    places = [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (3, 0), (1, 2), (0, 0), (2, 0), (1, 0), (1, 1)]
    records: list[bytes] = []
    for queue_id, queue_offset in places:
        records.append(record(sum(map(len, records)), queue_id=queue_id, queue_offset=queue_offset))
    starts = [sum(map(len, records[:number])) for number in range(len(records))]
    sizes = {"commitlog_file_size": LOG_SIZE, "consumequeue_file_size": FILE_UNITS * UNIT_SIZE}
    store = made_store({f"commitlog/{0:020d}": log_file(records, LOG_SIZE)}, **sizes)
    result = build(store, rules_for(NEWEST), BuildRequest(lambda _topic, _queue_id: True, index=False), tmp_path)
    assert result.again == {"T": starts[7]}
    built_units = {
        int(path.parts[-2]): [
            starts.index(int(unit["physical_offset"]))
            for unit in np.frombuffer(path.read_bytes(), UNIT.dtype)
            if unit["record_size"]
        ]
        for path in tmp_path.glob("consumequeue/T/*/*")
    }
    assert built_units == {0: [7], 1: [9, 10], 2: [8]}


def test_a_queue_without_units_begins_again_where_it_had_no_place(tmp_path: Path) -> None:
    """Its oldest records have expired, and its new ones have places before those; another queue shows the rest."""
    places = [(0, 7), (1, 2), (0, 8), (1, 3), (0, 0), (0, 1), (1, 0), (0, 2), (1, 1)]
    records, starts = list[bytes](), list[int]()
    for queue_id, queue_offset in places:
        starts.append(LOG_SIZE + sum(map(len, records)))
        records.append(record(starts[-1], queue_id=queue_id, queue_offset=queue_offset))
    units = [(starts[number], len(records[number]), 0) for number in (6, 8)]
    files = {
        f"commitlog/{LOG_SIZE:020d}": log_file(records, LOG_SIZE),
        f"consumequeue/T/1/{0:020d}": queue_file(units),
    }
    store = made_store(files, commitlog_file_size=LOG_SIZE, consumequeue_file_size=FILE_UNITS * UNIT_SIZE)
    result = build(store, rules_for(NEWEST), BuildRequest(lambda _topic, _queue_id: True, index=False), tmp_path)
    assert result.again == {"T": starts[4]}
    queue = np.frombuffer((tmp_path / f"consumequeue/T/0/{0:020d}").read_bytes(), UNIT.dtype)
    assert queue["physical_offset"][queue["record_size"] > 0].tolist() == [starts[4], starts[5], starts[7]]


@pytest.mark.parametrize("queues", [1, 2])
def test_two_queues_that_step_back_to_the_first_place_show_that_a_topic_begins_again(
    tmp_path: Path, queues: int
) -> None:
    """One record each: that of one queue alone may have a wrong header."""
    places = [(0, 3), (1, 5), (0, 4), (1, 6), (0, 0), (1, 0)][: 4 + queues]
    records, starts = list[bytes](), list[int]()
    for queue_id, queue_offset in places:
        starts.append(LOG_SIZE + sum(map(len, records)))
        records.append(record(starts[-1], queue_id=queue_id, queue_offset=queue_offset))
    store = made_store(
        {f"commitlog/{LOG_SIZE:020d}": log_file(records, LOG_SIZE)}, commitlog_file_size=LOG_SIZE,
        consumequeue_file_size=FILE_UNITS * UNIT_SIZE,
    )  # fmt: skip
    result = build(store, rules_for(NEWEST), BuildRequest(lambda _topic, _queue_id: True, index=False), tmp_path)
    assert result.again == ({"T": starts[4]} if queues == 2 else {})
    queue = np.frombuffer((tmp_path / f"consumequeue/T/0/{0:020d}").read_bytes(), UNIT.dtype)
    expected = [starts[4]] if queues == 2 else [starts[4], starts[0], starts[2]]
    is_unit = (queue["record_size"] > 0) & (queue["physical_offset"] >= LOG_SIZE)
    assert queue["physical_offset"][is_unit].tolist() == expected


def test_a_record_that_a_broker_has_put_at_the_end_stays_there(tmp_path: Path) -> None:
    """A dead letter says the offset 0 of the message that it is a copy of; a later message has lost its place to it."""
    queue, writer = built(tmp_path / "last", [0, 0], kept=[0, 1])
    assert (queue, writer.misplaced) == ([0, 1], 0)
    assert built(tmp_path / "between", [0, 1, 0, 2, 3], kept=[0, 1, 2, 4])[0] == [0, 1, 2, 4]
    assert built(tmp_path / "gone", [0, 0, 1], kept=[0])[0] == [0, 2]
