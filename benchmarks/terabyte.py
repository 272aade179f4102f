"""A store shaped like a terabyte: a thousand sparse log files of 1 GiB, and four hundred queues."""

from __future__ import annotations

import struct
from pathlib import Path

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
