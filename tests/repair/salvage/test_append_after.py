"""A salvaged store whose last record is a tombstone can be appended to: nothing waits for dispatch there."""

from __future__ import annotations

from pathlib import Path

from rmqtool.engine.undispatched import waits_for_dispatch
from tests.repair.salvage.trial import flip, healthy, salvaged


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
