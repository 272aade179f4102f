"""Maps of queues are the same from memory and from a file, and only those that matter are read again."""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np
import pytest

from rmqtool.errors import WriteError
from rmqtool.formats.queue_name import topic_bytes
from rmqtool.verify.survey.context import VerifyContext
from rmqtool.verify.survey.queue_map import OffsetRuns, QueueMap, QueueMaps, RunsBuilder, UnitFile
from tests.little_memory import little_memory

ODD = b"caf\xe9".decode("utf-8", "surrogateescape")
TOPICS = ("Orders", ODD, "空")


def made(topic: str, queue_id: int, offsets: list[int]) -> QueueMap:
    builder = RunsBuilder()
    if offsets:
        builder.take(7, np.array(offsets, np.int64))
    directory = f"consumequeue/{topic}/{queue_id}"
    files = (UnitFile(f"{directory}/00000000000000000000", 0, 300_000),)
    return QueueMap(
        topic, queue_id, False, directory, files, 300_000, builder.finish(), 7 + len(offsets), ((0, 7),), (), (),
        ((3, 4), (5, 6)), ((1, 2),), len(offsets),
    )  # fmt: skip


def all_maps() -> list[QueueMap]:
    return [
        made(topic, number, list(range(1000 * number, 1000 * number + 100 * number, 100)))
        for topic in TOPICS
        for number in range(10)
    ]


def values(queue: QueueMap) -> dict[str, Any]:
    units = queue.units
    arrays = {name: getattr(units, name).tolist() for name in ("runs", "sample_places", "sample_offsets")}
    return {**{name: value for name, value in vars(queue).items() if name != "units"}, **arrays, "out": units.dropped}


def kept(queues: list[QueueMap]) -> QueueMaps:
    maps = QueueMaps()
    for queue in queues:
        maps.add((topic_bytes(queue.topic), queue.queue_id), queue)
    return maps


@pytest.fixture
def in_file() -> QueueMaps:
    with little_memory():
        maps = kept(all_maps())
    assert maps._file is not None
    assert sum(isinstance(place, int) for place in maps._places.values()) > len(maps) / 2
    return maps


def test_maps_are_the_same_from_a_file(in_file: QueueMaps) -> None:
    expected = kept(all_maps())
    assert expected._file is None
    assert list(in_file) == list(expected)
    assert [values(queue) for queue in in_file.values()] == [values(queue) for queue in expected.values()]
    assert (topic_bytes(ODD), 9) in in_file
    assert (b"Orders", 10) not in in_file
    assert in_file.get((b"Orders", 10)) is None


def test_only_queues_with_units_into_a_range_are_read(in_file: QueueMaps, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *arguments: read.append(arguments) or pread(*arguments))
    chosen = {key: queue for key, queue in in_file.into(9200, 9300) if queue.units.ranges(9200, 9300)}
    assert set(chosen) == {(topic_bytes(topic), 9) for topic in TOPICS}
    assert 0 < len(read) <= len(TOPICS)
    context = VerifyContext(None, None, None, None, in_file)  # type: ignore[arg-type]
    assert [key for key, queue in context.queues_into(9200, 9300) if queue.units.ranges(9200, 9300)] == list(chosen)


def test_another_process_gets_all_maps(in_file: QueueMaps) -> None:
    copy = pickle.loads(pickle.dumps(in_file))  # noqa: S301 - our own
    assert [values(queue) for queue in copy.values()] == [values(queue) for queue in in_file.values()]


def test_a_full_disk_is_an_error_that_names_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", lambda _file, content, _place: len(content) - 1)
    with little_memory(), pytest.raises(WriteError, match="no space left for what --max-memory keeps out of memory"):
        kept(all_maps())


def test_a_queue_without_units_points_nowhere() -> None:
    with little_memory(8):
        maps = kept([made("Empty", 0, [])])
    assert isinstance(maps[b"Empty", 0].units, OffsetRuns)
    assert list(maps.into(0, 1 << 40)) == []
