"""A mirror copies a master's log byte for byte, whatever happens on the way, and writes nothing that does not fit."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.errors import RefusedError, WriteError
from rmqtool.replication.connection import MasterLostError, ProtocolError
from rmqtool.replication.log_copy import LogCopy
from rmqtool.replication.mirror_status import MirrorStatus
from rmqtool.replication.record_check import DivergedError, LateRecords, Until
from rmqtool.replication.run import run_mirror
from tests.replication.fake_master import QUICK, FakeMaster, frame
from tests.replication.mirror_runs import (
    FILE_SIZE,
    copied,
    demand_copy,
    mirrored,
    record_starts,
    request,
    store_time,
    with_store_times,
)


def test_a_log_is_copied_byte_for_byte_and_nothing_is_acknowledged(tmp_path: Path, log: bytes) -> None:
    with FakeMaster(log, FILE_SIZE) as master:
        result, status = mirrored(tmp_path / "copy", master)
        demand_copy(tmp_path / "copy", master)
    assert result.stopped_by == "until"
    assert (status.start_offset, status.end_offset, status.synced_offset) == (0, len(log), len(log))
    assert all(set(reports) == {reports[0]} and reports[0] in (0, 1) for reports in master.reports)
    assert not (tmp_path / "copy" / "abort").exists()


def test_a_slave_acknowledges_what_it_has(tmp_path: Path, log: bytes) -> None:
    def enough() -> bool:
        return any(len(log) in reports for reports in master.reports)

    status = MirrorStatus()
    with FakeMaster(log, FILE_SIZE) as master:
        run_mirror(request(tmp_path, master, until=Until(), acknowledges=True), status, enough)
    assert status.synced_offset == len(log)


@pytest.mark.parametrize("batch_size", [1, 7, 1000], ids=str)
def test_bodies_may_end_anywhere(tmp_path: Path, log: bytes, batch_size: int) -> None:
    with FakeMaster(log[: 2 * FILE_SIZE][:80_000], FILE_SIZE, batch_size=batch_size) as master:
        _, status = mirrored(tmp_path, master, until=Until(physical_offset=70_000))
    assert status.end_offset >= 70_000
    assert copied(tmp_path)[: status.end_offset] == log[: status.end_offset]


@pytest.mark.parametrize("removed", [1, 2, 3])
def test_a_log_that_no_longer_begins_at_zero_is_copied_from_its_first_byte(
    tmp_path: Path, log: bytes, removed: int
) -> None:
    start = removed * FILE_SIZE
    with FakeMaster(log[start:], FILE_SIZE, start) as master:
        _, status = mirrored(tmp_path, master, file_size=FILE_SIZE)
        demand_copy(tmp_path, master)
    assert status.start_offset == start
    assert min(path.name for path in (tmp_path / "commitlog").iterdir()) == f"{start:020}"


def test_the_first_byte_is_found_without_the_file_size(tmp_path: Path, log: bytes) -> None:
    with FakeMaster(log[FILE_SIZE:], FILE_SIZE, FILE_SIZE) as master:
        _, status = mirrored(tmp_path, master)
        demand_copy(tmp_path, master)
    assert status.start_offset == FILE_SIZE


def test_an_empty_log_is_followed_from_its_first_message(tmp_path: Path, log: bytes) -> None:
    with FakeMaster(b"", FILE_SIZE) as master:
        threading.Timer(0.4, lambda: setattr(master, "log", log[:20_000])).start()
        _, status = mirrored(tmp_path, master, until=Until(physical_offset=10_000), file_size=FILE_SIZE)
    assert copied(tmp_path)[: status.end_offset] == log[: status.end_offset]


@pytest.mark.parametrize("cut_after", [3, 15, 40_000, 65_600, 100_001])
def test_a_lost_connection_is_made_again(tmp_path: Path, log: bytes, cut_after: int) -> None:
    with FakeMaster(log, FILE_SIZE) as master:
        master.log, whole = log[:30_000], log
        mirrored(tmp_path, master, until=Until(physical_offset=1), file_size=FILE_SIZE)
        master.log, master.cut_after = whole, cut_after
        mirrored(tmp_path, master, until=Until(physical_offset=len(log)))
        demand_copy(tmp_path, master)


def test_a_late_record_that_arrives_again_counts_once(tmp_path: Path, log: bytes) -> None:
    starts = record_starts(log)
    ahead_ms = store_time(log, starts[-1]) + 86_400_000
    log = with_store_times(log, dict.fromkeys(starts[9:15], ahead_ms))
    with FakeMaster(log, FILE_SIZE) as master:
        mirrored(tmp_path, master, until=Until(physical_offset=1), file_size=FILE_SIZE)
        master.cut_after = starts[17] + 200 + 200 + 200 + 200 + 200 + 200
        _, status = mirrored(tmp_path, master, until=Until(time_ms=ahead_ms - 1), file_size=FILE_SIZE)
        assert master.cut_after is None
    assert (status.late, status.end_offset) == (LateRecords(starts[9], ahead_ms, 6), len(log))


@pytest.mark.parametrize("kept", [100, 30_000, 65_500, 65_536, 70_001, 131_072])
def test_a_copy_that_was_killed_anywhere_goes_on(tmp_path: Path, log: bytes, kept: int) -> None:
    commitlog = tmp_path / "commitlog"
    commitlog.mkdir()
    (tmp_path / "abort").touch()
    for start in range(0, kept, FILE_SIZE):
        (commitlog / f"{start:020}").write_bytes(log[start : min(kept, start + FILE_SIZE)].ljust(FILE_SIZE, b"\0"))
    with FakeMaster(log, FILE_SIZE) as master:
        mirrored(tmp_path, master, file_size=FILE_SIZE)
        demand_copy(tmp_path, master)
    assert not (tmp_path / "abort").exists()


def test_a_copy_ends_before_an_offset_or_a_time(tmp_path: Path, log: bytes) -> None:
    with FakeMaster(log, FILE_SIZE) as master:
        _, early = mirrored(tmp_path / "offset", master, until=Until(physical_offset=70_000))
        _, whole = mirrored(tmp_path / "whole", master)
        last = whole.last_store_timestamp_ms
        assert last is not None
        result, timed = mirrored(tmp_path / "time", master, until=Until(time_ms=last))
        assert result.stopped_by == "until"
        _, now = mirrored(tmp_path / "now", master, until=Until(time_ms=last + 1))
    assert 70_000 <= early.end_offset < 72_000
    assert timed.end_offset < len(log)
    assert (timed.last_store_timestamp_ms or last) < last
    assert now.end_offset == len(log)


def hostile(frames: Callable[[int], Iterator[bytes]], log: bytes) -> FakeMaster:
    master = FakeMaster(log, FILE_SIZE)
    master.frames = frames
    return master


def after_first(log: bytes, *parts: bytes) -> Callable[[int], Iterator[bytes]]:
    """What begins as a master does, and then sends something else."""

    def frames(request: int) -> Iterator[bytes]:
        yield frame(request, log[request:32768])
        yield from parts

    return frames


def test_an_offset_that_does_not_continue_is_named(tmp_path: Path, log: bytes) -> None:
    with (
        hostile(after_first(log, frame(40_000, log[40_000:50_000])), log) as master,
        pytest.raises(DivergedError, match="offset 40000 where 32768 follows") as caught,
    ):
        mirrored(tmp_path, master)
    assert caught.value.finding == "mirror.wrong-offset"


@pytest.mark.parametrize("header", [b"\xff" * 12, frame(32768)[:8] + b"\x7f\xff\xff\xff", b"HTTP/1.1 400 Bad"])
def test_what_is_no_header_ends_the_mirror(tmp_path: Path, log: bytes, header: bytes) -> None:
    with (
        hostile(after_first(log, header), log) as master,
        pytest.raises(ProtocolError, match="which no master sends"),
    ):
        mirrored(tmp_path, master)


def test_a_damaged_record_is_named_and_not_written(tmp_path: Path, log: bytes) -> None:
    damaged, at = bytearray(log), 0
    while at < 20_000:
        at += int.from_bytes(log[at : at + 4], "big")
    damaged[at + 90] ^= 0x40  # in its body
    with FakeMaster(bytes(damaged), FILE_SIZE) as master, pytest.raises(DivergedError, match="damaged") as caught:
        mirrored(tmp_path, master, file_size=FILE_SIZE)
    assert (caught.value.finding, caught.value.physical_offset) == ("commitlog.body-crc-mismatch", at)
    assert copied(tmp_path).rstrip(b"\0") == log[:at].rstrip(b"\0")


def test_a_huge_record_is_refused_before_it_is_held(tmp_path: Path, log: bytes) -> None:
    huge = (2_000_000_000).to_bytes(4, "big") + log[4:8]

    def frames(_request: int) -> Iterator[bytes]:
        yield frame(0, huge + bytes(1000))

    with hostile(frames, log) as master, pytest.raises(DivergedError, match=r"commitlog\.bad-size at 0"):
        mirrored(tmp_path, master)
    assert not (tmp_path / "commitlog").exists()


def test_another_log_is_never_written_over_the_copy(tmp_path: Path, log: bytes) -> None:
    other = bytearray(log)
    other[1000] ^= 1
    with FakeMaster(log[:30_000], FILE_SIZE) as master:
        mirrored(tmp_path, master, until=Until(physical_offset=20_000), file_size=FILE_SIZE)
        before = copied(tmp_path)
        master.log = bytes(other)
        with pytest.raises(DivergedError, match="differs from the master at 1000"):
            mirrored(tmp_path, master)
    assert copied(tmp_path) == before


def test_bytes_after_the_copys_end_are_not_overwritten(tmp_path: Path, log: bytes) -> None:
    commitlog = tmp_path / "commitlog"
    commitlog.mkdir()
    end = log.index(log[4:8], 1000) - 4  # where some record starts
    content = log[:end] + b"\xff" * 100
    (commitlog / f"{0:020}").write_bytes(content.ljust(FILE_SIZE, b"\0"))
    with FakeMaster(log, FILE_SIZE) as master, pytest.raises(DivergedError, match="after its last whole record"):
        mirrored(tmp_path, master, file_size=FILE_SIZE)
    assert copied(tmp_path).rstrip(b"\0") == content


def test_a_master_that_lost_the_end_of_its_log_is_named(tmp_path: Path, log: bytes) -> None:
    with FakeMaster(log, FILE_SIZE) as master:
        mirrored(tmp_path, master)
        master.log = b""
        with pytest.raises(DivergedError, match="log ends before offset") as caught:
            mirrored(tmp_path, master, until=Until())
    assert caught.value.finding == "mirror.copy-ahead-of-master"


def test_a_master_that_deleted_what_is_missing_is_named(tmp_path: Path, log: bytes) -> None:
    with FakeMaster(log[:FILE_SIZE], FILE_SIZE) as master:
        mirrored(tmp_path, master, until=Until(physical_offset=30_000), file_size=FILE_SIZE)
        master.log, master.start = log[2 * FILE_SIZE :], 2 * FILE_SIZE
        with pytest.raises(DivergedError, match="no longer has what follows") as caught:
            mirrored(tmp_path, master)
    assert caught.value.finding == "mirror.deleted-on-master"


def test_another_master_is_followed_only_when_told(tmp_path: Path, log: bytes) -> None:
    with FakeMaster(log[:30_000], FILE_SIZE) as first, FakeMaster(log, FILE_SIZE) as second:
        mirrored(tmp_path, first, until=Until(physical_offset=20_000), file_size=FILE_SIZE)
        with pytest.raises(RefusedError, match="--new-master"):
            mirrored(tmp_path, second)
        mirrored(tmp_path, second, accepts_master=True)
        demand_copy(tmp_path, second)


def test_a_silent_master_is_lost(tmp_path: Path, log: bytes) -> None:
    def frames(_request: int) -> Iterator[bytes]:
        yield b""

    with hostile(frames, log) as master:
        silent = request(tmp_path, master)
        silent = replace(silent, options=replace(silent.options, timing=replace(QUICK, silence=0.5)))
        with pytest.raises(MasterLostError, match="nothing"):
            run_mirror(silent, MirrorStatus())


def test_a_master_is_not_lost_while_the_mirror_is_busy(
    tmp_path: Path, log: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Syncing the queues of thousands of topics may take longer than a master may be silent."""
    sync = LogCopy.sync

    def slow(copy: LogCopy) -> None:
        time.sleep(0.7)
        sync(copy)

    monkeypatch.setattr(LogCopy, "sync", slow)
    with FakeMaster(log[:30_000], FILE_SIZE) as master:
        run = request(tmp_path, master, sync_seconds=0.0, file_size=FILE_SIZE, until=Until(physical_offset=len(log)))
        threading.Timer(0.4, lambda: setattr(master, "log", log)).start()
        run = replace(run, options=replace(run.options, timing=replace(QUICK, silence=0.5)))
        status = MirrorStatus()
        run_mirror(run, status)
        demand_copy(tmp_path, master)
    assert status.connect_count == 1


def test_nobody_there_is_an_error(tmp_path: Path, log: bytes) -> None:
    with FakeMaster(log, FILE_SIZE) as master:
        gone = request(tmp_path, master)
    with pytest.raises(MasterLostError, match=str(master.address)):
        run_mirror(gone, MirrorStatus())


def test_a_full_disk_ends_the_mirror_and_a_later_run_goes_on(
    tmp_path: Path, log: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = os.pwrite, 0

    def pwrite(descriptor: int, data: bytes, position: int) -> int:
        nonlocal written
        written += len(data)
        if written > 90_000:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[: max(1, len(data) // 2)], position)

    with FakeMaster(log, FILE_SIZE) as master:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", pwrite)
            with pytest.raises(WriteError, match="no space left"):
                mirrored(tmp_path, master, file_size=FILE_SIZE)
        assert (tmp_path / "abort").exists()
        mirrored(tmp_path, master)
        demand_copy(tmp_path, master)


def test_a_directory_with_something_else_is_refused(tmp_path: Path, log: bytes) -> None:
    (tmp_path / "photos").mkdir()
    with FakeMaster(log, FILE_SIZE) as master, pytest.raises(RefusedError, match="photos is there"):
        mirrored(tmp_path, master)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos"]


@pytest.mark.parametrize("content", [b"{}", b"precious", b'{"master": "a:1", "built_offset": '], ids=repr)
def test_only_a_state_of_mirror_is_replaced(tmp_path: Path, log: bytes, content: bytes) -> None:
    place = tmp_path / ".rmqtool" / "mirror.json"
    with FakeMaster(log[:30_000], FILE_SIZE) as master:
        mirrored(tmp_path, master, until=Until(physical_offset=20_000), file_size=FILE_SIZE)
        place.write_bytes(content)
        with pytest.raises(RefusedError, match=r"mirror\.json: is (not a state file of mirror|damaged)"):
            mirrored(tmp_path, master)
        assert place.read_bytes() == content
        place.rename(tmp_path / "elsewhere")
        place.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(RefusedError, match="a link"):
            mirrored(tmp_path, master)
        assert (tmp_path / "elsewhere").read_bytes() == content


def test_a_state_whose_bytes_never_reached_the_disk_is_written_again(tmp_path: Path, log: bytes) -> None:
    with FakeMaster(log, FILE_SIZE) as master:
        mirrored(tmp_path, master, until=Until(physical_offset=20_000), file_size=FILE_SIZE)
        (tmp_path / ".rmqtool" / "mirror.json").write_bytes(bytes(4096))
        mirrored(tmp_path, master)
        demand_copy(tmp_path, master)
    assert str(master.address) in (tmp_path / ".rmqtool" / "mirror.json").read_text()
