"""Circumstances that are made once, not by the thousand: stores of a size that nobody has, limits, signals, clocks.

`python -m tests.campaign.doors.circumstances` runs commands as processes of their own, and names what broke a bound.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.campaign.doors.bounds import EXITS, MIB, Bounds, Ending, broken_bounds, prepare, tree_state
from tests.campaign.doors.stores import MEMORY, case_files, golden, tiny, write_files

READERS: Final = (
    "info", "verify --threads 1", "forecast", "recover --dry-run", "dump --limit 3", "stats --max-memory 200M",
)  # fmt: skip
LARGE: Final = Bounds(memory_bytes=1536 * MIB, cpu_seconds=150, wall_seconds=900)
USUAL: Final = Bounds(cpu_seconds=20)
FILES: Final = 300_000
QUEUES: Final = 1_000_000
LOG_BYTES: Final = 16 << 40
LOG_FILE: Final = 1 << 30


@dataclass
class Run:
    """Commands over one folder, and what was wrong with them."""

    folder: Path
    wrong: list[str]
    lines: list[str]
    count: int = 0
    usual: dict[str, int] = field(default_factory=dict)
    """Exit codes of command lines without a circumstance."""

    def command(
        self, line: str, bounds: Bounds = USUAL, *, may_change: bool = False, exits: frozenset[int] = EXITS,
        setup: Callable[[], None] | None = None, environment: dict[str, str | None] | None = None,
        meanwhile: Callable[[subprocess.Popen[bytes]], None] | None = None, closed: Sequence[int] = (),
        compared: bool = True, as_ever: bool = False,
    ) -> int:  # fmt: skip
        """Run one command line; its exit code. What it broke is kept.

        Args:
            as_ever: whether it is to end as it does without a circumstance.
        """
        if as_ever and line not in self.usual:
            self.usual[line] = self.command(line, bounds)
            self.empty_out()
        self.count += 1
        before = tree_state(self.folder / "store") if compared else {}
        name, *options = line.split()
        variables = {**os.environ, "TMPDIR": str(self.folder / "tmp"), "HOME": str(self.folder / "home")}
        for key, value in (environment or {}).items():
            variables.pop(key, None)
            if value is not None:
                variables[key] = value

        def prepared() -> None:
            os.setsid()
            for number in closed:
                with suppress(OSError):
                    os.close(number)
            if setup is not None:
                setup()

        with (self.folder / "stdout").open("wb") as output, (self.folder / "stderr").open("wb") as errors:
            words = [sys.executable, "-m", "rmqtool", name, "../store", *options]
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, cwd=self.folder / "work",
                env=variables, preexec_fn=prepared,  # noqa: PLW1509 - no thread runs here
            )  # fmt: skip
            if meanwhile is not None:
                meanwhile(process)
            status, usage = _wait(process, bounds.wall_seconds)
        code = os.waitstatus_to_exitcode(status)
        ending = Ending(
            max(code, 0), max(-code, 0), b"", (self.folder / "stderr").read_bytes(), usage.ru_maxrss << 10,
            usage.ru_utime + usage.ru_stime, 0,
        )  # fmt: skip
        wrong = [] if -code in _ENDED_BY and -code in exits else broken_bounds(ending, bounds, exits)
        if not may_change and compared and tree_state(self.folder / "store") != before:
            wrong.append("the store changed")
        wrong += [f"left {path.name} in the directory for temporary files" for path in (self.folder / "tmp").iterdir()]
        wrong += _group_left(process.pid)
        if as_ever and code != self.usual[line]:
            wrong.append(f"exit {code}, and {self.usual[line]} as ever")
        shown = f"{line}: exit {code}, {ending.memory_bytes // MIB} MiB, {ending.cpu_seconds:.1f} s"
        self.lines.append(shown)
        self.wrong += [f"[{line}] {text}" for text in wrong]
        return code

    def empty_out(self) -> None:
        """Remove results, which no command overwrites."""
        shutil.rmtree(self.folder / "out")
        (self.folder / "out").mkdir()


_ENDED_BY: Final = frozenset({signal.SIGTERM, signal.SIGPIPE})


def many_files(run: Run) -> None:
    """300,000 files: of queues, of the index, and strays."""
    store = run.folder / "store"
    write_files(tiny(), store)
    unit = (store / "consumequeue" / "orders" / "0" / ("0" * 20)).read_bytes()
    for number in range(FILES // 100):
        queue = store / "consumequeue" / f"topic{number % 300}" / str(number // 300)
        queue.mkdir(parents=True)
        for file in range(100):
            (queue / f"{file * 100:020d}").write_bytes(unit)
    for line in (
        "info",
        "verify --depth structure --threads 1",
        "dump --limit 3",
        "stats --max-memory 200M",
        "forecast --broker-version 5.5.0",
    ):
        run.command(line, LARGE, compared=False)


def many_queues(run: Run) -> None:
    """A million queues, each with a sparse file."""
    store = run.folder / "store"
    write_files(tiny(), store)
    for topic in range(1000):
        for queue in range(QUEUES // 1000):
            folder = f"{store}/consumequeue/topic{topic}/{queue}"
            os.makedirs(folder)  # noqa: PTH103 - a million of them
            descriptor = os.open(f"{folder}/{0:020d}", os.O_WRONLY | os.O_CREAT, 0o644)
            os.truncate(descriptor, 100)
            os.close(descriptor)
    for line in ("info", "dump --limit 3", "get --topic topic7 --queue-id 9 --queue-offset 0"):
        run.command(line, Bounds(memory_bytes=4096 * MIB, cpu_seconds=300, wall_seconds=1500), compared=False)


def huge_log(run: Run) -> None:
    """A log of 16 TiB in files of 1 GiB that are holes, but for the first one."""
    store = run.folder / "store"
    write_files(tiny(), store)
    log = store / "commitlog"
    for file in sorted(log.iterdir())[1:]:
        file.unlink()
    for number in range(LOG_BYTES // LOG_FILE):
        with (log / f"{number * LOG_FILE:020d}").open("ab") as file:
            file.truncate(LOG_FILE)
    for line in READERS:
        run.command(line, LARGE, compared=False)


def many_log_directories(run: Run) -> None:
    """A log in 200 directories."""
    store = run.folder / "store"
    write_files(tiny(), store)
    names = [f"log{number}" for number in range(200)]
    for name in names:
        (store / name).mkdir()
    for number, file in enumerate(sorted((store / "commitlog").iterdir())):
        file.rename(store / names[number * 7] / file.name)
    options = " ".join(f"--commitlog ../store/{name}" for name in names)
    for line in READERS:
        run.command(f"{line} {options}")


def few_descriptors(run: Run) -> None:
    """`ulimit -n` of 64 and less."""
    write_files(golden("5.5.0-crashed"), run.folder / "store")
    for limit in (64, 32, 20, 12):
        for line in (*READERS, "report --html ../out/page.html", "salvage --dry-run"):
            setup = lambda limit=limit: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))  # noqa: E731
            run.command(line, setup=setup, as_ever=limit == 64)
            run.empty_out()


def little_address_space(run: Run) -> None:
    """`ulimit -v`: where Python itself does not start, nothing is asked of the tool."""
    write_files(golden("5.5.0-crashed"), run.folder / "store")
    for mebibytes in (400, 600, 800, 1200, 2000):
        limit = mebibytes * MIB
        for line in READERS:
            run.command(line, setup=lambda limit=limit: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))


def closed_descriptors(run: Run) -> None:
    """Standard input, output and errors closed, in every combination."""
    write_files(tiny(), run.folder / "store")
    for closed in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
        for line in ("info", "verify --threads 1", "dump --format jsonl", "recover --dry-run"):
            run.command(line, closed=closed, as_ever=1 not in closed)


def signals(run: Run) -> None:
    """SIGSTOP and SIGCONT in the middle, SIGTERM, and a reader that goes away."""
    write_files(golden("5.5.0-crashed"), run.folder / "store")

    def pause(process: subprocess.Popen[bytes]) -> None:
        for delay in (0.2, 0.3, 0.4):
            time.sleep(delay)
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGSTOP)
            time.sleep(0.1)
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)

    for line in READERS:
        run.command(line, meanwhile=pause, as_ever=True)
    for line in ("dump --format jsonl --body hex", "verify --threads 1 --format jsonl", "stats", "info"):
        descriptors = os.pipe()
        os.close(descriptors[0])
        run.command(
            line, exits=EXITS | {141, signal.SIGPIPE}, setup=lambda pipe=descriptors[1]: os.dup2(pipe, 1) and None
        )
        os.close(descriptors[1])


def temporary_directories(run: Run) -> None:
    """No TMPDIR, one that is not there, a file, read-only, and on a file system without execution."""
    write_files(golden("5.5.0-rocksdb-cq"), run.folder / "store")
    (run.folder / "file").write_bytes(b"")
    lines = (
        "info",
        "verify --threads 1",
        "forecast --broker-version 5.5.0",
        "recover --dry-run",
        "dump --type consumequeue",
    )
    for place in (None, str(run.folder / "absent"), str(run.folder / "file"), "/proc", "", "relative"):
        for line in lines:
            run.command(line, environment={"TMPDIR": place}, as_ever=True)
    with _mounted(run.folder / "mounted", "noexec") as mounted:
        for line in lines if mounted else ():
            run.command(line, environment={"TMPDIR": str(run.folder / "mounted")})
    with _mounted(run.folder / "mounted", "ro") as mounted:
        for line in lines if mounted else ():
            run.command(line, environment={"TMPDIR": str(run.folder / "mounted")})


def bare_environment(run: Run) -> None:
    """No home, no cache that may be written, no locale, and files of 64 MiB at most."""
    write_files(golden("5.5.0-many-no-checkpoint-abort"), run.folder / "store")
    lines = (*READERS, "evidence --output ../out/bundle", "report --html ../out/page.html")
    size = 64 * MIB
    for line in lines:
        for environment in ({"HOME": None, "XDG_CACHE_HOME": "/proc/self"}, {"LC_ALL": "C", "LANG": None}):
            run.command(line, environment=environment, as_ever=True)
            run.empty_out()
        run.command(line, setup=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)), as_ever=True)
        run.empty_out()


def immutable_files(run: Run) -> None:
    """Files that not even root may change; the folder lies on a disk, for memory has no such mark."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        prepare(folder)
        write_files(case_files("recover many faults"), folder)
        files = [path for path in sorted((folder / "store").rglob("*")) if path.is_file()]
        inner = Run(folder, run.wrong, run.lines)
        for chosen in (files, files[:1], files[-1:], [path for path in files if "consumequeue" in str(path)]):
            if subprocess.run(["chattr", "+i", *chosen], check=False, capture_output=True).returncode:
                run.lines.append("this file system has no such mark")
                return
            try:
                for line in (
                    "info",
                    "verify --threads 1",
                    "recover --full --yes --broker-version 5.5.0",
                    "rebuild --yes",
                ):
                    inner.command(line, may_change=True)
                inner.command("undo --yes", may_change=True)
            finally:
                subprocess.run(["chattr", "-i", *chosen], check=False, capture_output=True)
            shutil.rmtree(folder / "store")
            write_files(case_files("recover many faults"), folder)
        run.count += inner.count


def wrong_clock(run: Run) -> None:
    """A clock of 1970, of 2106, and before the epoch, put before the program by a module of Python's own start."""
    write_files(tiny("tiny-delay"), run.folder / "store")
    for seconds in (0, -(1 << 31), 1 << 32, 253_402_300_800, 1 << 40):
        (run.folder / "home" / "sitecustomize.py").write_text(
            f"import time\ntime.time = lambda: {seconds}.5\ntime.time_ns = lambda: {seconds}500000000\n", "utf-8"
        )
        path = f"{run.folder / 'home'}:{os.environ.get('PYTHONPATH', os.getcwd())}"  # noqa: PTH109
        lines = (*READERS, "dump --from-time 2h", "dump --pending", "report --html ../out/page.html", "watch --once")
        for line in lines:
            run.command(line, environment={"PYTHONPATH": path}, as_ever=line in READERS)
            run.empty_out()


def refused_databases(run: Run) -> None:
    """RocksDB files on which the library aborts, and a reading process that is killed."""
    files = dict(golden("5.5.0-rocksdb-cq"))
    tables = [path for path in files if path.startswith("consumequeue/") and path.endswith(".sst")]
    manifests = [path for path in files if path.startswith("consumequeue/MANIFEST")]
    for path in (*tables[:2], *manifests[:1]):
        for content in (b"", b"\xff" * len(files[path]), files[path][: len(files[path]) // 2], files[path][::-1]):
            shutil.rmtree(run.folder / "store", ignore_errors=True)
            write_files({**files, path: content}, run.folder / "store")
            run.command("verify --threads 1")
            run.command("dump --type consumequeue --limit 5")


CIRCUMSTANCES: Final[dict[str, Callable[[Run], None]]] = {
    "files": many_files,
    "queues": many_queues,
    "log": huge_log,
    "directories": many_log_directories,
    "descriptors": few_descriptors,
    "memory": little_address_space,
    "closed": closed_descriptors,
    "signals": signals,
    "temporary": temporary_directories,
    "environment": bare_environment,
    "immutable": immutable_files,
    "clock": wrong_clock,
    "databases": refused_databases,
}


def run_circumstance(name: str) -> Run:
    """Make one, and run its commands."""
    folder = Path(tempfile.mkdtemp(prefix="door-", dir=MEMORY))
    try:
        prepare(folder)
        run = Run(folder, [], [])
        CIRCUMSTANCES[name](run)
        return run
    finally:
        subprocess.run(["rm", "-rf", "--", str(folder)], check=False)


@contextmanager
def _mounted(place: Path, option: str) -> Iterator[bool]:
    place.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size=64m,{option}", "tmpfs", str(place)]
    mounted = os.geteuid() == 0 and subprocess.run(command, check=False, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(place)], check=False, capture_output=True)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> tuple[int, resource.struct_rusage]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = status
            return status, usage
        time.sleep(0.01)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    return status, usage


def _group_left(pid: int) -> list[str]:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return []
    return ["left a process of its group"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*CIRCUMSTANCES, []], help="only these")
    failed = 0
    for name in parser.parse_args().names or CIRCUMSTANCES:
        run = run_circumstance(name)
        failed += len(run.wrong)
        sys.stdout.write(f"{name}: {run.count} commands, {len(run.wrong)} failures\n")
        sys.stdout.writelines(f"    {line}\n" for line in run.lines)
        sys.stdout.writelines(f"FAILED {name} {line}\n" for line in run.wrong)
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
