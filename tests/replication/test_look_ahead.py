"""Before a mirror fills a hole or ends at a store time, it knows what the master has after that."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from rmqtool.replication import mirror
from rmqtool.replication.master_log import ArrivedBlock
from rmqtool.replication.mirror import SeenBytes
from rmqtool.replication.mirror_status import MirrorStatus
from rmqtool.replication.record_check import DivergedError, LateRecords, Until
from rmqtool.replication.run import run_mirror
from tests.replication.fake_master import FakeMaster, frame
from tests.replication.mirror_runs import (
    FILE_SIZE,
    copied,
    demand_copy,
    mirrored,
    record_starts,
    request,
    store_time,
    with_flag,
    with_store_times,
)

COPIED = 50_000
HOUR_MS = 3_600_000


def copy_with_holes(root: Path, log: bytes, *numbers: int) -> bytes:
    """A copy of the first bytes of a log, in which some records are zeros; its bytes."""
    starts = record_starts(log)
    end = next(start for start in starts if start >= COPIED)
    content = bytearray(log[:end])
    for number in numbers:
        content[starts[number] : starts[number + 1]] = bytes(starts[number + 1] - starts[number])
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020}").write_bytes(content.ljust(FILE_SIZE, b"\0"))
    return copied(root)


@pytest.mark.parametrize("batch_size", [700, 32768])
def test_no_byte_of_another_log_gets_into_a_copy_with_a_hole(tmp_path: Path, log: bytes, batch_size: int) -> None:
    """The other log has other bytes in the hole, and where an intact record after it has zeros."""
    before, starts = copy_with_holes(tmp_path, log, 10), record_starts(log)
    other = with_flag(with_flag(log, starts[10]), starts[30])
    with (
        FakeMaster(other, FILE_SIZE, batch_size=batch_size) as master,
        pytest.raises(DivergedError, match="after its last whole record") as caught,
    ):
        mirrored(tmp_path, master, file_size=FILE_SIZE)
    assert (caught.value.finding, caught.value.physical_offset) == ("mirror.differs", starts[30] + 19)
    assert copied(tmp_path) == before


@pytest.mark.parametrize("numbers", [[0], [10], [10, 11, 20], [0, 34]], ids=str)
@pytest.mark.parametrize("chunk_size", [100, 1000, 1 << 20])
def test_holes_are_filled_from_the_same_log(
    tmp_path: Path, log: bytes, monkeypatch: pytest.MonkeyPatch, numbers: list[int], chunk_size: int
) -> None:
    monkeypatch.setattr(mirror, "CHUNK_SIZE", chunk_size)
    copy_with_holes(tmp_path, log, *numbers)
    with FakeMaster(log, FILE_SIZE, batch_size=5000) as master:
        mirrored(tmp_path, master, file_size=FILE_SIZE, builds=True)
        demand_copy(tmp_path, master)


def test_a_master_whose_log_ends_before_intact_records_of_the_copy_fills_no_hole(tmp_path: Path, log: bytes) -> None:
    before, starts = copy_with_holes(tmp_path, log, 10), record_starts(log)
    with (
        FakeMaster(log[: starts[20]], FILE_SIZE) as master,
        pytest.raises(DivergedError, match=f"ends at {starts[20]}, and the copy has intact records") as caught,
    ):
        mirrored(tmp_path, master, file_size=FILE_SIZE)
    assert caught.value.finding == "mirror.copy-ahead-of-master"
    assert copied(tmp_path) == before


def test_a_hole_is_not_filled_with_other_bytes_than_those_that_were_checked(tmp_path: Path, log: bytes) -> None:
    """Every second connection is to another master, which differs in the hole only."""
    before, starts = copy_with_holes(tmp_path, log, 10), record_starts(log)
    with FakeMaster(log, FILE_SIZE) as master, FakeMaster(with_flag(log, starts[10]), FILE_SIZE) as other:

        def frames(at: int) -> Iterator[bytes]:
            return (master if len(master.reports) % 2 else other)._sent(at)

        master.frames = frames
        with pytest.raises(DivergedError, match="now sends other bytes") as caught:
            mirrored(tmp_path, master, file_size=FILE_SIZE)
    assert caught.value.finding == "mirror.differs"
    assert copied(tmp_path) == before


@pytest.mark.parametrize("chunk_size", [1, 7, 10, 64])
def test_seen_bytes_are_given_out_once_their_chunk_is_the_same(
    monkeypatch: pytest.MonkeyPatch, chunk_size: int
) -> None:
    monkeypatch.setattr(mirror, "CHUNK_SIZE", chunk_size)
    content = bytes(range(60))
    for length in (1, 7, 8, 20, 60):
        seen = SeenBytes(100)
        seen.add(content[:33])
        seen.add(content[33:50])
        blocks = [ArrivedBlock(100 + at, bytearray(content[at : at + length])) for at in range(0, 60, length)]
        given = list(seen.again([None, *blocks]))
        assert given[0] is None
        assert given[1:] == [block for block in blocks if block.physical_offset < 150]
        blocks[min(45, 59) // length].content[45 % length] ^= 1
        given = []
        with pytest.raises(DivergedError):
            given.extend(seen.again(blocks))
        assert all(block is not None and block.end <= 145 for block in given)


@pytest.mark.parametrize("is_now", [True, False])
def test_bytes_of_a_killed_run_after_the_end_wait_for_the_master(tmp_path: Path, log: bytes, *, is_now: bool) -> None:
    """The master has nothing after the copy's last whole record, then the rest of the next one."""
    starts = record_starts(log)
    (tmp_path / "commitlog").mkdir()
    torn = log[: starts[10] + 100]
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(torn.ljust(FILE_SIZE, b"\0"))
    before = copied(tmp_path)
    with FakeMaster(log[: starts[10]], FILE_SIZE) as master:
        now = Until(time_ms=int(time.time() * 1000), is_now=is_now)
        result, status = mirrored(tmp_path, master, until=now, run_seconds=20, file_size=FILE_SIZE)
        assert (result.stopped_by, status.end_offset) == ("until", starts[10])
        assert copied(tmp_path) == before
        threading.Timer(0.5, lambda: setattr(master, "log", log)).start()
        mirrored(tmp_path, master, until=Until(physical_offset=len(log)))
        demand_copy(tmp_path, master)


def test_a_copy_ends_where_no_earlier_record_follows(tmp_path: Path, log: bytes) -> None:
    starts = record_starts(log)
    limit = store_time(log, starts[-1]) + HOUR_MS
    late = {starts[number]: limit + HOUR_MS * number for number in (5, 6, 40, 41, 60)}
    after = {start: limit + number for number, start in enumerate(starts[70:])}
    with FakeMaster(with_store_times(log, late | after), FILE_SIZE) as master:
        result, status = mirrored(tmp_path, master, until=Until(time_ms=limit), file_size=FILE_SIZE)
        assert (result.stopped_by, status.end_offset) == ("until", starts[70])
        assert copied(tmp_path)[: starts[70]] == master.log[: starts[70]]
        assert not copied(tmp_path)[starts[70] :].strip(b"\0")
    assert status.late == LateRecords(starts[5], limit + 5 * HOUR_MS, 5)
    assert status.skipped is not None
    assert (status.skipped.physical_offset, status.skipped.count) == (starts[70], len(starts) - 70)


def test_a_copy_that_ends_at_a_time_says_what_it_leaves_out(tmp_path: Path, log: bytes) -> None:
    starts = record_starts(log)
    limit = store_time(log, starts[-1]) + HOUR_MS
    sent = with_store_times(log, dict.fromkeys(starts[30:], limit))
    with FakeMaster(sent, FILE_SIZE) as master:
        for _ in range(2):
            result, status = mirrored(tmp_path, master, until=Until(time_ms=limit), file_size=FILE_SIZE)
            assert (result.stopped_by, status.end_offset, status.late) == ("until", starts[30], None)
            assert status.skipped is not None
            assert status.skipped.count == len(starts) - 30


def test_records_that_follow_a_late_one_later_are_waited_for(tmp_path: Path, log: bytes) -> None:
    """The time has not come yet when the master's log ends with a record that was stored after it."""
    starts = record_starts(log)
    limit = int(time.time() * 1000) + 2500
    sent = with_store_times(log, {starts[20]: limit + HOUR_MS, starts[30]: limit + HOUR_MS, starts[50]: limit + 1})
    with FakeMaster(sent[: starts[21]], FILE_SIZE) as master:
        threading.Timer(0.7, lambda: setattr(master, "log", sent[: starts[31]])).start()
        threading.Timer(1.4, lambda: setattr(master, "log", sent[: starts[51]])).start()
        result, status = mirrored(tmp_path, master, until=Until(time_ms=limit), file_size=FILE_SIZE)
    assert time.time() * 1000 >= limit
    assert (result.stopped_by, status.end_offset) == ("until", starts[50])
    assert status.late is not None
    assert (status.late.physical_offset, status.late.count) == (starts[20], 2)


def test_a_busy_master_is_copied_until_now(tmp_path: Path, log: bytes) -> None:
    """It sends no heartbeat, for a record follows each; two of those that were there before are of the future."""
    starts, sent_to = record_starts(log), [0]
    began_ms = int(time.time() * 1000)
    old = with_store_times(log, {starts[5]: began_ms + HOUR_MS, starts[35]: began_ms + HOUR_MS})

    def frames(at: int) -> Iterator[bytes]:
        for begin in range(at, starts[40], 5000):
            yield frame(begin, old[begin : min(begin + 5000, starts[40])])
        for start, end in pairwise(starts[40:]):
            if start > FILE_SIZE - 1000:
                return
            time.sleep(0.03)
            yield frame(start, with_store_times(old, {start: int(time.time() * 1000)})[start:end])
            sent_to[0] = end

    with FakeMaster(old[: starts[40]], FILE_SIZE) as master:
        master.frames = frames
        run = request(tmp_path, master, until=Until(time_ms=began_ms, is_now=True), file_size=FILE_SIZE)
        status = MirrorStatus()
        assert run_mirror(run, status).stopped_by == "until"
    assert starts[40] <= status.end_offset <= sent_to[0]
    assert status.late is not None
    assert status.late.physical_offset == starts[5]
