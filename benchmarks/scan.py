"""How fast the log is walked, next to what bounds it: the same checksum alone, reading alone, the plain reader.

Run `python -m benchmarks.scan`; `--folder` says where 2 GiB may lie for its time. The bytes come from the page cache,
and are more than the last-level cache holds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.logs import log_files, write_log
from benchmarks.results import machine, table, write_section
from benchmarks.terabyte import terabyte_store
from rmqtool.scan.blocks import BLOCK_SIZE
from rmqtool.scan.checksum import crc32
from rmqtool.scan.log import DISPATCH_BLOCK_SIZE, LogFile, RecordTable, ScanOptions
from rmqtool.scan.walk import Walk

COMMAND = "python -m benchmarks.scan"
BODY_LENGTHS = {"100 B": 100, "1 KiB": 1 << 10, "4 KiB": 4 << 10, "64 KiB": 64 << 10}
FILE_COUNT, FILE_SIZE = 4, 128 << 20
PLAIN_RECORDS = 10_000
REPEATS = 5
SEGMENT_SIZE, SEGMENT_COUNT = 1 << 30, 100


def best(*runs: Callable[[], object], clock: Callable[[], float] = time.process_time) -> list[float]:
    """Seconds of the fastest of several runs of each; the runs take turns, so that all meet the same neighbours."""
    found: list[list[float]] = [[] for _ in runs]
    for _ in range(REPEATS):
        for run, seconds in zip(runs, found, strict=True):
            start = clock()
            run()
            seconds.append(clock() - start)
    return [min(seconds) for seconds in found]


def over_blocks(files: list[LogFile], work: Callable[[memoryview], object]) -> None:
    """Read all files block by block, through the byte source, with blocks that stay in a core's cache."""
    buffer = memoryview(bytearray(BLOCK_SIZE))
    for file in files:
        source = file.open()
        position = 0
        while (count := source.read_into(position, buffer)) > 0:
            work(buffer[:count])
            position += count
        source.close()


def walk_all(files: list[LogFile], *, compiled: bool, threads: int = 1) -> int:
    """Walk a log with all columns, in the blocks of commands that have several threads; its rows."""
    options = ScanOptions(compiled=compiled, block_size=DISPATCH_BLOCK_SIZE)
    table = RecordTable.of(files, options)
    return sum(table.map(count_rows, threads, table.splits))


def count_rows(walk: Walk) -> int:
    return sum(len(batch.rows) for batch in walk.batches())


def walking(folder: Path) -> list[dict[str, str]]:
    """The table of the walk: one row for each body length."""
    rows = []
    for label, body_length in BODY_LENGTHS.items():
        log = folder / label.replace(" ", "")
        count = write_log(log, FILE_COUNT, FILE_SIZE, body_length)
        files = list(log_files(log))
        few = folder / f"few-{body_length}"
        few_count = write_log(few, 1, FILE_SIZE, body_length, records_per_file=PLAIN_RECORDS)
        few_files = list(log_files(few))
        assert walk_all(files, compiled=True) == count + FILE_COUNT
        reading, checksum, one, plain = best(
            lambda files=files: over_blocks(files, len),
            lambda files=files: over_blocks(files, crc32),
            lambda files=files: walk_all(files, compiled=True),
            lambda files=few_files: walk_all(files, compiled=False),
        )
        plain = plain / few_count * count
        alone, two = best(
            lambda files=files: walk_all(files, compiled=True),
            lambda files=files: walk_all(files, compiled=True, threads=2),
            clock=time.perf_counter,
        )
        size = FILE_COUNT * FILE_SIZE
        rows.append(
            {
                "body": label,
                "walk ÷ CRC alone": f"{checksum / one:.2f}",
                "walk ÷ reading alone": f"{reading / one:.2f}",
                "two threads ÷ one": f"{alone / two:.2f}",
                "compiled ÷ plain": f"{plain / one:.0f}",
                "million records/s": f"{count / one / 1e6:.2f}",
                "walk GB/s": f"{size / one / 1e9:.1f}",
                "two threads GB/s": f"{size / two / 1e9:.1f}",
                "CRC GB/s": f"{size / checksum / 1e9:.1f}",
                "reading GB/s": f"{size / reading / 1e9:.1f}",
            }
        )
        for path in [*log.iterdir(), *few.iterdir()]:
            path.unlink()
    return rows


MIDDLE = """
import os, sys, time
start = time.perf_counter()
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, 1, 0)])
_, status, used = os.wait4(pid, 0)
seconds = time.perf_counter() - start
print(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss >> 10, os.waitstatus_to_exitcode(status))
"""
"""Starts a process from a small one: a process begins with the peak memory of the one that started it."""


_OF_TESTS = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
AS_INSTALLED = {name: value for name, value in os.environ.items() if name not in _OF_TESTS}
"""Variables of a user's process: an installed program has its byte code, which it would else compile at each start."""


class Ran(NamedTuple):
    """Seconds by the clock and on processors, and peak memory in MiB, of a process."""

    seconds: float
    processor_seconds: float
    peak: int


def run_process(*arguments: str, exit_code: int = 0) -> Ran:
    """What a Python process of its own took, which ends with this code."""
    return run_program(sys.executable, *arguments, exit_code=exit_code)


def run_program(name: str, *arguments: str, exit_code: int = 0) -> Ran:
    """What a process of its own took, which ends with this code."""
    program = shutil.which(name) or name
    command = [sys.executable, "-I", "-S", "-c", MIDDLE, program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=AS_INSTALLED)
    seconds, processor_seconds, memory, code = done.stdout.split()
    assert int(code) == exit_code, (arguments, code, done.stderr)
    return Ran(float(seconds), float(processor_seconds), int(memory))


def run_python(*arguments: str, exit_code: int = 0) -> tuple[float, int]:
    """Seconds and peak memory in MiB of a Python process of its own, which ends with this code."""
    ran = run_process(*arguments, exit_code=exit_code)
    return ran.seconds, ran.peak


def fastest(*arguments: str) -> tuple[float, int]:
    """Seconds of the fastest of several runs, and the most memory that one took."""
    found = [run_python(*arguments) for _ in range(REPEATS)]
    return min(seconds for seconds, _ in found), max(memory for _, memory in found)


def imports_none_of(names: set[str], *arguments: str) -> bool:
    """Whether a Python process imports none of these packages."""
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=AS_INSTALLED)
    imported = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    return not names & imported


def starting(folder: Path) -> list[dict[str, str]]:
    """The table of what a person waits for: the start of commands, and their memory on 100 GiB of sparse files."""
    store = folder / "store"
    write_log(store / "commitlog", SEGMENT_COUNT, SEGMENT_SIZE, 1 << 10, records_per_file=1000)
    segment = str(store / "commitlog" / f"{0:020d}")
    typer, _ = fastest("-c", "import typer")
    rmqtool = ("-m", "rmqtool")
    heavy = {"numpy", "numba", "pyarrow"}
    scan_script = (
        "import sys; from pathlib import Path; from benchmarks.logs import log_files; from benchmarks.scan import "
        f"walk_all; walk_all(list(log_files(Path({str(store / 'commitlog')!r}))), compiled=True, threads=2)"
    )
    terabyte_store(folder / "terabyte")
    rows = []
    for label, arguments in {
        "`rmqtool --help`": (*rmqtool, "--help"),
        "`dump --limit 1` of a sparse segment of 1 GiB": (*rmqtool, "dump", "--limit", "1", segment),
        f"`info` of {SEGMENT_COUNT} such segments": (*rmqtool, "info", str(store)),
        "`info` of 1000 such segments and 400 queues": (*rmqtool, "info", str(folder / "terabyte")),
        f"`dump --format jsonl` of {SEGMENT_COUNT} such segments": (*rmqtool, "dump", "--format", "jsonl", str(store)),
        f"the walk of {SEGMENT_COUNT} such segments in two threads": ("-c", scan_script),
    }.items():
        seconds, memory = fastest(*arguments)
        light = imports_none_of(heavy, *arguments)
        rows.append(
            {
                "what": label,
                "÷ `import typer`": f"{seconds / typer:.2f}",
                "seconds": f"{seconds:.2f}",
                "peak MiB": str(memory),
                "numpy or numba loaded": "no" if light else "yes",
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=None, help="where the generated logs lie while it runs")
    facts = machine("numba", "numpy", "isal")
    with tempfile.TemporaryDirectory(dir=parser.parse_args().folder) as name:
        walked = table(walking(Path(name)))
        print(walked)
        started = table(starting(Path(name)))
        print(started)
    about = f"""{FILE_COUNT} files of {FILE_SIZE >> 20} MiB from the page cache, all columns. One thread by its
processor time; two threads against one, and processes, by the clock, which other work on the machine makes worse. CRC
alone and reading alone go over the same bytes through the same byte source, in blocks of {BLOCK_SIZE >> 10} KiB, with
which they are fastest; the walk has the blocks of {DISPATCH_BLOCK_SIZE >> 20} MiB of all commands with several threads.

"""
    write_section("scan", COMMAND, facts, f"{about}{walked}\nProcesses of their own:\n\n{started}")


if __name__ == "__main__":
    main()
