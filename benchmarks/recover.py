"""How fast a crashed store is recovered and rebuilt, next to the real broker's load of it; memory, and a terabyte.

Run `python -m benchmarks.recover`; `--folder` says where 5 GB may lie for its time, `--scale 0.1` makes everything
smaller. Needs what the tests marked `broker` need. The stores are those of `benchmarks.verify`: ended by a crash and
without a checkpoint, so that the broker reads all of the log as well; each runs on a copy of its own.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.logs import log_files, write_log
from benchmarks.results import machine, table, write_section
from benchmarks.scan import Ran, over_blocks, run_process, run_python
from benchmarks.stores import VERSION, write_store
from benchmarks.terabyte import torn_terabyte
from benchmarks.verify import LOG_FILE_SIZE, STORES, broker_load, warm
from tests.broker.broker import Judge

COMMAND = "python -m benchmarks.recover"
SEGMENTS = (2, 20)
RECORDS_PER_SEGMENT = 100_000
EXIT_TO_DO = 3


def copied(store: Path, *, derived: bool = True) -> Path:
    """A copy of a store whose log is in the page cache, with or without queues and index."""
    copy = store.with_name(f"{store.name}-ours")
    subprocess.run(["cp", "-a", "--sparse=always", store, copy], check=True)
    if not derived:
        for name in ("consumequeue", "index"):
            shutil.rmtree(copy / name)
    over_blocks(list(log_files(copy / "commitlog")), len)
    return copy


def ours(store: Path, *arguments: str, derived: bool = True) -> Ran:
    """What a command takes that changes a copy of the store."""
    copy = copied(store, derived=derived)
    ran = run_process("-m", "rmqtool", *arguments, str(copy), "--yes", "--quiet", "--broker-version", VERSION)
    shutil.rmtree(copy)
    return ran


def speed(folder: Path, judge: Judge, scale: float) -> list[dict[str, str]]:
    """A row for each store."""
    rows = []
    for label, (whole_count, body_length) in STORES.items():
        count = int(whole_count * scale)
        store = folder / label.replace(" ", "")
        write_store(store, count, body_length, LOG_FILE_SIZE)
        load, load_cpu = broker_load(judge, store, count)
        recover = ours(store, "recover", "--full")
        rebuild = ours(store, "rebuild", derived=False)
        for name in ("consumequeue", "index"):
            shutil.rmtree(store / name)
        bare, bare_cpu = broker_load(judge, store, count)
        rows.append(
            {
                "body": label,
                "messages": f"{count:,}",
                "broker's load ÷ `recover --full`, clock": f"{load / recover.seconds:.2f}",
                "processor": f"{load_cpu / recover.processor_seconds:.2f}",
                "broker's load from nothing ÷ `rebuild`, clock": f"{bare / rebuild.seconds:.2f}",
                "processor ": f"{bare_cpu / rebuild.processor_seconds:.2f}",
                "broker s": f"{load:.1f}",
                "from nothing s": f"{bare:.1f}",
                "`recover --full` s": f"{recover.seconds:.1f}",
                "`rebuild` s": f"{rebuild.seconds:.1f}",
                "peak MiB of both": f"{recover.peak}, {rebuild.peak}",
            }
        )
        shutil.rmtree(store)
    return rows


def memory(folder: Path) -> list[dict[str, str]]:
    """Peak memory of a rebuild from nothing for logs of sparse files."""
    rows = []
    for count in SEGMENTS:
        store = folder / f"sparse-{count}"
        write_log(store / "commitlog", count, 1 << 30, 100, records_per_file=RECORDS_PER_SEGMENT)
        seconds, peak = run_python(
            "-m", "rmqtool", "rebuild", str(store), "--yes", "--quiet", "--broker-version", VERSION
        )
        rows.append({"files of 1 GiB": str(count), "peak MiB": str(peak), "seconds": f"{seconds:.1f}"})
        shutil.rmtree(store)
    return rows


def terabyte(folder: Path) -> list[dict[str, str]]:
    """A thousand sparse files of 1 GiB that end in a torn record."""
    store = folder / "terabyte"
    torn_terabyte(store)
    planned = run_python("-m", "rmqtool", "recover", str(store), "--dry-run", exit_code=EXIT_TO_DO)
    done = run_python("-m", "rmqtool", "recover", str(store), "--yes")
    again = run_python("-m", "rmqtool", "recover", str(store), "--dry-run")
    shutil.rmtree(store)
    names = ("`recover --dry-run`", "`recover --yes`", "`recover --dry-run` afterwards")
    return [
        {"what": name, "seconds": f"{seconds:.1f}", "peak MiB": str(peak)}
        for name, (seconds, peak) in zip(names, (planned, done, again), strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=None, help="where the stores lie while it runs")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the messages; only 1 is written down")
    chosen = parser.parse_args()
    facts = machine("numba", "numpy", "isal")
    judge = Judge(VERSION)
    try:
        with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
            warm(judge, Path(name))
            fast = table(speed(Path(name), judge, chosen.scale))
            sys.stdout.write(f"{fast}\n")
            flat = table(memory(Path(name)))
            large = table(terabyte(Path(name)))
            sys.stdout.write(f"{flat}\n{large}\n")
    finally:
        judge.close()
    if chosen.scale != 1.0:
        return
    about = f"""The stores of `benchmarks.verify`, in log files of {LOG_FILE_SIZE >> 20} MiB, from the page cache. Ours
are whole processes, plan, forecasts of every version, journal and check included; `rebuild` begins without queues and
index. Broker: RocketMQ {VERSION}, its load of a copy of the same store in a virtual machine that is warm. One run of
each: by the clock, other work on the machine makes a ratio better or worse; processor times differ less.

"""
    text = f"{about}{fast}\n`rebuild` from nothing over sparse logs of messages of 100 B:\n\n{flat}"
    write_section("recover", COMMAND, facts, f"{text}\nA torn record at the end of a sparse terabyte:\n\n{large}")


if __name__ == "__main__":
    main()
