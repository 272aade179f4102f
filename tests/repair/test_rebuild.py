"""Queues and index built from the log alone are those that real brokers wrote, and nothing else is touched."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UnsupportedError
from rmqtool.formats.checkpoint import parse_checkpoint
from rmqtool.formats.commitlog import MESSAGE_V1
from rmqtool.formats.consumequeue import FILLER_UNIT
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.repair.machine.plan import PlannedRepair
from rmqtool.repair.rebuild import RebuildChoice, plan_rebuild
from rmqtool.store.directory import Store
from rmqtool.store.source import read_range
from tests import golden_stores
from tests.engine.dispatch.test_derived_writer import (
    DISPATCHED_FROM,
    DISPATCHED_TWICE,
    HEAD_IS_GONE,
    NO_QUEUE_FILES,
    OTHER_LOG,
)
from tests.engine.memory_view import log_file, made_store
from tests.engine.memory_view import record as record_bytes
from tests.golden_stores import Record
from tests.repair.golden_repairs import derived_differences, options_of, planned_store, rules_of, store_of
from tests.store_state import assert_store_unchanged

Unpacked = Callable[[str], Path]
EMPTY = ("4.9.7-clean-empty", "5.5.0-clean-empty")
NOT_DERIVED_FROM_ALL = {*OTHER_LOG, *NO_QUEUE_FILES, *HEAD_IS_GONE, *DISPATCHED_FROM, *DISPATCHED_TWICE, *EMPTY}


def _healthy() -> list[str]:
    names = [name for name in golden_stores.healthy_names() if golden_stores.manifest(name).base is None]
    clean = [name for name in golden_stores.broker_names() if not name.endswith(("-slave", "leftover"))]
    return [name for name in [*names, *clean] if name not in NOT_DERIVED_FROM_ALL]


def _planned(path: Path, name: str, staging: Path, choice: RebuildChoice | None = None) -> PlannedRepair:
    staging.mkdir()
    return plan_rebuild(store_of(path, name), rules_of(name), choice or RebuildChoice(), staging, options_of(name))


def _gap_units(plan: PlannedRepair) -> int:
    """How many units stand for messages that the log does not have, as the plan says."""
    counts = [re.match(r"Units of messages that the commit log does not have: (\d+)", note) for note in plan.notes]
    return sum(int(count[1]) for count in counts if count)


@pytest.mark.parametrize("name", _healthy())
def test_lost_queues_and_index_come_back_byte_for_byte(
    golden: Unpacked, golden_copy: Unpacked, tmp_path: Path, name: str
) -> None:
    path = golden_copy(name)
    for directory in ("consumequeue", "consumequeue_ext", "batchconsumequeue", "index"):
        shutil.rmtree(path / directory, ignore_errors=True)
    with assert_store_unchanged(path):
        made = _planned(path, name, tmp_path / "staging")
        ours = planned_store(path, name, made.steps)
        assert list(derived_differences(store_of(golden(name), name), ours)) == []
    assert not [note for note in made.notes if "The earlier" in note]
    assert _gap_units(made) == 0


@pytest.mark.parametrize("name", [name for name in _healthy() if not name.startswith("broker-")])
def test_nothing_is_done_where_all_is_there(golden: Unpacked, tmp_path: Path, name: str) -> None:
    made = _planned(golden(name), name, tmp_path / "staging")
    assert made.steps == ()
    assert made.abort_stays is None


@pytest.mark.parametrize("name", ["4.9.7-clean-basic", "5.5.0-clean-basic"])
def test_one_topic_is_built_and_others_are_left(golden_copy: Unpacked, tmp_path: Path, name: str) -> None:
    path = golden_copy(name)
    store = store_of(path, name)
    for queue in store.queues.values():
        for segment in queue.segments:
            (path / segment.path).write_bytes(bytes(segment.size))
    topic = next(iter(store.queues))[0]
    made = _planned(path, name, tmp_path / "staging", RebuildChoice(topics=frozenset({topic})))
    touched = {step.path for step in made.steps}
    assert touched == {
        entry.path for queue in store.queues.values() if queue.topic == topic for entry in queue.segments
    }


@pytest.mark.parametrize("name", ["4.9.7-expired-head", "5.5.0-expired-head"])
def test_queue_offsets_stay_where_the_head_of_the_log_is_gone(
    golden: Unpacked, golden_copy: Unpacked, tmp_path: Path, name: str
) -> None:
    path = golden_copy(name)
    store = store_of(path, name)
    minimum = store.commitlog[0].start
    for queue in store.queues.values():  # all that still points into the log is lost
        for segment in queue.segments:
            raw = bytearray((path / segment.path).read_bytes())
            kept = next(at for at in range(0, len(raw) + 20, 20) if _size(raw, at) <= 0 or _offset(raw, at) >= minimum)
            raw[kept:] = bytes(len(raw) - kept)
            (path / segment.path).write_bytes(raw)
    made = _planned(path, name, tmp_path / "staging", RebuildChoice(queues=True))
    ours = planned_store(path, name, made.steps)
    known = store_of(golden(name), name)
    assert [found for found in derived_differences(known, ours) if "index" not in found] == []


@pytest.mark.parametrize("name", ["4.9.7-expired-head", "5.5.0-expired-head"])
def test_a_queue_that_begins_behind_the_head_has_no_filler(golden_copy: Unpacked, tmp_path: Path, name: str) -> None:
    path = golden_copy(name)
    shutil.rmtree(path / "consumequeue")
    made = _planned(path, name, tmp_path / "staging", RebuildChoice(queues=True))
    ours = planned_store(path, name, made.steps)
    minimum = ours.commitlog[0].start
    assert _gap_units(made) > 0
    for queue in ours.queues.values():
        raw = b""
        for segment in queue.segments:
            source = ours.view.open(segment.path)
            raw += read_range(source, 0, source.size)
            source.close()
        units = [(_offset(raw, at), _size(raw, at)) for at in range(0, len(raw), 20) if _size(raw, at)]
        assert FILLER_UNIT[:2] not in units
        places = [place for place, _ in units]
        assert places == sorted(places)
        assert all(place >= minimum or place == minimum - 8 for place in places)


@pytest.mark.parametrize("name", ["4.9.7-many-no-derived-abort", "5.5.0-many-no-derived-abort"])
def test_a_whole_rebuild_ends_as_after_a_clean_stop(golden: Unpacked, tmp_path: Path, name: str) -> None:
    made = _planned(golden(name), name, tmp_path / "staging")
    ours = planned_store(golden(name), name, made.steps)
    last = golden_stores.manifest(name).records[-1]
    assert not ours.has_abort
    assert made.steps[-1].path == "abort"
    source = ours.view.open("checkpoint")
    found = parse_checkpoint(read_range(source, 0, source.size))
    assert found.commitlog_timestamp_ms == last.store_timestamp_ms
    assert found.index_timestamp_ms == last.store_timestamp_ms
    assert found.consumequeue_physical_offset == (last.at if name.startswith("5.5") else 0)


@pytest.mark.parametrize("name", ["5.5.0-rocksdb-cq-crashed"])
def test_queues_in_a_database_need_the_library(
    golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("rmqtool.store.databases.rocksdb.LIBRARY", "no_such_library")
    with pytest.raises(UnsupportedError, match=r"install rmqtool\[rocksdb\]"):
        _planned(golden(name), name, tmp_path / "staging")


@pytest.mark.parametrize("name", ["4.9.7-damage-flip-body-middle-file", "5.5.0-damage-zero-hole"])
def test_damage_in_the_log_is_refused(golden: Unpacked, tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsupportedError, match="the commit log is damaged at"):
        _planned(golden(name), name, tmp_path / "staging")


@pytest.mark.parametrize("name", ["4.9.7-damage-log-middle-file-missing", "5.5.0-damage-log-middle-file-missing"])
def test_records_behind_a_missing_file_keep_their_queue_offsets(
    golden_copy: Unpacked, tmp_path: Path, name: str
) -> None:
    path = golden_copy(name)
    shutil.rmtree(path / "consumequeue")
    made = _planned(path, name, tmp_path / "staging", RebuildChoice(queues=True))
    ours = planned_store(path, name, made.steps)
    there = {segment.start // segment.size for segment in ours.commitlog}
    size = ours.commitlog_file_size
    assert _gap_units(made) > 0
    for record in golden_stores.manifest(name).records:
        if record.at // size not in there or record.sys_flag & 12 not in (0, 8):
            continue
        queue = ours.queues[record.topic, record.queue_id]
        position = record.queue_offset * 20
        segment = next(found for found in queue.segments if found.start <= position < found.end)
        source = ours.view.open(segment.path)
        raw = read_range(source, position - segment.start, 20)
        source.close()
        assert (_offset(raw, 0), _size(raw, 0)) == (record.at, record.size)


def _offset(raw: bytes | bytearray, at: int) -> int:
    return int.from_bytes(raw[at : at + 8], "big", signed=True)


def _size(raw: bytes | bytearray, at: int) -> int:
    return int.from_bytes(raw[at + 8 : at + 12], "big", signed=True)


def _units(ours: Store, topic: str, queue_id: int) -> list[tuple[int, int]]:
    raw = b""
    for segment in ours.queues[topic, queue_id].segments:
        source = ours.view.open(segment.path)
        raw += read_range(source, 0, source.size)
        source.close()
    return [(_offset(raw, at), _size(raw, at)) for at in range(0, len(raw), 20)]


def _edit(path: Path, record: Record, field: str, value: int) -> None:
    """Change a field that no checksum covers."""
    size = 65536
    place = path / "commitlog" / f"{record.at - record.at % size:020d}"
    raw = bytearray(place.read_bytes())
    at = record.at % size + MESSAGE_V1.position(field)
    raw[at : at + 8] = value.to_bytes(8, "big")
    place.write_bytes(raw)


def test_units_of_tombstones_are_dead_but_in_the_first_file(golden_copy: Unpacked, tmp_path: Path) -> None:
    name = "5.5.0-clean-basic"
    path = golden_copy(name)
    records = golden_stores.manifest(name).records
    first = next(record for record in records if record.at < 65536)
    later = next(record for record in records if record.at > 2 * 65536)
    for record in (first, later):
        _edit(path, record, "prepared_transaction_offset", TOMBSTONE)
    made = _planned(path, name, tmp_path / "staging", RebuildChoice(queues=True))
    ours = planned_store(path, name, made.steps)
    assert _units(ours, first.topic, first.queue_id)[first.queue_offset] == (first.at, first.size)
    dead = (later.at - later.at % 65536 - 8, 16)
    assert _units(ours, later.topic, later.queue_id)[later.queue_offset] == dead
    assert len(made.steps) == 1


def test_the_record_that_the_queue_has_keeps_a_queue_offset_given_twice(golden_copy: Unpacked, tmp_path: Path) -> None:
    name = "5.5.0-clean-basic"
    path = golden_copy(name)
    later = [record for record in golden_stores.manifest(name).records if record.at > 2 * 65536]
    kept = next(record for record in later if sum(_same_queue(record, other) for other in later) > 3)
    second = next(r for r in later if _same_queue(r, kept) and r.queue_offset == kept.queue_offset + 1)
    third = next(r for r in later if _same_queue(r, kept) and r.queue_offset == kept.queue_offset + 2)
    _edit(path, second, "queue_offset", kept.queue_offset)
    made = _planned(path, name, tmp_path / "staging", RebuildChoice(queues=True))
    units = _units(planned_store(path, name, made.steps), kept.topic, kept.queue_id)
    (note,) = [note for note in made.notes if "the same queue offset" in note]
    assert ": 1. " in note
    assert units[kept.queue_offset] == (kept.at, kept.size)
    assert units[second.queue_offset] == (third.at - third.at % 65536 - 8, 16)
    assert units[third.queue_offset] == (third.at, third.size)


def test_a_queue_offset_far_ahead_fills_no_disk(golden_copy: Unpacked, tmp_path: Path) -> None:
    name = "5.5.0-clean-basic"
    path = golden_copy(name)
    later = next(record for record in golden_stores.manifest(name).records if record.at > 2 * 65536)
    _edit(path, later, "queue_offset", 1 << 60)
    made = _planned(path, name, tmp_path / "staging", RebuildChoice(queues=True))
    assert _gap_units(made) < 100
    assert sum(step.length for step in made.steps) < 1 << 20


def _same_queue(left: Record, right: Record) -> bool:
    return (left.topic, left.queue_id) == (right.topic, right.queue_id)


def test_messages_that_close_a_gap_are_counted(tmp_path: Path) -> None:
    """Nothing in the log's first file can stand for a message that is gone, so later ones move up, as brokers do it."""
    raw = b""
    for queue_offset in (0, 1, 3, 4):
        raw += record_bytes(len(raw), queue_offset=queue_offset)
    files = {"commitlog/00000000000000000000": log_file([raw], 4096)}
    sizes = {"consumequeue_file_size": 200, "index_slot_count": 10, "index_entry_count": 20}
    store = made_store(files, commitlog_file_size=4096, **sizes)
    made = plan_rebuild(store, rules_for("5.5.0"), RebuildChoice(), tmp_path)
    assert any("Records of T/0 that get another queue offset" in note and ": 2. " in note for note in made.notes)
