"""Runs a command line in a forked child and says which bounds it broke: memory, processor time, bytes, places, exit.

The child starts from a process that has imported everything, so that an input costs milliseconds. What it may write is
watched twice: by an audit hook that sees each open for writing, and by the state of the whole folder before and after.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import json
import multiprocessing.util
import os
import resource
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from rmqtool.commands import app
from rmqtool.scan import kernels

MIB: Final = 1 << 20
EXITS: Final = frozenset({0, 2, 3, 4, 5, 6})
"""What a command may end with where nobody interrupts it and its output is read; 1 is a fault of the tool."""
FOLDERS: Final = ("work", "tmp", "home", "out")
"""Beside the store: the working directory, that for temporary files, the home, and where results are written."""
_SUBREAPER: Final = 36
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_PATHS_OF: Final = {
    "os.mkdir": 1, "os.remove": 1, "os.rmdir": 1, "os.rename": 2, "os.link": 2, "os.symlink": 2, "os.truncate": 1,
    "os.chmod": 1, "os.chown": 1, "os.utime": 1,
}  # fmt: skip
"""Audit events that change a path, and how many of their arguments are paths."""
_COMPILED: Final = str(Path(str(kernels.__file__)).with_name("__pycache__"))
_SPOTS: Final = ("/dev/null", "/dev/tty", "/proc/self/", "/proc/thread-self/", _COMPILED)
"""What may be written outside: compiled code, once a version."""
_SYSTEM_TMP: Final = ("/tmp/", "/var/tmp/", "/usr/tmp/")  # noqa: S108 - what Python may take


@dataclass(frozen=True)
class Bounds:
    """What a command may take."""

    memory_bytes: int = 512 * MIB
    """Resident at most, imports included."""
    cpu_seconds: int = 10
    written_bytes: int = 64 * MIB
    """To files and pipes together, and its children's too."""
    wall_seconds: float = 120
    """A last net: a process that waits takes no processor time."""


@dataclass
class Input:
    """A command line over a prepared folder.

    Attributes:
        may_write: names below the folder that may come, change or go; all else stays as it is.
        own_changes: whether the world changes the store meanwhile, so that its state says nothing.
        setup: what happens in the child before the command.
        check: what else is wrong with how it ended.
    """

    arguments: Sequence[str]
    may_write: tuple[str, ...] = ("out",)
    own_changes: bool = False
    setup: Callable[[], None] | None = None
    check: Callable[[Ending], list[str]] | None = None
    bounds: Bounds = field(default_factory=Bounds)


class Ending(NamedTuple):
    """How a child ended, and what it took."""

    code: int
    signal: int
    output: bytes
    errors: bytes
    memory_bytes: int
    cpu_seconds: float
    written_bytes: int


class NodeState(NamedTuple):
    """What must stay the same of a file or directory."""

    mode: int
    owner: tuple[int, int]
    size: int
    mtime_ns: int
    digest: str


def become_reaper() -> None:
    """Inherit the children of children that end, so that none is left unseen."""
    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)


def prepare(folder: Path) -> None:
    """Make the folders beside the store."""
    for name in FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)


def run_input(folder: Path, chosen: Input) -> tuple[Ending, list[str]]:
    """Run one; how it ended, and all bounds that it broke."""
    before = tree_state(folder)
    ending, wrong = run_child(folder, chosen)
    after = tree_state(folder)
    for path in sorted(before.keys() | after.keys()):
        if path.partition("/")[0] in (*chosen.may_write, "stdout", "stderr"):
            continue
        if path.startswith("home/.cache") or path == "home":  # compiled code, of who may not write beside the program
            continue
        if chosen.own_changes and path.partition("/")[0] == "store":
            continue
        if before.get(path) != after.get(path):
            wrong.append(f"{path}: {_difference(before.get(path), after.get(path))}")
    if chosen.check is not None:
        wrong += chosen.check(ending)
    return ending, wrong


def run_child(folder: Path, chosen: Input) -> tuple[Ending, list[str]]:
    """Run one without a look at the folder."""
    bounds = chosen.bounds
    sys.stdout.flush()
    sys.stderr.flush()
    known = _children()
    pid = os.fork()
    if pid == 0:
        _be_child(folder, chosen)
    ended_in_time = _wait(pid, bounds.wall_seconds)
    wrong = [] if ended_in_time else [f"no end after {bounds.wall_seconds:.0f} s"]
    written = _written(pid)
    _, status, usage = os.wait4(pid, 0)
    wrong += _leftovers(known)
    code = os.waitstatus_to_exitcode(status)
    ending = Ending(
        max(code, 0), max(-code, 0), _read(folder / "stdout"), _read(folder / "stderr"),
        usage.ru_maxrss << 10, usage.ru_utime + usage.ru_stime, written,
    )  # fmt: skip
    return ending, wrong + broken_bounds(ending, bounds) if ended_in_time else wrong


def broken_bounds(ending: Ending, bounds: Bounds, exits: frozenset[int] = EXITS) -> list[str]:
    """What is wrong with how a command ended."""
    wrong = []
    said = ending.errors.decode("utf-8", "replace")
    if ending.signal:
        name = signal.Signals(ending.signal).name
        wrong.append(f"killed by {name}" + (": processor time" if ending.signal == signal.SIGXCPU else ""))
    elif ending.code not in exits:
        wrong.append(f"exit {ending.code}")
    if any(word in said for word in ("Traceback", "internal error", "Exception ignored", "Warning: ")):
        wrong.append("a traceback, an internal error or a warning of Python")
    if ending.memory_bytes > bounds.memory_bytes:
        wrong.append(f"{ending.memory_bytes // MIB} MiB of memory, not {bounds.memory_bytes // MIB}")
    if ending.cpu_seconds > bounds.cpu_seconds:
        wrong.append(f"{ending.cpu_seconds:.1f} s of a processor, not {bounds.cpu_seconds}")
    if ending.written_bytes > bounds.written_bytes:
        wrong.append(f"{ending.written_bytes} bytes written, not {bounds.written_bytes}")
    if wrong:
        wrong.append(f"said {said.strip()[-1500:]!r}")
    return wrong


def tree_state(folder: Path) -> dict[str, NodeState]:
    """All that is below a folder, by path; times of the folders in which results are written are left out."""
    states: dict[str, NodeState] = {}
    waiting = [(os.fspath(folder), "")]
    while waiting:
        path, name = waiting.pop()
        with os.scandir(path) as entries:
            for entry in entries:
                own = f"{name}{entry.name}"
                try:
                    states[own] = _node_state(entry.path)
                except OSError:  # gone meanwhile
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, f"{own}/"))
    return states


def json_of(ending: Ending) -> Any:
    """What a command said as JSON; None where that is none."""
    try:
        return json.loads(ending.output)
    except ValueError:
        return None


def _node_state(path: str) -> NodeState:
    known = os.lstat(path)
    digest = ""
    if stat.S_ISREG(known.st_mode):
        with suppress(OSError):
            content = Path(path).read_bytes() if known.st_size < 4 * MIB else known.st_blocks.to_bytes(8, "big")
            digest = hashlib.blake2b(content, digest_size=8).hexdigest()
    elif stat.S_ISLNK(known.st_mode):
        digest = os.readlink(path)  # noqa: PTH115 - many of them
    size = 0 if stat.S_ISDIR(known.st_mode) else known.st_size
    is_result = path.endswith(("/out", "/tmp"))  # noqa: S108 - no path of the machine
    return NodeState(known.st_mode, (known.st_uid, known.st_gid), size, 0 if is_result else known.st_mtime_ns, digest)


def _difference(before: NodeState | None, after: NodeState | None) -> str:
    if before is None or after is None:
        return "is gone" if after is None else "came"
    names = [name for name, old, new in zip(NodeState._fields, before, after, strict=True) if old != new]
    return f"another {', '.join(names)}"


def _be_child(folder: Path, chosen: Input) -> NoReturn:
    """Run the command and end; nothing of the parent's goes on here."""
    code = 70
    try:
        os.setsid()
        for number, name in ((1, "stdout"), (2, "stderr")):
            descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(descriptor, number)
            os.close(descriptor)
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
        os.close(nowhere)
        sys.stdout = TextIOWrapper(open(1, "wb", closefd=False), "utf-8", "backslashreplace")  # noqa: SIM115
        errors = open(2, "wb", closefd=False)  # noqa: SIM115
        sys.stderr = TextIOWrapper(errors, "utf-8", "backslashreplace", line_buffering=True)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - nobody sits there
        os.chdir(folder / "work")
        os.environ.update(TMPDIR=str(folder / "tmp"), HOME=str(folder / "home"))
        tempfile.tempdir = None
        limit_child(chosen.bounds)
        if chosen.setup is not None:
            chosen.setup()
        _watch_writes(folder)
        atexit.unregister(multiprocessing.util._exit_function)  # the parent's children are none of its own
        code = app.run([os.fspath(argument) for argument in chosen.arguments])
        atexit._run_exitfuncs()
        sys.stderr.flush()
    except BaseException as error:  # noqa: BLE001 - seen by the parent
        os.write(2, f"Traceback past the command line: {type(error).__name__}: {error}".encode())
    finally:
        os._exit(code)


def limit_child(bounds: Bounds) -> None:
    """Set what the kernel ends a process for; files have a limit so that no input fills the machine."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (bounds.cpu_seconds + 1, bounds.cpu_seconds + 5))
    resource.setrlimit(resource.RLIMIT_FSIZE, (bounds.written_bytes + MIB, resource.RLIM_INFINITY))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    address_space = max(8 * bounds.memory_bytes, 12 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (address_space, resource.RLIM_INFINITY))


def _watch_writes(folder: Path) -> None:
    """Say on standard error each change of a path that is not in the folder."""
    root = os.path.realpath(folder)
    # Where the directory for temporary files may not be written, Python takes the system's.
    spots = _SPOTS if os.access(folder / "tmp", os.W_OK) else (*_SPOTS, *_SYSTEM_TMP)

    def is_own(path: Any) -> bool:
        if isinstance(path, int) or path is None:
            return True
        text = os.fsdecode(path)
        if text.startswith(spots):
            return True
        # A name without a directory may be relative to an open one, which was opened below the folder.
        return not text.startswith("/") or os.path.realpath(Path(text).parent).startswith(root)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _mode, flags = arguments
            wrong = isinstance(flags, int) and flags & _WRITING and not is_own(path)
        elif event in _PATHS_OF:
            wrong = not all(is_own(path) for path in arguments[: _PATHS_OF[event]])
        else:
            return
        if wrong:
            os.write(2, f"Traceback of a write outside: {event} {arguments!r}\n".encode("utf-8", "backslashreplace"))

    sys.addaudithook(hook)


def _wait(pid: int, seconds: float) -> bool:
    """Wait for a child's end, without taking its status; whether it ended by itself."""
    deadline = time.monotonic() + seconds
    with suppress(AttributeError):
        descriptor = os.pidfd_open(pid)
        try:
            import select

            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                return True
        finally:
            os.close(descriptor)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    return False


def _written(pid: int) -> int:
    """Bytes that a child that has ended gave to write calls, its own children's included."""
    with suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/io").read_text("ascii")
        return int(text.partition("wchar:")[2].split()[0])
    return 0


def _children() -> frozenset[int]:
    """The processes that this one has started or inherited."""
    numbers: set[int] = set()
    with suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            numbers.update(int(number) for number in (task / "children").read_text("ascii").split())
    return frozenset(numbers)


def _leftovers(known: frozenset[int]) -> list[str]:
    """Processes that a child has left behind; they are ended. One that has ended meanwhile was on its way."""
    left = []
    for number in _children() - known:
        command = _command_of(number)
        with suppress(OSError):
            if os.waitpid(number, os.WNOHANG)[0] == 0:
                left.append(f"left the process {number}, {command}")
                os.kill(number, signal.SIGKILL)
                os.waitpid(number, 0)
    return left


def _command_of(number: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")[:200]
    return "?"


def _read(path: Path) -> bytes:
    with suppress(OSError):
        return path.read_bytes()
    return b""
