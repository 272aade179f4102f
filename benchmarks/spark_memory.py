"""What a job on Spark takes in memory, whether the log has one gigabyte or a hundred.

Run `python -m benchmarks.spark_memory`; `--folder` says where sparse files of 100 GiB may lie for its time, which take
some 30 MB of the disk. What counts is the most that one Python process of an executor takes, which reads the log, and
the JVM with its heap.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.logs import write_log
from benchmarks.results import machine, table, write_section
from tests.pipeline.cluster import family

COMMAND = "python -m benchmarks.spark_memory"
FILE_SIZE = 1 << 30
LOGS = {1: 25_000, 100: 1_000}
"""Files, and messages in each; the same amount in one part of the hundredfold log as would be in a log of one."""
FULL_FILES = 4
MASTER = "local[2]"
POLL_S = 0.1


def peaks_of(command: list[str]) -> tuple[float, Counter[str]]:
    """Seconds that a command takes, and the most MiB of any process below it, by the program's name."""
    peaks: Counter[str] = Counter()
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            for number in family(process.pid)[1:]:
                name, peak = _peak(number)
                peaks[name] = max(peaks[name], peak)
            time.sleep(POLL_S)
        seconds = time.perf_counter() - start
        assert process.returncode == 0, process.stderr.read() if process.stderr else ""
    return seconds, peaks


def _peak(number: int) -> tuple[str, int]:
    """Name of a process and the most MiB that it took so far."""
    try:
        lines = Path(f"/proc/{number}/status").read_text("utf-8").splitlines()
    except OSError:
        return "", 0  # it has ended meanwhile
    said = dict(line.split(":", 1) for line in lines)
    return said["Name"].strip(), int(said.get("VmHWM", "0").split()[0]) >> 10


def measured(store: Path, label: str, messages: int) -> dict[str, str]:
    """The row of a log."""
    seconds, peaks = peaks_of([sys.executable, "-m", "rmqtool", "stats", str(store), "--master", MASTER, "--quiet"])
    python = max(peak for name, peak in peaks.items() if name.startswith("python"))
    return {
        "log": label,
        "messages": f"{messages:,}",
        "one Python process, peak MiB": str(python),
        "JVM, peak MiB": str(peaks["java"]),
        "seconds": f"{seconds:.0f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the logs may lie; a temporary one if left out")
    chosen = parser.parse_args()
    facts = machine("pyspark", "pyarrow", "numba", "numpy")
    rows = []
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        for count, per_file in LOGS.items():
            store = Path(name) / f"sparse-{count}"
            messages = write_log(store / "commitlog", count, FILE_SIZE, 100, records_per_file=per_file)
            rows.append(measured(store, f"{count} sparse files of 1 GiB", messages))
        store = Path(name) / "full"
        messages = write_log(store / "commitlog", FULL_FILES, FILE_SIZE, 1 << 10)
        rows.append(measured(store, f"{FULL_FILES} full files of 1 GiB", messages))
    text = f"""`rmqtool stats` with `--master {MASTER}`. Every part of a file is a task, in a Python process that serves
one task after the other. The JVM is driver and executor in one; its heap may grow to 1 GiB, Spark's default. A log
with less than 24 MB of data is read without compiled code, which is why the first one takes less.

{table(rows)}"""
    write_section("spark_memory", COMMAND, facts, text)
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
