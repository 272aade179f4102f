"""Runs of a mirror against a master of a test, and what its copy must hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.rules.versions import NEWEST, rules_for
from rmqtool.replication.mirror import MirrorOptions
from rmqtool.replication.mirror_status import MirrorStatus
from rmqtool.replication.record_check import Until
from rmqtool.replication.run import MirrorRequest, MirrorResult, run_mirror
from rmqtool.store.directory import Settings
from rmqtool.store.location import survey_store
from tests.replication.fake_master import QUICK, FakeMaster

FILE_SIZE = 65536
_FLAG_AT = 16
_STORE_TIME_AT = 56
"""In a record from a host with an IPv4 address."""


def request(root: Path, master: FakeMaster, **options: Any) -> MirrorRequest:
    until = options.pop("until", Until(physical_offset=master.end))
    more = {
        name: options.pop(name) for name in ("builds", "accepts_master", "file_size", "config_from") if name in options
    }
    return MirrorRequest(
        root=root,
        address=master.address,
        options=MirrorOptions(timing=QUICK, until=until, **options),
        look=lambda: survey_store(root, sizes=Settings(commitlog_file_size=more.get("file_size"))),
        rules=rules_for(NEWEST),
        config=WriterConfig(consumequeue_file_size=6000, index_slot_count=100, index_entry_count=400),
        **more,
    )


def mirrored(root: Path, master: FakeMaster, **options: Any) -> tuple[MirrorResult, MirrorStatus]:
    status = MirrorStatus()
    return run_mirror(request(root, master, **options), status), status


def copied(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


def demand_copy(root: Path, master: FakeMaster) -> None:
    content = copied(root)
    assert content[: len(master.log)] == master.log
    assert not content[len(master.log) :].strip(b"\0")
    assert {path.stat().st_size for path in (root / "commitlog").iterdir()} == {FILE_SIZE}


def record_starts(log: bytes) -> list[int]:
    """Where the messages of a log start, whose first byte is at offset 0; blanks are left out."""
    starts, at = [], 0
    while at < len(log) and (size := int.from_bytes(log[at : at + 4], "big")):
        if at // FILE_SIZE == (at + size - 1) // FILE_SIZE and (at + size) % FILE_SIZE:
            starts.append(at)
        at += size
    return starts


def with_store_times(log: bytes, times_ms: dict[int, int]) -> bytes:
    """A log with other store times of the records at some offsets."""
    changed = bytearray(log)
    for at, time_ms in times_ms.items():
        changed[at + _STORE_TIME_AT : at + _STORE_TIME_AT + 8] = time_ms.to_bytes(8, "big")
    return bytes(changed)


def store_time(log: bytes, at: int) -> int:
    """That of the record at an offset."""
    return int.from_bytes(log[at + _STORE_TIME_AT : at + _STORE_TIME_AT + 8], "big")


def with_flag(log: bytes, at: int, flag: int = 1) -> bytes:
    """A log whose record at an offset has another flag, which no checksum covers and is 0 otherwise."""
    return log[: at + _FLAG_AT] + flag.to_bytes(4, "big") + log[at + _FLAG_AT + 4 :]
