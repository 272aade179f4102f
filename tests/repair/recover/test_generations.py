"""Where a topic begins again, only the whole log may tell: a bounded `recover` reads it for a queue without files."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.formats.commitlog import MAGIC_BLANK
from rmqtool.repair.machine.plan import view_over
from rmqtool.repair.recover.plan import RecoverOptions, plan_recover
from rmqtool.store.directory import Settings, Store, survey
from rmqtool.store.source import read_range
from tests.engine.memory_view import log_file, made_store, queue_file, record

FILE_SIZE = 4096
SIZES = {"commitlog_file_size": FILE_SIZE, "consumequeue_file_size": 200}
Sent = tuple[str, int, int]


def store_of(files: list[list[Sent]]) -> tuple[Store, list[list[int]]]:
    """A killed store that has all units of topic K and none of topic T, and where the records of each file lie."""
    contents, units, places = dict[str, bytes](), list[tuple[int, int, int]](), list[list[int]]()
    for number, messages in enumerate(files):
        start, records = number * FILE_SIZE, list[bytes]()
        places.append([])
        for topic, queue_id, queue_offset in messages:
            at = start + sum(map(len, records))
            one = record(
                at, topic, queue_id=queue_id, queue_offset=queue_offset, store_timestamp_ms=1_000_000 * (number + 1)
            )
            records.append(one)
            places[-1].append(at)
            units += [(at, len(one), 0)] if topic == "K" else []
        if number + 1 < len(files):
            rest = FILE_SIZE - sum(map(len, records))
            records.append(struct.pack(">ii", rest, MAGIC_BLANK).ljust(rest, b"\0"))
        contents[f"commitlog/{start:020d}"] = log_file(records, FILE_SIZE)
    contents[f"consumequeue/K/0/{0:020d}"] = queue_file(units)
    newest_ms = 1_000_000 * (len(files) - 1)
    contents |= {"checkpoint": struct.pack(">qqq", *[newest_ms] * 3).ljust(4096, b"\0"), "abort": b""}
    return made_store(contents, **SIZES), places


@pytest.mark.parametrize("full", [False, True])
def test_a_queue_without_files_is_told_by_the_whole_log(tmp_path: Path, *, full: bool) -> None:
    old_start: list[Sent] = [("T", 0, 0), ("T", 0, 1), ("K", 0, 0)]
    old_end: list[Sent] = [("T", 1, 0), ("T", 1, 1), ("K", 0, 3)]
    new: list[Sent] = [("K", 0, 4), ("T", 0, 0), ("T", 0, 1), ("T", 2, 0)]
    store, places = store_of([old_start, [("K", 0, 1)], [("K", 0, 2)], old_end, new])
    made = plan_recover(store, rules_for("4.9.8"), tmp_path, RecoverOptions(full=full))
    settings = Settings(**SIZES)  # type: ignore[arg-type]
    after = survey(view_over(store.view, made.steps), settings)
    built = {queue_id for topic, queue_id in after.queues if topic == "T"}
    assert built == {0, 2}
    with_units = after.view.open(after.queues["T", 0].segments[0].path)
    units = struct.iter_unpack(">qiq", read_range(with_units, 0, 200))
    assert [at for at, size, _ in units if size] == places[4][1:3]
