"""The goals of rmqtool in one table, in one run: whole processes on whole stores, next to the real broker's store.

Run `make bench`, or `python -m benchmarks.goals`; `--folder` says where 14 GB may lie for its time, `--scale 0.1` makes
everything smaller. Needs what the tests marked `broker` need. The stores are those of `benchmarks.verify`, in the page
cache; a broker loads a copy of each in a virtual machine that has just started, and then another one in the same.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import NamedTuple, TypeVar

from benchmarks.append import BODY_LENGTH, write_lines
from benchmarks.dump import CONTENT, dump
from benchmarks.kafka_dump import beside
from benchmarks.logs import log_files, write_log
from benchmarks.programs import BUILT_ONLY, COUNTED, KERNELS, LEAST, LEAST_BUILT, READ_ALL
from benchmarks.results import machine, table, write_section
from benchmarks.scan import AS_INSTALLED, Ran, over_blocks, run_process, walk_all
from benchmarks.stores import BOTH_COMPILERS, VERSION, write_store
from benchmarks.terabyte import torn_terabyte
from benchmarks.verify import LOG_FILE_SIZE, STORES, broker_load, verified
from rmqtool.memory import keep_freed_memory
from rmqtool.scan.checksum import crc32
from rmqtool.scan.log import LogFile
from tests.broker.broker import Judge

COMMAND = "make bench"
DERIVED = ("consumequeue", "index")
LEAST_CHECK = "start and CRC alone"
LEAST_BUILD = "start, CRC, and as many bytes written and read back"
BUILD_ALONE = "build without check and forecasts"
GIBIBYTE = 1 << 30
TO_DO = 3
APPENDED = 1_000_000
DUMPED_BYTES = 256 << 20
T = TypeVar("T")


class Took(NamedTuple):
    """What a command took as a process: seconds, bytes read over bytes of the store, peak memory in MiB."""

    seconds: float
    processor_seconds: float
    bytes_ratio: float
    peak: int


class Load(NamedTuple):
    """What a broker's load took; processor time is that of its virtual machine, the start of a fresh one included."""

    seconds: float
    processor_seconds: float


class Goal(NamedTuple):
    """A line of the table; `of_goal` above 1 is better than the goal, whichever way it counts."""

    what: str
    body: str
    goal: str
    measured: str
    of_goal: str


def at_least(what: str, body: str, goal: float, measured: float, text: str = "") -> Goal:
    """A line whose goal is reached by as much or more; `text` says more than the number does."""
    return Goal(what, body, f"≥ {goal:,g}", text or f"{measured:.2f}", f"{measured / goal:.2f}")


def at_most(what: str, body: str, goal: float, measured: float, text: str = "") -> Goal:
    """A line whose goal is reached by as much or less."""
    return Goal(what, body, f"≤ {goal:,g}", text or f"{measured:.2f}", f"{goal / measured:.2f}")


def bytes_of(store: Path) -> int:
    """What log, queues and index take."""
    return sum(bytes_below(store / name) for name in ("commitlog", *DERIVED))


def bytes_below(folder: Path) -> int:
    """What the files of a directory take; holes are no bytes."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*"))


def took(store: Path, *arguments: str, exit_code: int = 0, log_file_size: int = LOG_FILE_SIZE) -> Took:
    """Run a command on a store in a process of its own."""
    counted, conf = store.with_name("bytes-read"), store.with_name("broker.conf")
    conf.write_text(f"mappedFileSizeCommitLog={log_file_size}\n", "utf-8")
    options = ("--quiet", "--broker-version", VERSION, "--broker-conf", str(conf))
    ran = run_process("-c", COUNTED, str(counted), *arguments, str(store), *options, exit_code=exit_code)
    return Took(ran.seconds, ran.processor_seconds, int(counted.read_text("ascii")) / bytes_of(store), ran.peak)


def took_on_copy(store: Path, *arguments: str, derived: bool = True) -> Took:
    """The same on a copy that the command changes, with or without queues and index."""
    copy = store.with_name(f"{store.name}-ours")
    subprocess.run(["cp", "-a", "--sparse=always", store, copy], check=True)
    for name in () if derived else DERIVED:
        shutil.rmtree(copy / name)
    over_blocks(list(log_files(copy / "commitlog")), len)
    os.sync()  # what the copy left to be written is not the command's to wait for
    done = took(copy, *arguments)
    shutil.rmtree(copy)
    return done


def loads(store: Path, count: int) -> tuple[Load, Load]:
    """The broker's load in a virtual machine that has just started, and another one after it."""
    judge = Judge(VERSION, BOTH_COMPILERS)
    try:
        return Load(*broker_load(judge, store, count)), Load(*broker_load(judge, store, count))
    finally:
        judge.close()


def fastest(*runs: Callable[[], object], clock: Callable[[], float] = time.process_time) -> list[float]:
    """Seconds of the fastest of three runs of each, which take turns."""
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(3):
        for run, each in zip(runs, seconds, strict=True):
            start = clock()
            run()
            each.append(clock() - start)
    return [min(each) for each in seconds]


def against(what: str, body: str, goal: float, load: tuple[Load, Load], done: Took, leasts: Mapping[str, Ran]) -> Goal:
    """A broker's load beside a command, by the clock: of a fresh virtual machine, which counts, and of a warm one.

    Args:
        leasts: processes that do nothing but what the command must do in any case, by what they do.
    """
    fresh, warm = (each.seconds / done.seconds for each in load)
    clocks = "; ".join(
        f"{name} {load[0].seconds / least.seconds:.1f}, {least.seconds:.1f} s" for name, least in leasts.items()
    )
    processors = ", ".join(f"{name} {least.processor_seconds:.1f}" for name, least in leasts.items())
    text = (
        f"{fresh:.1f} ({load[0].seconds:.1f} s ÷ {done.seconds:.1f} s; warm {warm:.1f}, {load[1].seconds:.1f} s; "
        f"{clocks}; processor s: fresh {load[0].processor_seconds:.1f}, warm {load[1].processor_seconds:.1f}, "
        f"command {done.processor_seconds:.1f}, {processors})"
    )
    return at_least(what, body, goal, fresh, text)


def whole_store(folder: Path, label: str, count: int, body_length: int) -> list[Goal]:
    """The goals that a store of a killed broker shows."""
    store = folder / label.replace(" ", "")
    write_store(store, count, body_length, LOG_FILE_SIZE)
    least = min(run_process("-c", LEAST, str(store)) for _ in range(3))
    written = (str(folder / "written"), str(sum(bytes_below(store / name) for name in DERIVED)))
    built = min(run_process("-c", LEAST_BUILT, str(store), *written) for _ in range(3))
    alone = min(run_process("-c", BUILT_ONLY, str(store), str(folder), VERSION) for _ in range(3))
    verify = took(store, "verify", exit_code=TO_DO)
    salvage = took(store, "salvage", "--dry-run", exit_code=TO_DO)
    planned = took(store, "recover", "--full", "--dry-run", exit_code=TO_DO)
    recover = took_on_copy(store, "recover", "--full", "--yes")
    rebuild = took_on_copy(store, "rebuild", "--yes", derived=False)
    files = list(log_files(store / "commitlog"))
    checksum, one_core = fastest(partial(over_blocks, files, crc32), partial(verified, store, 1))
    load = loads(store, count)
    for name in DERIVED:
        shutil.rmtree(store / name)
    bare = loads(store, count)
    shutil.rmtree(store)
    goals = (0.4, 5, 4, 2) if body_length > BODY_LENGTH // 2 else (0.2, 4, 5, 1.5)
    of_crc, of_verify, of_rebuild, of_recover = goals
    read = {
        "verify": (verify, 1.1),
        "rebuild --yes": (rebuild, 1.3),
        "recover --full --dry-run": (planned, 1.5),
        "recover --full --yes": (recover, 1.5),
        "salvage --dry-run": (salvage, 2),
    }
    return [
        *(
            at_most(f"bytes read ÷ bytes of the store, `{name}`", label, goal, done.bytes_ratio)
            for name, (done, goal) in read.items()
        ),
        against("broker's load ÷ `verify`", label, of_verify, load, verify, {LEAST_CHECK: least}),
        against("broker's load from nothing ÷ `rebuild --yes`", label, of_rebuild, bare, rebuild,
                {LEAST_BUILD: built, BUILD_ALONE: alone}),
        against("broker's load ÷ `recover --full --yes`", label, of_recover, load, recover, {LEAST_CHECK: least}),
        at_least("verify ÷ CRC alone, one core", label, of_crc, checksum / one_core),
    ]  # fmt: skip


def not_in_memory(folder: Path, scale: float) -> list[Goal]:
    """What a store larger than memory takes: the page cache forgets its files before, and each second while it is read.

    Nothing that was read a second ago is there when it is read again, as if there were no memory for it.

    Args:
        folder: on a disk; a file system in memory forgets nothing.
    """
    kind = subprocess.run(
        ["stat", "--file-system", "--format", "%T", folder], capture_output=True, text=True, check=True
    )
    if kind.stdout.strip() in ("tmpfs", "ramfs"):
        return [Goal("from a disk without page cache", "1 KiB", "≤ 1.3", f"not measured: {kind.stdout.strip()}", "")]
    store = folder / "cold"
    count, body_length = STORES["1 KiB"]
    write_store(store, int(count * scale), body_length, LOG_FILE_SIZE)
    cached = [
        took(store, "recover", "--full", "--dry-run", exit_code=TO_DO).seconds,
        took_on_copy(store, "recover", "--full", "--yes").seconds,
    ]
    reading = _cold(store, partial(run_process, "-c", READ_ALL, str(store))).seconds
    planned = _cold(store, partial(took, store, "recover", "--full", "--dry-run", exit_code=TO_DO)).seconds
    done = _cold(store, partial(took, store, "recover", "--full", "--yes")).seconds
    shutil.rmtree(store)
    what = "from a disk without page cache, seconds ÷ reading all files once"
    return [
        at_most(f"{what}, `recover --full {name}`", "1 KiB", 1.3, seconds / reading,
                f"{seconds / reading:.2f} ({seconds:.1f} s ÷ {reading:.1f} s; from the page cache "
                f"{least / reading:.2f}, {least:.1f} s)")
        for name, seconds, least in zip(("--dry-run", "--yes"), (planned, done), cached, strict=True)
    ]  # fmt: skip


def _cold(store: Path, run: Callable[[], T]) -> T:
    """What a run comes to while the page cache keeps no file of the store."""
    os.sync()
    _forget(store)
    over = Event()

    def go_on() -> None:
        while not over.wait(1):
            _forget(store)

    with ThreadPoolExecutor(1) as pool:
        forgetting = pool.submit(go_on)
        try:
            return run()
        finally:
            over.set()
            forgetting.result()


def _forget(store: Path) -> None:
    for path in store.rglob("*"):
        with suppress(OSError), path.open("rb") as file:  # a repair takes files away meanwhile
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def memory(folder: Path, scale: float) -> list[Goal]:
    """Peak memory for logs of 2 and 10 full files, and of 100 sparse ones."""
    peaks: dict[str, list[int]] = {"verify": [], "rebuild --dry-run": []}
    size = int(GIBIBYTE * scale)
    for count, records in ((2, None), (10, None), (100, 2_000)):
        store = folder / f"log-{count}"
        write_log(store / "commitlog", count, size, BODY_LENGTH, records_per_file=records)
        for name, peaks_of_command in peaks.items():
            done = took(store, *name.split(), exit_code=TO_DO, log_file_size=size)
            peaks_of_command.append(done.peak)
        shutil.rmtree(store)
    what = "peak MiB for 2 and 10 full GiB, 100 sparse GiB: most ÷ that of 2"
    return [
        at_most(f"{what}, `{name}`", "1 KiB", 1.1, max(each) / each[0], f"{max(each) / each[0]:.2f} ({each})")
        for name, each in peaks.items()
    ]


def terabyte(folder: Path, scale: float) -> list[Goal]:
    """A thousand sparse files of 1 GiB that end in a torn record."""
    store = folder / "terabyte"
    torn_terabyte(store, max(2, int(1000 * scale)))
    planned, done = (run_process("-m", "rmqtool", "recover", str(store), option, exit_code=code)
                     for option, code in (("--dry-run", TO_DO), ("--yes", 0)))  # fmt: skip
    shutil.rmtree(store)
    return [
        at_most(f"seconds, `recover {name}` of a torn sparse terabyte", "1 KiB", 10, ran.seconds,
                f"{ran.seconds:.1f} ({ran.peak} MiB)")
        for name, ran in (("--dry-run", planned), ("--yes", done))
    ]  # fmt: skip


def appending(folder: Path, scale: float) -> list[Goal]:
    """Messages per second, with the program's start."""
    count, lines = int(APPENDED * scale), folder / "lines.jsonl"
    write_lines(lines, count // 2)
    made = ("--topic", "Orders", "--keys", "order-1", "--body", "x" * BODY_LENGTH, "--count", str(count))
    cases = {
        "append --count --quiet": (count, 200_000, (*made, "--quiet")),
        "append --count --format jsonl": (count, 100_000, (*made, "--format", "jsonl")),
        "append --from --format jsonl": (count // 2, 100_000, ("--from", str(lines), "--format", "jsonl")),
    }
    rows = []
    for name, (number, goal, options) in cases.items():
        store = folder / "appended"
        ran = run_process("-m", "rmqtool", "append", str(store), "--create", "--broker-version", VERSION, *options)
        rates = f"{number / ran.seconds:,.0f}, a core {number / ran.processor_seconds:,.0f}"
        rows.append(at_least(f"messages/s, `{name}`", "1 KiB", goal, number / ran.seconds, rates))
        shutil.rmtree(store)
    return rows


def reading(folder: Path, scale: float) -> list[Goal]:
    """Threads, and rows of a dump."""
    rows = []
    for label, (_, body_length) in STORES.items():
        log = folder / "walked"
        write_log(log, 4, int((128 << 20) * scale), body_length)
        files = list(log_files(log))
        walk = partial(walk_all, files, compiled=True)
        one, two = fastest(walk, partial(walk, threads=2), clock=time.perf_counter)
        plain, plain_two = fastest(partial(over_blocks, files, crc32), partial(halves, files), clock=time.perf_counter)
        measured = f"{one / two:.2f}; CRC alone {plain / plain_two:.2f}"
        rows.append(at_least("walk, one thread ÷ two", label, 1.8, one / two, measured))
        shutil.rmtree(log)
    log = folder / "dumped" / "commitlog"
    count = write_log(log, 1, int(DUMPED_BYTES * scale), BODY_LENGTH, content=CONTENT)
    (seconds,) = fastest(partial(dump, log, "--format", "jsonl", "--raw", "--body", "base64"))
    rate = count / seconds
    rows.append(at_least("rows/s, `dump --raw --body base64`", "1 KiB", 100_000, rate, f"{rate:,.0f}"))
    rows += kafka(log, count, folder)
    shutil.rmtree(log)
    done = subprocess.run([sys.executable, "-c", KERNELS], capture_output=True, text=True, check=True, env=AS_INSTALLED)
    return [*rows, at_most("processor s that kernels load, after numpy", "", 0.6, float(done.stdout))]


def kafka(log: Path, count: int, folder: Path) -> list[Goal]:
    """Kafka's `DumpLogSegments` over as many messages, beside a dump of the same form."""
    pairs = beside(log, count, BODY_LENGTH, folder)
    if isinstance(pairs, str):
        return [Goal("`DumpLogSegments` ÷ `dump`", "1 KiB", "≥ 2", pairs, "")]
    return [
        at_least(
            f"`DumpLogSegments` ÷ `dump`, {name}", "1 KiB", 2, pair.theirs.seconds / pair.ours.seconds,
            f"{pair.theirs.seconds / pair.ours.seconds:.2f} ({pair.theirs.seconds:.1f} s ÷ {pair.ours.seconds:.1f} s)",
        )
        for name, pair in pairs.items()
    ]  # fmt: skip


def halves(files: list[LogFile]) -> None:
    """CRC alone in two threads, each over half of the files: what two threads can come to on this machine."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda part: over_blocks(part, crc32), (files[::2], files[1::2])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=None, help="where the stores lie while it runs")
    parser.add_argument("--disk", type=Path, default=None, help="where the store that is read without page cache lies")
    parser.add_argument("--scale", type=float, default=1.0, help="part of everything; only 1 is written down")
    chosen = parser.parse_args()
    facts = machine("numba", "numpy", "isal", "msgspec")
    keep_freed_memory()  # as the command does
    run_process("-m", "rmqtool", "--compile")  # the first run on a machine compiles; what is measured are later ones
    rows: list[Goal] = []
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name, tempfile.TemporaryDirectory(dir=chosen.disk) as disk:
        folder = Path(name)
        for label, (count, body_length) in STORES.items():
            rows += whole_store(folder, label, int(count * chosen.scale), body_length)
        rows += not_in_memory(Path(disk), chosen.scale)
        for measure in (memory, terabyte, appending, reading):
            rows += measure(folder, chosen.scale)
    printed = table([row._asdict() for row in rows])
    sys.stdout.write(printed)
    if chosen.scale != 1.0:
        return
    about = f"""Stores of 1,700,000 messages of 1 KiB and 6,000,000 of 100 B, in files of {LOG_FILE_SIZE >> 20} MiB,
ended by a crash; whole processes by the clock, from the page cache. Broker: RocketMQ {VERSION}, its load of a copy of
the same store in a virtual machine that has just started; warm: another one in the same. Bytes read are `rchar` of
`/proc/self/io`: all that the process reads, its own program and what it has written itself too. `of_goal` above 1 is
better than the goal. "Start and CRC alone" is a process that starts, loads the kernels, computes CRC over the log in
two threads and does nothing else: no command that checks a log can be faster. `rebuild --yes` must besides write as
many bytes as queues and index have, sync them and read them back for their digests. "Build without check and
forecasts" is the command's own build and that reading back alone. Before it, `rmqtool --compile` has written all
compiled code, bytecode included, as a step of an install does. For a store larger than memory, the page cache is told
each second to forget the store's files, which lie on a disk; what the same command takes from the page cache stands
beside it, and is the least that it can take however fast the disk is.

What two threads can gain on this machine is shown by CRC alone: two halves of the files, even parts, compiled code
without the interpreter's lock. Where the walk gains as much, memory and cores set the limit, and where it gains less,
the rest is Python's: what it does between two blocks runs in one thread at a time. What keeps a goal from being reached
is measured in section `goals_limits`.

"""
    write_section("goals", COMMAND, facts, about + printed)


if __name__ == "__main__":
    main()
