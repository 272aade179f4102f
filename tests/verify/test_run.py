"""Edits of real stores that are not among the golden damages: each has exactly the findings that it implies."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import NEWEST
from rmqtool.findings.finding import Finding
from rmqtool.store.source import BytesSource
from rmqtool.verify.survey.context import Depth, VerifyOptions
from tests.conftest import Unpacked
from tests.engine.memory_view import MemoryView, index_file, log_file, made_store, queue_file, record
from tests.verify.flips import FlippedStore
from tests.verify.stores import above_note, verified

BASE = "5.5.0-damage-base"
QUEUE = "consumequeue/Audit/0/00000000000000000000"
UNIT = struct.Struct(">qiq")
Edit = Callable[[dict[str, bytes]], None]


def patch(path: str, position: int, raw: bytes) -> Edit:
    """Overwrite bytes of a file."""

    def edit(files: dict[str, bytes]) -> None:
        files[path] = files[path][:position] + raw + files[path][position + len(raw) :]

    return edit


def units(files: dict[str, bytes], path: str = QUEUE) -> list[tuple[int, int, int]]:
    return list(UNIT.iter_unpack(files[path]))


def dead_unit(files: dict[str, bytes]) -> None:
    # The first unit behind the first log file.
    number = next(at for at, unit in enumerate(units(files)) if unit[0] >= 65536)
    patch(QUEUE, 20 * number, UNIT.pack(65536 - 8, 16, 0))(files)


def farthest_unit(files: dict[str, bytes]) -> None:
    """A queue that points to the largest offset of all, and to nothing else."""
    files["consumequeue/Audit/7/00000000000000000000"] = UNIT.pack((1 << 63) - 1, 200, 0) + bytes(
        len(files[QUEUE]) - 20
    )


def zero_queue(files: dict[str, bytes]) -> None:
    """A queue of which the log has no message."""
    files["consumequeue/Audit/7/00000000000000000000"] = bytes(len(files[QUEUE]))


def farthest_entry(files: dict[str, bytes]) -> None:
    """The last entry of the index points to the largest offset of all."""
    path = max(path for path in files if path.startswith("index/"))
    patch(path, files[path].rindex(files[path][24:32]), ((1 << 63) - 1).to_bytes(8, "big"))(files)


def tombstone(files: dict[str, bytes]) -> None:
    patch("commitlog/00000000000000000000", units(files)[0][0] + 76, b"RMQTOMBS")(files)


def lost_unit(files: dict[str, bytes]) -> None:
    """A unit left out, the later ones of the file moved up, so that the last one stands twice."""
    raw = files[QUEUE]
    files[QUEUE] = raw[: 20 * 10] + raw[20 * 11 :] + raw[-20:]


def foreign_unit(files: dict[str, bytes]) -> None:
    other = UNIT.pack(*units(files, "consumequeue/OrderEvents/1/00000000000000000000")[3])
    patch(QUEUE, 20 * 3, other)(files)
    patch(QUEUE, 20 * 4, other)(files)


def older_units_behind(files: dict[str, bytes]) -> None:
    """The last file of the queue holds one unit; a zero one and three old ones follow."""
    last = "consumequeue/Audit/0/00000000000000001200"
    patch(last, 40, files[QUEUE][:60])(files)


def impossible_transaction(files: dict[str, bytes]) -> None:
    patch("commitlog/00000000000000000000", units(files)[0][0] + 76, struct.pack(">q", -1))(files)


def broken_topics(files: dict[str, bytes]) -> None:
    files["config/topics.json"] = b'{"topicConfigTable": {'
    files["config/topics.json.bak"] = b'{"topicConfigTable": {}}'
    files["config/consumerOffset.json"] = b"{"


def far_consumer(files: dict[str, bytes]) -> None:
    files["config/consumerOffset.json"] = b'{"offsetTable": {"Audit@group": {0: 61}, "Audit@other": {0: 62}}}'


def checkpoint_offset(value: int) -> Edit:
    return patch("checkpoint", 40, struct.pack(">q", value))


def swapped_units(files: dict[str, bytes]) -> None:
    raw = files[QUEUE]
    files[QUEUE] = raw[:100] + raw[120:140] + raw[100:120] + raw[140:]


def fence(files: dict[str, bytes]) -> None:
    files["commitlog/rmqtool-repair-in-progress"] = b"rmqtool recover"


def strays(files: dict[str, bytes]) -> None:
    files["consumequeue/Audit/0/notes.txt"] = b"x"
    files["compaction/compactionLog/T/0/00000000000000000000.delete"] = b"x"


def old_record_after_the_end(files: dict[str, bytes], *, changed: int | None = None) -> None:
    """A copy of the log's first record; its own offset says where it was copied from."""
    first, last = "commitlog/00000000000000000000", max(path for path in files if path.startswith("commitlog/"))
    size = int.from_bytes(files[first][:4], "big")
    copy = bytearray(files[first][:size])
    if changed is not None:
        copy[changed] ^= 1
    patch(last, len(files[last].rstrip(b"\0")), bytes(copy))(files)


EDITS: dict[str, tuple[str, Edit, dict[str, int]]] = {
    "dead unit": (BASE, dead_unit, {"consumequeue.dead-unit": 1}),
    "farthest unit": (BASE, farthest_unit, {"consumequeue.ahead-of-log": 1}),
    "zero queue": (BASE, zero_queue, {"consumequeue.zero-file": 1}),
    "farthest entry": (
        BASE,
        farthest_entry,
        {"index.dangling-entry": 1, "index.bad-header": 1},
    ),
    "tombstone": (BASE, tombstone, {"commitlog.tombstone": 1}),
    "lost unit": (
        BASE,
        lost_unit,
        {"consumequeue.wrong-position": 2, "consumequeue.order": 1, "consumequeue.missing-unit": 1},
    ),
    "foreign unit": (BASE, foreign_unit, {"consumequeue.wrong-record": 1, "consumequeue.order": 2}),
    "older units behind": (BASE, older_units_behind, {"consumequeue.stale-unit": 1}),
    "impossible transaction": (BASE, impossible_transaction, {"commitlog.doubtful-header": 1}),
    "swapped units": (BASE, swapped_units, {"consumequeue.order": 1, "consumequeue.wrong-position": 2}),
    "broken configuration": (
        BASE,
        broken_topics,
        {"config.backup-better": 1, "config.unreadable": 1, "config.queue-without-topic": 3},
    ),
    "far consumer": (
        BASE,
        far_consumer,
        {"config.consumer-offset-beyond-queue": 1, "config.topics-missing": 1},
    ),
    "checkpoint behind the log": (BASE, checkpoint_offset(1 << 40), {"checkpoint.ahead-of-log": 1}),
    "old record after the end": (BASE, old_record_after_the_end, {"commitlog.stale-tail": 1}),
    "another record after the end": (
        BASE,
        partial(old_record_after_the_end, changed=19),
        {"commitlog.self-offset-mismatch": 1},
    ),
    "fence": (BASE, fence, {"store.repair-unfinished": 1}),
    "strays": (BASE, strays, {"consumequeue.stray-file": 1, "compaction.leftover-file": 1}),
    "whole-record CRC": (
        "5.5.0-record-crc",
        patch("commitlog/00000000000000000000", 20, b"\x01"),
        {"commitlog.record-crc-mismatch": 1, "checkpoint.zero-time": 1},
    ),
    "extension": (
        "5.5.0-cq-ext",
        lambda files: files.update({path: bytes(len(raw)) for path, raw in files.items() if "_ext/Audit/0" in path}),
        {"consumequeue.bad-extension": 4},
    ),
}


def edited(path: Path, name: str, edit: Edit) -> tuple[FlippedStore, list[Finding]]:
    store = FlippedStore.load(path, name[:5])
    settings = store.settings
    files = dict(store.files)
    edit(files)
    fresh = FlippedStore(files, store.version)
    return fresh, verified(MemoryView(files), store.version, settings=settings)[1]


@pytest.mark.parametrize("title", EDITS)
def test_an_edit_has_its_findings(golden: Unpacked, title: str) -> None:
    name, edit, expected = EDITS[title]
    found = edited(golden(name), name, edit)[1]
    assert Counter(each.id for each in found) == Counter(expected)


def test_a_version_that_cannot_read_v2(golden: Unpacked) -> None:
    found = verified(golden("5.5.0-v2"), "4.9.8")[1]
    assert "commitlog.not-readable-by-version" in above_note(found)


def test_a_topic_that_leads_out_of_the_store() -> None:
    store = made_store(
        {"commitlog/00000000000000000000": log_file([record(0, topic="../../x")], 4096)}, commitlog_file_size=4096
    )
    found = verified(store, NEWEST)[1]
    assert "consumequeue.unsafe-name" in above_note(found)


@pytest.mark.parametrize(
    ("value", "is_torn"),
    [("a\0b", False), ("a\0\0\0\0\0b", False), ("a" + "\0" * 600 + "b", True), ("a" + "\0" * 9, True)],
)
def test_a_zero_byte_in_a_property_is_no_torn_record(value: str, *, is_torn: bool) -> None:
    """What never arrived is the end of the record, or a whole sector."""
    raw = record(0, properties={"name": value})
    if value.endswith("\0"):
        raw = raw[:-1] + b"\0"
    store = made_store({"commitlog/00000000000000000000": log_file([raw], 4096)}, commitlog_file_size=4096)
    found = above_note(verified(store, NEWEST)[1])
    assert ("commitlog.torn-record" in found) == is_torn


def test_a_queue_offset_given_twice() -> None:
    first = record(0, queue_offset=0)
    second = record(len(first), queue_offset=0, store_timestamp_ms=1_000_001)
    store = made_store(
        {
            "commitlog/00000000000000000000": log_file([first, second], 4096),
            "consumequeue/T/0/00000000000000000000": queue_file([(len(first), len(second), 0)]),
            "checkpoint": struct.pack(">qq", 1_000_000, 1_000_000).ljust(4096, b"\0"),
        },
        commitlog_file_size=4096,
        consumequeue_file_size=200,
    )
    found = verified(store, NEWEST)[1]
    assert above_note(found) == {"commitlog.queue-offset-repeated": 1}


def test_a_delay_that_is_no_number() -> None:
    raw = record(0, topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "soon"})
    store = made_store({"commitlog/00000000000000000000": log_file([raw], 4096)}, commitlog_file_size=4096)
    assert "commitlog.bad-property" in above_note(verified(store, NEWEST)[1])


def test_a_hash_chain_in_a_circle_ends() -> None:
    raw = index_file(
        [(3, 0, 0, 2), (3, 0, 0, 1)], {3: 2}, slot_count=10, entry_count=20, begin_ms=1_000_000, end_ms=1_000_000
    )
    store = made_store(
        {"commitlog/00000000000000000000": log_file([record(0)], 4096), "index/20260101000000000": raw},
        commitlog_file_size=4096,
        index_slot_count=10,
        index_entry_count=20,
    )
    assert "index.chain-loop" in above_note(verified(store, NEWEST)[1])


class _BadSector(BytesSource):
    """Bytes of which a range cannot be read."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        if position < 4096 and position + len(buffer) > 3072:
            raise OSError(5, "Input/output error")
        return super().read_into(position, buffer)


class _BadDisk(MemoryView):
    """A store whose log has a bad sector."""

    def open(self, path: str) -> BytesSource:
        found = super().open(path)
        return _BadSector(path, found.content) if path == "commitlog/00000000000000065536" else found


def test_what_the_disk_does_not_give_is_said(golden: Unpacked) -> None:
    store = FlippedStore.load(golden(BASE), "5.5.0")
    found = verified(_BadDisk(dict(store.files)), "5.5.0", settings=store.settings)[1]
    assert above_note(found) == {"commitlog.unreadable-range": 1}
    assert "the queues know of" in found[0].message


def test_the_moving_edge_of_a_running_broker_is_no_damage(golden: Unpacked) -> None:
    summary, found = verified(golden("5.5.0-crashed"), "5.5.0", VerifyOptions(broker_runs=True))
    assert above_note(found) == {}
    assert summary.findings["store.lock-held"] == 1
    assert summary.left_out_bytes > 0
    assert not summary.complete


def test_depths_hold_one_another(golden: Unpacked) -> None:
    path = golden("5.5.0-damage-flip-body-last-file")
    by_depth = {depth: verified(path, "5.5.0", VerifyOptions(depth=depth)) for depth in Depth}
    assert [by_depth[depth][0].record_count for depth in Depth] == [0, 199, 199]
    assert [len(by_depth[depth][1]) for depth in Depth] == [0, 1, 1]


def test_slices_together_are_the_whole(golden: Unpacked) -> None:
    path = golden("5.5.0-many-flip-second-file-no-checkpoint-abort")
    whole, found = verified(path, "5.5.0")
    parts = [verified(path, "5.5.0", VerifyOptions(slice_number=number, slice_count=3)) for number in (1, 2, 3)]
    assert sum(part.record_count for part, _ in parts) == whole.record_count
    assert not any(part.complete for part, _ in parts)
    damage = [each for _, partial in parts for each in partial if each.id == "commitlog.body-crc-mismatch"]
    assert damage == [each for each in found if each.id == "commitlog.body-crc-mismatch"]


def test_a_run_goes_on_where_its_time_was_up(golden: Unpacked, tmp_path: Path) -> None:
    path, state = golden("5.5.0-damage-zero-hole"), tmp_path / "state.json"
    stopped, _ = verified(path, "5.5.0", VerifyOptions(duration_max_s=0, state_file=state))
    assert (stopped.splits_done, stopped.complete) == (0, False)
    whole, found = verified(path, "5.5.0", VerifyOptions(state_file=state))
    assert whole.complete
    again, same = verified(path, "5.5.0", VerifyOptions(duration_max_s=0, state_file=state))
    assert again.complete
    assert (again.findings, again.record_count, same) == (whole.findings, whole.record_count, found)


def test_the_state_is_not_written_into_the_store(golden: Unpacked) -> None:
    from rmqtool.errors import RefusedError

    path = golden(BASE)
    with pytest.raises(RefusedError):
        verified(path, "5.5.0", VerifyOptions(state_file=path / "state.json"))


@pytest.mark.parametrize("length", [-1, -(1 << 31)])
def test_a_negative_length_of_no_body_is_read_as_0(length: int) -> None:
    """As all brokers read it: the record and what follows it are served."""
    first = record(0, body=b"")
    second = record(len(first), queue_offset=1)
    files = {
        "commitlog/00000000000000000000": log_file([first, second], 4096),
        "consumequeue/T/0/00000000000000000000": queue_file([(0, len(first), 0), (len(first), len(second), 0)]),
        "checkpoint": struct.pack(">qq", 1_000_000, 1_000_000).ljust(4096, b"\0"),
    }
    for _ in range(2):
        store = made_store(files, commitlog_file_size=4096, consumequeue_file_size=200)
        summary, found = verified(store, NEWEST)
        assert (summary.record_count, above_note(found)) == (2, {})
        patch("commitlog/00000000000000000000", 84, struct.pack(">i", length))(files)
