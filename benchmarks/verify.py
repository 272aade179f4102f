"""How fast a whole store is verified, next to the real broker's load of it, the same checksum alone and reading alone.

Run `python -m benchmarks.verify`; `--folder` says where 6 GB may lie for its time, `--scale 0.1` makes everything
smaller. Needs what the tests marked `broker` need. The stores ended by a crash and have no checkpoint, so that the
broker reads all of the log as well; it does so on a copy, for it changes what it loads.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.logs import log_files, write_log
from benchmarks.results import machine, table, write_section
from benchmarks.scan import over_blocks, run_python
from benchmarks.stores import BOTH_COMPILERS, VERSION, write_store
from rmqtool.engine.rules.versions import rules_for
from rmqtool.memory import keep_freed_memory
from rmqtool.scan.checksum import crc32
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import VerifyOptions
from rmqtool.verify.survey.result import Summary
from tests.broker.broker import Judge

COMMAND = "python -m benchmarks.verify"
STORES = {"1 KiB": (1_700_000, 1 << 10), "100 B": (6_000_000, 100)}
"""Messages and body length: 2 GB and 1.3 GB of log."""
LOG_FILE_SIZE = 256 << 20
REPEATS = 3
LOAD_SECONDS_MAX = 3600
SEGMENT_SIZE = 1 << 30
SEGMENTS = {1: 25_000, 100: 1_000}
"""Records of each file; enough in all for the compiled reader."""


def verified(store: Path, threads: int) -> Summary:
    """Verify a store in this process; it is what it should be."""
    summary = verify_store(survey(open_directory(store)), rules_for(VERSION), VerifyOptions(threads=threads))
    expected = {"store.abort-present", "checkpoint.missing", "index.would-be-dropped"}
    assert summary.complete
    assert set(summary.findings) <= expected, summary.findings
    return summary


def fastest(*works: object) -> list[tuple[float, float]]:
    """Seconds by the clock and on the processor of the fastest of several runs of each; the runs take turns."""
    found: list[list[tuple[float, float]]] = [[] for _ in works]
    for _ in range(REPEATS):
        for work, seconds in zip(works, found, strict=True):
            start, used = time.perf_counter(), time.process_time()
            work()  # type: ignore[operator]
            seconds.append((time.perf_counter() - start, time.process_time() - used))
    return [(min(clock for clock, _ in each), min(cpu for _, cpu in each)) for each in found]


def broker_load(judge: Judge, store: Path, message_count: int) -> tuple[float, float]:
    """Seconds by the clock and on processors that the broker's load of a copy takes; once, for it changes the copy."""
    copy = store.with_name(f"{store.name}-copy")
    subprocess.run(["cp", "-a", "--sparse=always", store, copy], check=True)
    over_blocks(list(log_files(copy / "commitlog")), len)  # what was copied last is in the page cache, all of it should
    before = _processor_seconds(judge)
    answer = judge.program.ask(
        "open", LOAD_SECONDS_MAX, store=copy.name, directory=str(copy), topics={},
        config={"mappedFileSizeCommitLog": str(LOG_FILE_SIZE)},
    )  # fmt: skip
    used = _processor_seconds(judge) - before
    assert answer["load"], answer
    served = sum(queue["max"] - queue["min"] for queue in answer["afterLoad"]["queues"])
    assert served == message_count, f"the broker has {served} messages of {message_count}"
    judge.program.ask("shutdown", LOAD_SECONDS_MAX, store=copy.name, patient=False)
    shutil.rmtree(copy)
    return answer["loadMs"] / 1000, used


def _processor_seconds(judge: Judge) -> float:
    process = judge.program._process  # noqa: SLF001  its answers carry no processor time
    if process is None:
        return 0.0  # it starts with the first request
    fields = Path(f"/proc/{process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def warm(judge: Judge, folder: Path) -> None:
    """Let the broker's virtual machine compile what a load needs."""
    for number in range(2):
        store = folder / f"warm-{number}"
        write_store(store, 200_000, 100, LOG_FILE_SIZE)
        broker_load(judge, store, 200_000)
        shutil.rmtree(store)


def speed(folder: Path, judge: Judge, scale: float) -> list[dict[str, str]]:
    """A row for each store."""
    rows = []
    for label, (whole_count, body_length) in STORES.items():
        count = int(whole_count * scale)
        store = folder / label.replace(" ", "")
        write_store(store, count, body_length, LOG_FILE_SIZE)
        files = list(log_files(store / "commitlog"))
        log_end = verified(store, 2).log_end
        assert log_end is not None
        reading, checksum, one, two = fastest(
            lambda files=files: over_blocks(files, len),
            lambda files=files: over_blocks(files, crc32),
            lambda store=store: verified(store, 1),
            lambda store=store: verified(store, 2),
        )
        load, load_cpu = min(broker_load(judge, store, count) for _ in range(2))
        process, memory = run_python("-m", "rmqtool", "verify", "--quiet", str(store), exit_code=3)
        rows.append(
            {
                "body": label,
                "messages": f"{count:,}",
                "log GB": f"{log_end / 1e9:.2f}",
                "broker's load ÷ verify, clock": f"{load / two[0]:.1f}",
                "broker's load ÷ verify, processor": f"{load_cpu / one[1]:.1f}",
                "verify ÷ CRC alone, one core": f"{checksum[1] / one[1]:.2f}",
                "verify ÷ reading alone, one core": f"{reading[1] / one[1]:.2f}",
                "million messages/s, one core": f"{count / one[1] / 1e6:.2f}",
                "verify s": f"{two[0]:.2f}",
                "broker s": f"{load:.1f}",
                "CRC s": f"{checksum[1]:.2f}",
                "reading s": f"{reading[1]:.2f}",
                "`rmqtool verify` s": f"{process:.1f}",
                "peak MiB": str(memory),
            }
        )
        shutil.rmtree(store)
    return rows


def memory(folder: Path) -> list[dict[str, str]]:
    """Peak memory for logs of sparse files."""
    rows = []
    for count, record_count in SEGMENTS.items():
        store = folder / f"sparse-{count}"
        write_log(store / "commitlog", count, SEGMENT_SIZE, 1 << 10, records_per_file=record_count)
        seconds, peak = run_python("-m", "rmqtool", "verify", "--quiet", str(store), exit_code=3)
        rows.append({"sparse files of 1 GiB": str(count), "peak MiB": str(peak), "seconds": f"{seconds:.1f}"})
        shutil.rmtree(store)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=None, help="where the stores lie while it runs")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the messages; only 1 is written down")
    chosen = parser.parse_args()
    facts = machine("numba", "numpy", "isal")
    keep_freed_memory()  # as the command does
    judge = Judge(VERSION, BOTH_COMPILERS)
    try:
        with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
            warm(judge, Path(name))
            fast = table(speed(Path(name), judge, chosen.scale))
            sys.stdout.write(f"{fast}\n")
            flat = table(memory(Path(name)))
            sys.stdout.write(f"{flat}\n")
    finally:
        judge.close()
    if chosen.scale != 1.0:
        return
    about = f"""Whole stores: log in files of {LOG_FILE_SIZE >> 20} MiB, queues and index, from the page cache; every
check, two threads where a column does not say one core. Broker: RocketMQ {VERSION}, its load of a copy of the same
store, without a checkpoint, in a virtual machine that is warm and has 1 GiB. CRC alone and reading alone go over the
log's bytes only. Processor times are compared where a column says so; by the clock, other work on the machine makes all
of them worse.

"""
    write_section("verify", COMMAND, facts, f"{about}{fast}\nLogs of sparse files without queues:\n\n{flat}")


if __name__ == "__main__":
    main()
