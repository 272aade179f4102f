"""What queries of the Spark source read of a log and cost, beside the log and the same work without Spark.

Run `python -m benchmarks.spark_reads`; `--folder` says where 11 GB may lie for its time, `--scale 0.1` makes the large
log smaller. Bytes are those that the reader asks for, and those that come from the disk once nothing of the store is in
the page cache.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.logs import write_log
from benchmarks.programs import disk_bytes_read
from benchmarks.results import machine, table, write_section
from benchmarks.spark import CONF, processor_seconds, read_table
from benchmarks.stores import write_store
from rmqtool.commands.messages import Messages
from rmqtool.commands.options.spark import spark
from rmqtool.pipeline.frames import table_frame
from rmqtool.store.source import READS

COMMAND = "python -m benchmarks.spark_reads"
LOG_BYTES, FILE_SIZE = 10 << 30, 1 << 30
BODY_LENGTH, RECORD_SIZE = 1 << 10, 1_220
TOPIC_COUNT = 100
"""Each has a hundredth of the messages, evenly over all of the log."""
RARE = {"topics": "TopicTest0", "through": "queues", "profile": "properties"}
SMALL_COUNT = 16
SMALL_SIZES = (64 << 20, 16 << 20, 1 << 20)
"""The largest first, which has the kernels compiled for all."""
REPEATS = 3
GOAL_OF_LOG, GOAL_OF_PROCESS = 0.03, 1.5


class Cost(NamedTuple):
    """Processor seconds of a query of small files: here, on Spark, with a task for each file, and with no rows."""

    here: float
    packed: float
    apart: float
    empty: float


def rare_topic(folder: Path, scale: float) -> dict[str, str]:
    """What a query for a hundredth of the messages reads."""
    store = folder / "store"
    write_store(store, int(LOG_BYTES * scale) // RECORD_SIZE, BODY_LENGTH, FILE_SIZE, topic_count=TOPIC_COUNT)
    (store / "abort").unlink()
    log_bytes = sum(path.stat().st_blocks * 512 for path in (store / "commitlog").iterdir())
    forget(store)
    asked, from_disk = READS.byte_count, disk_bytes_read()
    rows = read_table(store, **RARE)
    asked, from_disk = READS.byte_count - asked, disk_bytes_read() - from_disk
    return {
        "log GiB": f"{log_bytes / (1 << 30):.2f}",
        "rows": f"{rows:,}",
        "asked for ÷ log": f"{asked / log_bytes:.4f}",
        "from the disk ÷ log": f"{from_disk / log_bytes:.4f}",
        "goal": f"≤ {GOAL_OF_LOG}",
    }


def forget(store: Path) -> None:
    """Have all files of a store on the disk and none in the page cache."""
    for path in store.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def small_files(folder: Path, session: Any, size: int) -> dict[str, str]:
    """What `headers` of 16 files costs the processor, made here or on one core of Spark."""
    rows = write_log(folder / "commitlog", SMALL_COUNT, size, BODY_LENGTH) + SMALL_COUNT

    def on_spark(**options: str) -> float:
        frame = table_frame(session, {"path": str(folder), **options})
        expected = 0 if "topics" in options else rows
        return least(frame.count, expected)

    cost = Cost(
        here=least(lambda: read_table(folder), rows),
        packed=on_spark(),
        apart=on_spark(openCostInBytes=str(1 << 30)),
        empty=on_spark(topics="none", columns="size"),
    )
    return {
        "16 files of": f"{size >> 20} MiB",
        "Spark ÷ here": f"{cost.packed / cost.here:.2f}",
        "a task for each file ÷ here": f"{cost.apart / cost.here:.2f}",
        "Spark without rows ÷ here": f"{cost.empty / cost.here:.2f}",
        "here s": f"{cost.here:.3f}",
        "Spark s": f"{cost.packed:.3f}",
        "goal": f"≤ {GOAL_OF_PROCESS}",
    }


def least(job: Any, rows: int) -> float:
    """Processor seconds of the cheapest run of a job, in this process and all below it; the first does not count."""
    found = []
    for _ in range(1 + REPEATS):
        before = processor_seconds()
        assert job() == rows
        found.append(processor_seconds() - before)
    return max(min(found[1:]), 0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the logs may lie; a temporary one if left out")
    parser.add_argument("--scale", type=float, default=1.0, help="of the log of 10 GiB")
    chosen = parser.parse_args()
    facts = machine("pyspark", "pyarrow", "numba", "numpy")
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        rare = rare_topic(Path(name), chosen.scale)
        with spark("local[1]", [*CONF, "spark.driver.memory=1g"], Messages(quiet=True)) as session:
            small = [small_files(Path(name, f"small-{size}"), session, size) for size in SMALL_SIZES]
    text = f"""A topic with a hundredth of the messages, bodies of 1 KiB, `through` `queues`, profile `properties`:

{table([rare])}
Processor time of the JVM and of all Python processes for the rows of `headers`, `local[1]`, the cheapest of
{REPEATS} runs in one session, beside the same columns made by one thread of this process and dropped:

{table(small)}"""
    write_section("spark_reads", COMMAND, facts, text)
    print(text)


if __name__ == "__main__":
    main()
