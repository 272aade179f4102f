"""A salvaged store whose last record is a tombstone goes on: nothing waits for dispatch there."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from rmqtool.engine.append.log_dispatcher import waits_for_dispatch
from rmqtool.formats.consumequeue import UNIT
from rmqtool.store.directory import QueueFiles, Store
from rmqtool.store.source import read_range
from tests.repair.salvage.trial import flip, healthy, overwrite, salvaged


def test_a_tombstone_at_the_end_waits_for_no_dispatch(tmp_path: Path) -> None:
    store = healthy("many-files", "5.5.0")
    files = dict(store.files)
    places = sorted(store.content.records)
    at = next(at for at in reversed(places) if len(store.content.records[at]) > 400)
    end = places[-1] + len(store.content.records[places[-1]])
    for place in places[places.index(at) :]:
        path, position = store.file_of(place)
        flip(files, path, 8 * (position + 100) + 3)  # the body's first bytes
    found = salvaged(store.store(files), store.version, tmp_path)
    assert found.content.tombstones
    last = max(found.content.records)
    begin = last + len(found.content.records[last])
    assert any(each.physical_offset >= begin for each in found.content.tombstones)
    assert not waits_for_dispatch(found.after, begin, end)
    assert waits_for_dispatch(found.after, last, end)


def test_queues_reach_to_the_end_of_a_tombstone_at_the_end(tmp_path: Path) -> None:
    """By the last units brokers tell what is in the queues; 5.3.3 enters the rest again, and may not start then."""
    store = healthy("many-files", "5.3.3")
    files = dict(store.files)
    last_file = max(store.log_files)
    overwrite(files, last_file, 0, len(files[last_file]), random.Random(1))
    found = salvaged(store.store(files), store.version, tmp_path)
    assert not found.left
    ends = [_last_unit(found.after, queue) for queue in found.after.queues.values()]
    tombstone = max(found.content.tombstones, key=lambda each: each.physical_offset)
    assert max(offset + size for offset, size in ends) == tombstone.physical_offset + tombstone.size


def _last_unit(store: Store, queue: QueueFiles) -> tuple[int, int]:
    for segment in reversed(queue.segments):
        source = store.view.open(segment.path)
        units = np.frombuffer(read_range(source, 0, segment.size), UNIT.dtype)
        source.close()
        units = units[units["record_size"] > 0]
        if units.size:
            return int(units["physical_offset"][-1]), int(units["record_size"][-1])
    return 0, 0
