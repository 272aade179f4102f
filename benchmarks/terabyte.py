"""Stores shaped like a terabyte: a thousand sparse log files of 1 GiB, with four hundred queues or with a torn end."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

from benchmarks.logs import STORE_TIMESTAMP_MS, write_log
from rmqtool.engine.rules.versions import NEWEST
from rmqtool.formats.checkpoint import Checkpoint, build_checkpoint

FULL_TOPICS = 5


def terabyte_store(root: Path, segments: int = 1000, topics: int = 100, queues: int = 4) -> None:
    """1000 sparse files of 1 GiB and 400 queues of 6 MB files, each with a record and a unit at its end."""
    size = 1 << 30
    (root / "commitlog").mkdir(parents=True)
    record = struct.pack(">iiiiiqqiqIIqIIiqi", 0, -626843481, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1700000000000, 1, 1, 0, 0, 0)
    record += b"\x01T\0\0"
    record = struct.pack(">i", len(record)) + record[4:]
    own = struct.Struct(">q")
    for number in range(segments):
        start = number * size
        with (root / "commitlog" / f"{start:020d}").open("wb") as file:
            file.write(record[:28] + own.pack(start) + record[36:])
            # A blank behind the one record, to the end of the file.
            if number + 1 < segments:
                file.write(struct.pack(">ii", size - len(record), -875286124))
            file.truncate(size)
    for topic in range(topics):
        for queue in range(queues):
            folder = root / "consumequeue" / f"topic-{topic}" / str(queue)
            folder.mkdir(parents=True)
            # A few have a full file in front of the last one; all of them would take gigabytes.
            files = [(0, 300_000), (1, 1000)] if topic < FULL_TOPICS else [(0, 1000)]
            for file_number, count in files:
                start = (segments - 1) * size if count == 1000 else 0
                with (folder / f"{file_number * 6_000_000:020d}").open("wb") as file:
                    file.write(struct.pack(">qiq", start, len(record), 0) * count)
                    file.truncate(6_000_000)
    (root / "index").mkdir()
    with (root / "index" / "20240101000000000").open("wb") as file:
        file.truncate(420_000_040)
    (root / "checkpoint").write_bytes(bytes(4096))


def torn_terabyte(root: Path, segments: int = 1000, records_per_file: int = 100) -> None:
    """1000 sparse files of 1 GiB with queues and index, of a broker that was killed while it wrote a record.

    Each file holds some records of 1 KiB and an end mark; all but the torn one are dispatched, and the checkpoint is
    that of the last file's first record.
    """
    count = write_log(root / "commitlog", segments, 1 << 30, 1 << 10, records_per_file=records_per_file)
    conf = root.with_name(f"{root.name}.conf")
    conf.write_text("mappedFileSizeConsumeQueue=6000000\nmaxHashSlotNum=5000000\nmaxIndexNum=20000000\n", "utf-8")
    options = ("--yes", "--quiet", "--broker-version", NEWEST, "--broker-conf", str(conf))
    subprocess.run(
        (sys.executable, "-m", "rmqtool", "rebuild", str(root), *options), check=True, stdout=subprocess.DEVNULL
    )
    subprocess.run((sys.executable, "-m", "rmqtool", "undo", str(root), "--discard", "--yes"), check=True)
    last = max((root / "commitlog").iterdir())
    head = last.read_bytes()[: 4 << 20]
    end = head.rindex(b"CLUSTER") - 500
    with last.open("r+b") as file:
        file.truncate(end)
        file.truncate(1 << 30)
    time_ms = STORE_TIMESTAMP_MS + count - records_per_file
    (root / "checkpoint").write_bytes(
        build_checkpoint(Checkpoint(time_ms, time_ms, time_ms, 0, 0, (segments - 1) << 30))
    )
    (root / "abort").write_bytes(b"4711")
