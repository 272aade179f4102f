"""What a command finds around it, not in its store: limits, closed descriptors, signals, clocks, where it may write."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
GIB: Final = 1 << 30
CLOCK: Final = """
import time
_shift = {shift}
_now, _now_ns = time.time, time.time_ns
time.time = lambda: _now() + _shift
time.time_ns = lambda: _now_ns() + _shift * 1_000_000_000
"""


@dataclass(frozen=True)
class Circumstance:
    """What is done to the process before the command, and meanwhile.

    Attributes:
        before: is run in the child, before Python starts again.
        environment: further variables; None takes one away.
        clock_shift: seconds that its clock is ahead.
        meanwhile: is handed the running process.
        closed: whether an output is closed, so that a failure to write is an answer.
    """

    before: Callable[[], None] | None = None
    environment: Mapping[str, str | None] = field(default_factory=dict)
    clock_shift: int = 0
    meanwhile: Callable[[subprocess.Popen[bytes]], None] | None = None
    closed: bool = False


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: bytes
    errors: str
    memory_bytes: int


def _limit(kind: int, value: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (value, value))


def _close(*descriptors: int) -> Callable[[], None]:
    def close() -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    return close


def _stop_and_continue(process: subprocess.Popen[bytes]) -> None:
    for _ in range(5):
        time.sleep(0.1)
        for number in (signal.SIGSTOP, signal.SIGCONT):
            if process.poll() is None:
                process.send_signal(number)
            time.sleep(0.05)


CIRCUMSTANCES: Final[Mapping[str, Circumstance]] = {
    "64 descriptors": Circumstance(_limit(resource.RLIMIT_NOFILE, 64)),
    "4 GiB of addresses": Circumstance(_limit(resource.RLIMIT_AS, 4 * GIB)),
    "files of 64 MiB at most": Circumstance(_limit(resource.RLIMIT_FSIZE, 64 << 20)),
    "no core and one process more": Circumstance(_limit(resource.RLIMIT_CORE, 0)),
    "standard input closed": Circumstance(_close(0)),
    "standard output closed": Circumstance(_close(1), closed=True),
    "standard error closed": Circumstance(_close(2)),
    "all three closed": Circumstance(_close(0, 1, 2), closed=True),
    "no TMPDIR": Circumstance(environment={"TMPDIR": None}),
    "a TMPDIR that is not there": Circumstance(environment={"TMPDIR": "/nowhere/at/all"}),
    "a TMPDIR that nobody may write": Circumstance(environment={"TMPDIR": "/proc/self"}),
    "no HOME and no cache": Circumstance(environment={"HOME": None, "XDG_CACHE_HOME": "/proc/self"}),
    "stopped and continued": Circumstance(meanwhile=_stop_and_continue),
    "a clock 50 years ahead": Circumstance(clock_shift=50 * 365 * 86_400),
    "a clock before 1970": Circumstance(clock_shift=-80 * 365 * 86_400),
    "no locale": Circumstance(environment={"LC_ALL": "C", "LANG": None, "PYTHONUTF8": None}),
}


def run_under(
    circumstance: Circumstance, arguments: Sequence[str | Path], folder: Path, seconds: float = 120,
    temporary: Path | None = None,
) -> Ended:  # fmt: skip
    """Run a command in a process of its own.

    Args:
        folder: of the caller, for what the circumstance needs.
        temporary: the directory for temporary files, unless the circumstance has another.

    Raises:
        subprocess.TimeoutExpired: it did not end, which takes no such time.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    if temporary is not None:
        environment["TMPDIR"] = str(temporary)
    if circumstance.clock_shift:
        (folder / "clock").mkdir(exist_ok=True)
        (folder / "clock" / "sitecustomize.py").write_text(CLOCK.format(shift=circumstance.clock_shift))
        environment["PYTHONPATH"] = f"{folder / 'clock'}:{ROOT}"
    for name, value in circumstance.environment.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "rmqtool", *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=errors, env=environment,
            preexec_fn=circumstance.before,  # noqa: PLW1509
        )  # fmt: skip
        if circumstance.meanwhile is not None:
            circumstance.meanwhile(process)
        deadline = time.monotonic() + seconds
        while True:
            number, status, usage = os.wait4(process.pid, os.WNOHANG)
            if number:
                break
            if time.monotonic() > deadline:
                process.kill()
                raise subprocess.TimeoutExpired(process.args, seconds)
            time.sleep(0.01)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace")
        return Ended(process.returncode, out.read(), said, usage.ru_maxrss << 10)
