"""What a reader's load changed in a golden store: its answers describe the packed files only where that is nothing.

A broker answers after its recovery. Where that cut the log or a queue, the archive holds more than the broker knew.
"""

from __future__ import annotations

import struct
from pathlib import Path

from tests.golden_stores import Manifest, Queue, manifest

ANSWERED_FROM = ("commitlog", "consumequeue", "batchconsumequeue", "index")
"""How the paths of files begin from which getMessage and queryMessage are answered."""

_UNIT = struct.Struct(">qiq")


def load_effects(name: str, version: str, store: Path) -> list[str]:
    """What lies between the packed files and the answers of one reader; empty if they can be compared.

    Args:
        name: a store written through the store library.
        version: a reader in its manifest.
        store: the store, unpacked.
    """
    found = manifest(name)
    read = found.reads[version]
    if read.served is None:
        return ["the store does not load"]
    paths = {*read.after_load.paths(), *read.after_visit.paths()}
    effects = [f"{path} is removed, added or changed" for path in sorted(paths) if path.startswith(ANSWERED_FROM)]
    log_end = read.served.offsets["max"]
    last_end = packed_log_end(found)
    if last_end > log_end:
        effects.append(f"the log is cut at {log_end}, its last record ends at {last_end}")
    for queue in read.served.queues:
        count = packed_queue_end(store, queue)
        if count is not None and count != queue.max:
            effects.append(f"queue {queue.topic}/{queue.queue_id} ends at {queue.max}, its files at {count}")
    return effects


def packed_log_end(found: Manifest) -> int:
    """Where the last record ends that any reader found in the log; 0 without one."""
    return max((record.at + record.size for record in found.records), default=0)


def packed_queue_end(store: Path, queue: Queue) -> int | None:
    """Queue offset behind the last written unit of a queue's files; None if it has no files of 20-byte units."""
    files = sorted((store / "consumequeue" / queue.topic / str(queue.queue_id)).glob("[0-9]*"))
    for path in reversed(files):
        raw = path.read_bytes()
        for position in range(len(raw) // _UNIT.size - 1, -1, -1):
            physical_offset, record_size, _ = _UNIT.unpack_from(raw, position * _UNIT.size)
            if physical_offset >= 0 and record_size > 0:
                return int(path.name) // _UNIT.size + position + 1
    return 0 if files else None
