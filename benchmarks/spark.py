"""How fast a log is read on Spark, next to the same work in one thread of a process, and to binaryFile with a UDF.

Run `python -m benchmarks.spark`; `--folder` says where 4.3 GB may lie for its time. The bytes come from the page cache.
Spark's start and a first run of each job are left out, and so is what the same job takes on a log of one message: they
cost the same however long a log is.
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.logs import record, write_log
from benchmarks.results import machine, table, write_section
from rmqtool.commands.messages import Messages
from rmqtool.commands.options.spark import spark
from rmqtool.pipeline.frames import table_frame
from rmqtool.pipeline.session import SparkRunner
from rmqtool.pipeline.tables.options import SourceOptions
from rmqtool.pipeline.tables.table import parts, read_part, table_of
from rmqtool.scan.log import LogFile, RecordTable, ScanOptions
from rmqtool.scan.runner import Runner, ThreadRunner
from rmqtool.scan.split import Split
from rmqtool.store.directory import Store, survey
from rmqtool.store.view import DirectoryView
from tests.pipeline.cluster import cluster_in

COMMAND = "python -m benchmarks.spark"
FILE_COUNT, FILE_SIZE, BODY_LENGTH = 4, 1 << 30, 1 << 10
REPEATS = 3
HERE = "here"
FEW = "topic,size"
CONF = ["spark.sql.shuffle.partitions=2"]
HEAP = {"udf": "8g"}
"""Of the JVM, where Spark's default of 1 GiB is not enough: binaryFile makes a row of a whole file."""
UDF_SECONDS_MAX = 180
ON_CLUSTER = ["spark.driver.host=127.0.0.1", "spark.executor.memory=768m", "spark.executor.cores=1"]
WORKERS = 2
LOG, ONE_MESSAGE = "log", "one-message"

Seconds = tuple[float, float, float]
"""On the log, and on a log of one message, and how many cores the first kept busy."""

JOBS = {
    "walk": "walk, all columns, rows counted",
    "few": "table `messages`, two columns, sizes summed by topic",
    "headers": "table `messages`, profile headers, rows counted",
    "udf": "binaryFile + Python UDF, rows counted",
}


def opened(folder: Path) -> Store:
    return survey(DirectoryView(folder))


def count_rows(split: Split) -> int:
    try:
        return sum(len(batch.rows) for batch in ScanOptions(compiled=True).walk(split).batches())
    finally:
        split.source.close()


def walk(folder: Path, runner: Runner) -> int:
    """All splits of the log, by whoever runs them."""
    store = opened(folder)
    table = RecordTable.of([LogFile(OpenIn(store, found.path), found.start) for found in store.commitlog])
    return sum(runner.map(count_rows, table.splits))


class OpenIn:
    """Opens a file of a store, here or elsewhere."""

    def __init__(self, store: Store, path: str) -> None:
        self.view, self.path = store.view, path

    def __call__(self) -> Any:
        return self.view.open(self.path)


def read_table(folder: Path, **options: str) -> int:
    """Every record batch of the table, made in this thread; its rows."""
    messages = table_of(SourceOptions.parse({"path": str(folder), **options}))
    return sum(batch.num_rows for part in parts(messages) for batch in read_part(messages, part))


def count_in_python(content: bytes) -> int:
    """The records of a file, as a UDF without a library finds them; nothing is checked."""
    at = count = 0
    head = struct.Struct(">ii")
    while at + 8 <= len(content):
        size, magic = head.unpack_from(content, at)
        if size <= 0:
            break
        count += 1
        at += size
        if magic == -875286124:
            break
    return count


def job_on(session: Any, folder: Path, name: str) -> Callable[[], int]:
    """A job on Spark; its rows."""
    from pyspark.sql import functions as f

    def few() -> int:
        frame = table_frame(session, {"path": str(folder), "columns": FEW})
        return sum(row["n"] for row in frame.groupBy("topic").agg(f.sum("size"), f.count("*").alias("n")).collect())

    def udf() -> int:
        counted = f.udf(count_in_python, "long", useArrow=False)
        frame = session.read.format("binaryFile").load(str(folder / "commitlog"))
        return int(frame.select(counted("content").alias("n")).agg(f.sum("n")).collect()[0][0])

    jobs = {
        "walk": lambda: walk(folder, SparkRunner(session)),
        "few": few,
        "headers": lambda: table_frame(session, {"path": str(folder)}).count(),
        "udf": udf,
    }
    return jobs[name]


def job_here(folder: Path, name: str) -> Callable[[], int]:
    """The same work in one thread of this process."""
    jobs = {
        "walk": lambda: walk(folder, ThreadRunner(1)),
        "few": lambda: read_table(folder, columns=FEW),
        "headers": lambda: read_table(folder),
    }
    return jobs[name]


def processor_seconds() -> float:
    """What this process and all below it have taken, those that ended included."""
    parents, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
            ticks[int(stat.parent.name)] = sum(map(int, fields[11:15]))
    own = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(ticks.get(pid, 0) for pid in own) / os.sysconf("SC_CLK_TCK")


def seconds_of(job: Callable[[], int], rows: int, repeats: int = REPEATS) -> tuple[float, float]:
    """Seconds of the fastest run of a job, and how many cores it kept busy; the first one only if there is no other."""
    times = []
    for _ in range(1 + repeats):
        start, processor = time.perf_counter(), processor_seconds()
        assert job() == rows
        seconds = time.perf_counter() - start
        times.append((seconds, (processor_seconds() - processor) / seconds))
    return min(times[1:] or times)


def measured(folder: Path, master: str, rows: int) -> dict[str, Seconds]:
    """What each job takes, each in a process of its own. What fails is left out."""
    found = {}
    for name in JOBS:
        if name == "udf" and not master.startswith("local"):
            continue
        options = ["--measure", master, "--job", name, "--folder", str(folder), "--rows", str(rows)]
        command = [sys.executable, "-m", "benchmarks.spark", *options]
        try:
            ran = subprocess.run(
                command, check=name != "udf", capture_output=True, text=True,
                timeout=UDF_SECONDS_MAX if name == "udf" else None,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            continue
        if ran.returncode == 0:
            whole, start, cores = map(float, ran.stdout.split()[-3:])
            found[name] = whole, start, cores
            print(master, name, f"{whole:.2f}, {start:.2f} of them on one message, {cores:.2f} cores", file=sys.stderr)
    return found


def measured_on_cluster(folder: Path, rows: int) -> dict[str, Seconds]:
    """The same on a standalone cluster of its own."""
    with tempfile.TemporaryDirectory() as place, cluster_in(Path(place)) as cluster:
        for number in range(WORKERS):
            cluster.start_worker(number)
        return measured(folder, cluster.url, rows)


def measure(folder: Path, master: str, name: str, rows: int) -> Seconds:
    """What one job takes."""
    if master == HERE:
        whole, cores = seconds_of(job_here(folder / LOG, name), rows)
        return whole, seconds_of(job_here(folder / ONE_MESSAGE, name), 1)[0], cores
    conf = [*CONF, f"spark.driver.memory={HEAP.get(name, '1g')}"]
    if not master.startswith("local"):
        conf += [*ON_CLUSTER, f"spark.pyspark.python={sys.executable}"]
    with spark(master, conf, Messages(quiet=True)) as session:
        if name == "udf":
            whole, cores = seconds_of(job_on(session, folder / LOG, name), rows, 0)
            return whole, 0.0, cores
        whole, cores = seconds_of(job_on(session, folder / LOG, name), rows)
        return whole, seconds_of(job_on(session, folder / ONE_MESSAGE, name), 1)[0], cores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the log may lie; a temporary one if left out")
    parser.add_argument("--measure", help="run one job on one master only, for the benchmark itself")
    parser.add_argument("--job", choices=JOBS)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--files", type=int, default=FILE_COUNT, help="files of 1 GiB")
    chosen = parser.parse_args()
    if chosen.measure:
        print(*measure(chosen.folder, chosen.measure, chosen.job, chosen.rows))
        return
    facts = machine("pyspark", "pyarrow", "numba", "numpy")
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        folder = Path(name)
        rows = write_log(folder / LOG / "commitlog", chosen.files, FILE_SIZE, BODY_LENGTH) + chosen.files
        one_message(folder / ONE_MESSAGE / "commitlog")
        all_found = [measured(folder, master, rows) for master in (HERE, "local[1]", "local[2]")]
        all_found.append(measured_on_cluster(folder, rows))
    lines = [line(text, *(found.get(job) for found in all_found), rows=rows) for job, text in JOBS.items()]
    size = chosen.files * FILE_SIZE / 1e9
    text = f"""{chosen.files} files of 1 GiB, {size:.1f} GB, {rows:,} rows, bodies of 1 KiB.
Goals: local[1] at most 1.5 times one thread, local[2] at least 1.7 times as fast as local[1]. What the job takes on a
log of one message, Spark's planning and its Python processes, is taken off where seconds are compared. The table makes
Arrow columns, which go through a socket into the JVM; one thread makes the same columns and drops them. Where local[1]
keeps c of two cores busy, Python making what the JVM takes, two workers can be 2 ÷ c times as fast and no more. The
cluster is a standalone master with {WORKERS} workers of one core, on the same two cores. The UDF looks at sizes only,
and checks nothing; it has a heap of 8 GB, and {UDF_SECONDS_MAX} s.

{table(lines)}"""
    write_section("spark", COMMAND, facts, text)
    print(text)


def line(
    text: str,
    here: Seconds | None,
    one: Seconds | None,
    two: Seconds | None,
    cluster: Seconds | None,
    *,
    rows: int,
) -> dict[str, str]:
    """What is said about a job."""

    def net(found: Seconds) -> float:
        return found[0] - found[1]

    return {
        "job": text,
        "local[1] ÷ one thread": f"{net(one) / net(here):.2f}" if one and here else "",
        "local[1]: cores busy": f"{one[2]:.2f}" if one else "",
        "local[2]: times faster": f"{net(one) / net(two):.2f}" if one and two else "",
        "cluster: times faster than local[1]": f"{net(one) / net(cluster):.2f}" if one and cluster else "",
        "one thread s": f"{here[0]:.2f}" if here else "",
        **{
            f"{master} s, on one message": f"{found[0]:.2f}, {found[1]:.2f}" if found else "fails, or takes longer"
            for master, found in (("local[1]", one), ("local[2]", two), ("cluster", cluster))
        },
        "local[2] million records/s": f"{rows / net(two) / 1e6:.2f}" if two else "",
    }


def one_message(folder: Path) -> None:
    """A log of one file with one message, and no blank behind it."""
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(record(0, BODY_LENGTH, 0).ljust(1 << 20, b"\0"))


if __name__ == "__main__":
    main()
