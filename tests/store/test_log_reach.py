"""Units that name a record across the end of the only log file show that it was cut, unless they contradict others."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rmqtool.store.directory import record_end_across, survey
from rmqtool.store.view import open_directory

LOG_SIZE = 65536


@pytest.mark.parametrize(
    ("units", "reach"),
    [
        ([(0, 300), (65000, 800), (65800, 300)], 66100),
        ([(0, 300), (300, 1 << 27), (65000, 300)], None),
        ([(0, 300), (300, 1 << 27), (65000, 800)], 65800),
        ([(0, 300), (65000, 300)], None),
    ],
)
def test_a_size_over_the_next_unit_is_damaged(tmp_path: Path, units: list[tuple[int, int]], reach: int | None) -> None:
    log, queue = tmp_path / "commitlog" / f"{0:020d}", tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    for file, content in ((log, bytes(LOG_SIZE)), (queue, b"".join(struct.pack(">qiq", *unit, 0) for unit in units))):
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
    store = survey(open_directory(tmp_path))
    files = [segment.entry for segment in store.queues["T", 0].segments]
    assert record_end_across(store.view, files, store.commitlog[0].entry, 0) == reach
