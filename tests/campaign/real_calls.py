"""SIGKILL in front of a system call of a real process, with strace: the whole command line, nothing exchanged in it."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from tests.campaign.cases import Case
from tests.campaign.guard import Guard
from tests.campaign.tally import Tally
from tests.campaign.trees import capture, put_back

ROOT: Final = Path(__file__).resolve().parents[2]
CALLS: Final = (
    "mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,rmdir,link,linkat,pwrite64,write,ftruncate,fsync,"
    "fdatasync,utimensat,chmod,fchmod,fchmodat,fchown,lchown,chown,fchownat,openat,fcntl,ioctl"
)
PROGRAM: Final = "import sys; from rmqtool.commands.app import main; sys.argv[0] = 'rmqtool'; main()"


def can_trace() -> bool:
    """Whether strace is there and may trace."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-qq", "true"], check=False, capture_output=True, timeout=60).returncode == 0


def kill_real_processes(case: Case, folder: Path, count: int, seed: int) -> Tally:
    """Half of the processes repair, half undo; each dies in front of one of its calls that touches the store."""
    chosen = random.Random(seed)
    tally = Tally()
    guard = Guard(case, folder)
    traces = folder.with_name(f"{folder.name}-traces")
    traces.mkdir(exist_ok=True)
    for is_undo in (False, True):
        start = guard.repaired if is_undo else guard.original
        put_back(start, folder)
        calls = _calls(_traced(case, folder, traces, is_undo=is_undo), folder)
        assert len(calls) > 20, "too few calls were traced"
        for call, number in chosen.sample(calls, min(len(calls), count // 2)):
            put_back(start, folder)
            _traced(case, folder, traces, is_undo=is_undo, inject=f"{call}:signal=KILL:when={number}")
            state = capture(folder)
            where = f"{'undo of ' if is_undo else ''}{case.name}, killed at {call} {number}"
            wrong = guard.unguarded(state) + guard.not_undone(state) + guard.not_finished(state)
            tally.check(f"killed at a system call of {'undo' if is_undo else case.command}", wrong, where)
    shutil.rmtree(traces)
    return tally


def _traced(case: Case, folder: Path, traces: Path, *, is_undo: bool, inject: str = "") -> Path:
    """Run the command under strace; where its calls are written down."""
    trace = traces / "trace"
    line = case.undo_line(folder) if is_undo else case.repair_line(folder)
    command = ["strace", "-f", "-y", "-qq", "-o", str(trace), "-e", f"trace={CALLS}"]
    command += ["-e", f"inject={inject}"] if inject else []
    subprocess.run(
        [*command, sys.executable, "-B", "-c", PROGRAM, *map(str, line)],
        cwd=ROOT, check=False, capture_output=True, timeout=300,
    )  # fmt: skip
    return trace


def _calls(trace: Path, folder: Path) -> list[tuple[str, int]]:
    """Every call from the first that touches the case's folder on: its name, and how many of that name came before."""
    seen: Counter[str] = Counter()
    calls: list[tuple[str, int]] = []
    for line in trace.read_text("utf-8", "replace").splitlines():
        match = re.match(r"\d+ +(\w+)\(", line)
        if match is None:
            continue
        seen[match[1]] += 1
        if str(folder) in line:
            calls.append((match[1], seen[match[1]]))
    return calls
