"""Records without a unit whose heads are wrong: the order of the log's own records tells, before any queue is built."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from rmqtool.engine.reading.record import read_record
from rmqtool.engine.rules.versions import rules_for
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.findings.registry import finding
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from rmqtool.verify.match.undispatched_headers import Doubts
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.verify.stores import above_note, verified

STORES = ["4.9.7-crashed-no-dispatch", "5.5.0-crashed-no-dispatch"]
DOUBTFUL = "commitlog.doubtful-header"
MISSING = "commitlog.missing-message"
SIZES = ("--queue-file-size", 1200, "--index-slots", 50, "--index-entries", 120)
LOG = "commitlog/00000000000000000000"
LOG_SIZE = 65536


class Place(NamedTuple):
    """A record of the first log file: where it lies, its queue, and where its topic ends."""

    start: int
    topic: bytes
    queue_id: int
    queue_offset: int
    topic_end: int


def places(path: Path, version: str) -> list[Place]:
    return [place for place in all_places(path, version) if place.start < LOG_SIZE]


def all_places(path: Path, version: str) -> list[Place]:
    store = survey(open_directory(path))
    records = []
    with OpenFiles(store.view) as files:
        log = Log(store, rules_for(version), files)
        for segment in store.commitlog:
            at = segment.start
            while (record := read_record(log, at)) is not None and record.size:
                end = at + record.size - 2 - len(record.properties_raw)
                records.append(Place(at, record.topic_raw, record.queue_id, record.queue_offset, end))
                at += record.size
    return records


def middle(path: Path, version: str) -> Place:
    """A record without a unit between others of its queue."""
    undispatched = {
        (each.topic, each.queue_id)
        for each in verified(path, version)[1]
        if each.id == "consumequeue.behind-log" and "none of its" in each.message
    }
    known = [each for each in places(path, version) if (each.topic.decode(), each.queue_id) in undispatched]
    after = {(each.topic, each.queue_id, each.queue_offset - 1) for each in known}
    return next(each for each in known if each.queue_offset == 2 and each[1:4] in after)


def write(path: Path, position: int, raw: bytes) -> None:
    with (path / LOG).open("r+b") as log:
        log.seek(position)
        log.write(raw)


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("field", ["queue-offset", "topic", "queue-id"])
def test_a_wrong_head_is_told_before_anything_is_dispatched(golden_copy: Unpacked, name: str, field: str) -> None:
    path, version = golden_copy(name), name[:5]
    place = middle(path, version)
    before = (path / LOG).read_bytes()
    if field == "queue-offset":
        write(path, place.start + 20, ((1 << 63) - 1).to_bytes(8, "big"))
    elif field == "topic":
        write(path, place.topic_end - 1, bytes([before[place.topic_end - 1] ^ 0x20]))
    else:
        write(path, place.start + 12, (77).to_bytes(4, "big"))
    (found,) = [each for each in verified(path, version)[1] if each.id == DOUBTFUL]
    assert (found.physical_offset, found.queue_offset) == (place.start, 2)
    assert rmqtool("recover", path, "--yes").code == 3  # not built in another order than the log's
    assert rmqtool("salvage", path, "--yes", *SIZES).code == 0
    assert (path / LOG).read_bytes() == before
    assert not above_note(verified(path, version)[1])


@pytest.mark.parametrize("name", STORES)
def test_a_queue_offset_of_an_earlier_record(golden_copy: Unpacked, name: str) -> None:
    """The last message of a queue without a unit: brokers append it, because its queue offset is 0."""
    path, version = golden_copy(name), name[:5]
    queue = middle(path, version)[1:3]
    place = [each for each in all_places(path, version) if each[1:3] == queue][-1]
    file = path / "commitlog" / f"{place.start - place.start % LOG_SIZE:020d}"
    before = file.read_bytes()
    position = place.start % LOG_SIZE + 20
    file.write_bytes(before[:position] + bytes(8) + before[position + 8 :])
    (row,) = [each for each in verified(path, version)[1] if each.id == "commitlog.queue-offset-repeated"]
    assert (row.physical_offset, row.queue_offset, row.count) == (place.start, 0, 1)
    rmqtool("recover", path, "--yes", *SIZES)
    assert rmqtool("salvage", path, "--yes", *SIZES).code == 0
    assert file.read_bytes() == before
    assert not above_note(verified(path, version)[1])


@pytest.mark.parametrize("name", STORES)
def test_beside_damage_nothing_is_sure(golden_copy: Unpacked, name: str) -> None:
    path, version = golden_copy(name), name[:5]
    place = middle(path, version)
    next_start = next(each.start for each in places(path, version) if each.start > place.start)
    write(path, place.start + 20, ((1 << 63) - 1).to_bytes(8, "big"))
    write(path, next_start + 4, bytes(4))
    assert DOUBTFUL not in above_note(verified(path, version)[1])


@pytest.mark.parametrize("name", STORES)
def test_what_no_record_explains_is_missing(golden_copy: Unpacked, name: str) -> None:
    """A queue of its own, which begins at 0 as queues do: it contradicts nothing, and is not blamed."""
    path, version = golden_copy(name), name[:5]
    assert MISSING not in above_note(verified(path, version)[1])
    known = places(path, version)
    others = {each[1:3] for each in known if each.queue_offset == 1}
    place = next(each for each in known if each.queue_offset == 0 and each[1:3] in others)
    write(path, place.start + 12, (1 << 28).to_bytes(4, "big"))
    findings = verified(path, version)[1]
    (row,) = [each for each in findings if each.id == MISSING]
    assert (row.topic, row.queue_id, row.queue_offset) == (place.topic.decode(), place.queue_id, 0)
    assert DOUBTFUL not in above_note(findings)


@pytest.mark.parametrize("name", STORES)
def test_the_last_record_of_a_queue_does_not_begin_another_one(golden_copy: Unpacked, name: str) -> None:
    """No queue of a log that begins at 0 begins later: its earlier messages cannot have expired."""
    path, version = golden_copy(name), name[:5]
    ends = {place[1:3]: place for place in all_places(path, version)}
    place = next(place for place in ends.values() if place.queue_offset > 0)
    file = path / "commitlog" / f"{place.start - place.start % LOG_SIZE:020d}"
    position = (place.topic_end - 1) % LOG_SIZE
    with file.open("r+b") as log:
        log.seek(position)
        last = log.read(1)[0] ^ 0x20
        log.seek(position)
        log.write(bytes([last]))
    (row,) = [row for row in verified(path, version)[1] if row.id == MISSING]
    assert (row.physical_offset, row.queue_offset, row.count) == (place.start, 0, place.queue_offset)
    assert row.topic == (place.topic[:-1] + bytes([last])).decode()


def test_a_range_of_any_length_has_an_end() -> None:
    doubts = Doubts()
    doubts.add(finding("commitlog.unreadable-range", "commitlog/x", "", physical_offset=5, length=1 << 63))
    assert doubts.counter()(JAVA_LONG_MAX - 1, JAVA_LONG_MAX)
