"""What verifying a million consume queues in RocksDB takes: time, memory, and bytes of log and database.

Run `python -m benchmarks.rocksdb_queues`; `--folder` says where the store may lie for its time (16 GB at full scale),
`--queues 10000` makes it smaller. Every queue is a topic of its own with 100 messages; its messages lie far from each
other in the log, as those of many queues do.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from benchmarks.logs import HEAD, LOCALHOST, STORE_TIMESTAMP_MS, blank
from benchmarks.results import machine, table, write_section
from rmqtool.formats import commitlog
from rmqtool.formats.record_crc import masked_crc
from rmqtool.formats.rocksdb.queue import DISPATCHED_KEY, UNIT, offset_key, queue_prefix
from rmqtool.store.databases.queue_database import FAMILIES
from rmqtool.store.databases.rocksdb import RowBatch, write_database

COMMAND = "python -m benchmarks.rocksdb_queues"
LOG_FILE_SIZE = 1 << 30
UNITS_A_QUEUE = 100
RECORDS_A_BLOCK = 1 << 20
BODY = b"x"
HEAD_FIELDS = np.dtype(
    [
        ("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"),
        ("queue_offset", ">i8"), ("physical_offset", ">i8"), ("sys_flag", ">i4"), ("born", ">i8"), ("born_host", ">i8"),
        ("stored", ">i8"), ("store_host", ">i8"), ("reconsumed", ">i4"), ("prepared", ">i8"), ("body_length", ">i4"),
        ("body", "S1"), ("topic_length", "u1"), ("topic", "S12"), ("properties_length", ">i2"),
    ]
)  # fmt: skip
assert HEAD.size + len(BODY) + 1 + 12 + 2 == HEAD_FIELDS.itemsize
RECORDS_A_FILE = (LOG_FILE_SIZE - 8) // HEAD_FIELDS.itemsize
NUMBER = Struct(">q")
END = Struct(">qq")


def topics_of(numbers: NDArray[np.int64]) -> NDArray[np.bytes_]:
    """Names of one length, so that their order is that of the numbers."""
    digits = (numbers[:, None] // 10 ** np.arange(6, -1, -1)) % 10 + ord("0")
    names = np.concatenate([np.broadcast_to(np.frombuffer(b"lite-", "u1"), (len(numbers), 5)), digits], axis=1)
    return np.ascontiguousarray(names.astype("u1")).view("S12").ravel()


def places_of(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the records with these numbers begin in the log."""
    file, row = np.divmod(numbers, RECORDS_A_FILE)
    places: NDArray[np.int64] = file * LOG_FILE_SIZE + row * HEAD_FIELDS.itemsize
    return places


def write_log(folder: Path, queues: int) -> None:
    """The first message of every queue, then the second of every one, and so on."""
    folder.mkdir(parents=True)
    count = queues * UNITS_A_QUEUE
    for first in range(0, count, RECORDS_A_FILE):
        last = min(first + RECORDS_A_FILE, count)
        with (folder / f"{first // RECORDS_A_FILE * LOG_FILE_SIZE:020d}").open("wb") as file:
            for begin in range(first, last, RECORDS_A_BLOCK):
                file.write(records(np.arange(begin, min(begin + RECORDS_A_BLOCK, last)), queues).tobytes())
            if last < count:
                file.write(blank(LOG_FILE_SIZE - file.tell()))
            file.truncate(LOG_FILE_SIZE)


def records(numbers: NDArray[np.int64], queues: int) -> NDArray[np.void]:
    rows = np.zeros(len(numbers), HEAD_FIELDS)
    rows["size"], rows["magic"], rows["crc"] = HEAD_FIELDS.itemsize, commitlog.MAGIC_V1, masked_crc(BODY)
    rows["queue_offset"], rows["physical_offset"] = numbers // queues, places_of(numbers)
    rows["born"] = rows["stored"] = STORE_TIMESTAMP_MS + numbers // 1000
    rows["born_host"] = rows["store_host"] = LOCALHOST
    rows["body_length"], rows["body"], rows["topic_length"] = len(BODY), BODY, 12
    rows["topic"] = topics_of(numbers % queues)
    return rows


def units(queues: int) -> Iterator[RowBatch]:
    offsets = np.arange(UNITS_A_QUEUE, dtype=np.int64)
    suffixes = offsets.astype(">i8").tobytes()
    for number in range(queues):
        values = np.zeros(UNITS_A_QUEUE, UNIT.dtype)
        at = offsets * queues + number
        values["physical_offset"], values["record_size"] = places_of(at), HEAD_FIELDS.itemsize
        values["store_timestamp_ms"] = STORE_TIMESTAMP_MS + at // 1000
        prefix = queue_prefix(b"lite-%07d" % number, 0)
        yield RowBatch(FAMILIES[0].name, prefix, UNITS_A_QUEUE, suffixes, values.tobytes())


def ends(queues: int) -> Iterator[RowBatch]:
    last = UNITS_A_QUEUE - 1
    end = int(places_of(np.array([queues * UNITS_A_QUEUE - 1]))[0]) + HEAD_FIELDS.itemsize
    begins = places_of(last * queues + np.arange(queues)).tolist()
    rows = {offset_key(b"lite-%07d" % number, 0, is_maximum=True): END.pack(begins[number], last)
            for number in range(queues)}  # fmt: skip
    rows[DISPATCHED_KEY] = NUMBER.pack(end)
    for key in sorted(rows):
        yield RowBatch(FAMILIES[1].name, key, 0, b"", rows[key])


def write_store(folder: Path, queues: int) -> None:
    write_log(folder / "commitlog", queues)
    times = [STORE_TIMESTAMP_MS + (queues * UNITS_A_QUEUE - 1) // 1000] * 3
    (folder / "checkpoint").write_bytes(b"".join(NUMBER.pack(each) for each in (*times, 0, 0, 0)).ljust(4096, b"\0"))
    (folder / "consumequeue").mkdir()
    write_database(folder / "consumequeue", {FAMILIES[0]: units(queues), FAMILIES[1]: ends(queues)})


def bytes_of(folder: Path) -> int:
    """Bytes on the disk."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


def verified(store: Path) -> tuple[float, float, int]:
    """Seconds of `verify`, processor seconds, and the most MiB that one of its processes took."""
    command = [sys.executable, "-m", "rmqtool", "verify", str(store), "--broker-version", "5.5.0", "--quiet"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, worked, after.ru_maxrss >> 10


def measured(folder: Path, queues: int) -> dict[str, str]:
    """The row of a number of queues; each in a process of its own, for the most of memory is that of all before."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        store = Path(name, "store")
        write_store(store, queues)
        log, database = bytes_of(store / "commitlog"), bytes_of(store / "consumequeue")
        seconds, worked, peak = verified(store)
    return {
        "queues": f"{queues:,}",
        "messages": f"{queues * UNITS_A_QUEUE:,}",
        "log GB": f"{log / 1e9:.2f}",
        "database GB": f"{database / 1e9:.2f}",
        "seconds": f"{seconds:.0f}",
        "processor seconds": f"{worked:.0f}",
        "peak MiB": f"{peak:,}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    facts = machine("numpy", "rocksdict")
    rows = []
    for queues in sorted(options.queues):  # the most memory of a later one counts only if it is more
        rows.append(measured(options.folder, queues))
        print(rows[-1], flush=True)
    text = f"Each queue is a topic of its own with {UNITS_A_QUEUE} messages of {HEAD_FIELDS.itemsize} bytes.\n\n"
    write_section("rocksdb_queues", COMMAND, facts, text + table(rows))


if __name__ == "__main__":
    main()
