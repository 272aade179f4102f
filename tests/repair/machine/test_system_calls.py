"""The same with real system calls: strace kills, or fails, the nth call of a kind that changes a file system."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.machine.undo import is_unsettled, undo_latest
from tests.repair.small_stores import PLANS, files_of, small_store

ROOT = Path(__file__).resolve().parents[3]
CALLS = (
    "mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,rmdir,link,linkat,pwrite64,write,ftruncate,fsync,"
    "utimensat,chmod,fchmod,fchmodat,chown,fchown,lchown,fchownat"
)
PROGRAM = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from rmqtool.repair.machine.apply import apply_plan
    from rmqtool.repair.machine.store_paths import StorePaths
    from tests.repair.small_stores import PLANS

    places = StorePaths(Path(sys.argv[1]))
    plan = PLANS[sys.argv[2]](places, places.root.parent)
    apply_plan(plan, places)
    """
)


def traced(folder: Path, name: str, inject: str | None = None) -> StorePaths:
    """A store on which a plan was applied while strace got in the way."""
    places = StorePaths(small_store(folder / "store"))
    command = ["strace", "-f", "-qq", "-o", str(folder / "trace"), "-e", f"trace={CALLS}"]
    command += ["-e", f"inject={inject}"] if inject else []
    subprocess.run(
        [*command, sys.executable, "-B", "-c", PROGRAM, str(places.root), name],
        cwd=ROOT, check=False, capture_output=True, timeout=600,
    )  # fmt: skip
    return places


def calls_in(folder: Path) -> list[tuple[str, int]]:
    """Every call that was traced: its name, and how many of that name there were by then; strace counts each kind."""
    seen: Counter[str] = Counter()
    found: list[tuple[str, int]] = []
    for line in (folder / "trace").read_text("utf-8", "replace").splitlines():
        match = re.match(r"\d+ +(\w+)\(", line)
        if match is not None:
            seen[match[1]] += 1
            found.append((match[1], seen[match[1]]))
    return found


def works() -> bool:
    if shutil.which("strace") is None:
        return False
    ran = subprocess.run(["strace", "-qq", "true"], check=False, capture_output=True, timeout=600)
    return ran.returncode == 0


@pytest.mark.parametrize("inject", ["signal=KILL", "error=ENOSPC", "error=EIO"])
@pytest.mark.parametrize(
    ("name", "every"),
    [
        pytest.param("recovery", 25, id="recovery-some"),
        *(pytest.param(name, 1, id=f"{name}-every", marks=pytest.mark.slow) for name in PLANS),
    ],
)
def test_every_call_may_be_the_last_one(tmp_path: Path, name: str, every: int, inject: str) -> None:
    if not works():
        pytest.skip("needs strace, and the right to trace")
    (tmp_path / "original").mkdir()
    original = _known(StorePaths(small_store(tmp_path / "original" / "store")))
    (tmp_path / "whole").mkdir()
    traced(tmp_path / "whole", name)
    calls = calls_in(tmp_path / "whole")
    assert len(calls) > 40
    assert {"pwrite64", "fsync", "renameat", "unlinkat", "linkat"} <= {call for call, _ in calls}
    for number, (call, count) in list(enumerate(calls))[::every]:
        folder = tmp_path / str(number)
        folder.mkdir()
        places = traced(folder, name, f"{call}:{inject}:when={count}")
        undo_latest(places)
        assert not is_unsettled(places)
        assert _known(places) == original, (call, count)


def _known(places: StorePaths) -> dict[str, tuple[int, int, int, str]]:
    """Files without the tool's own: mode, size, time, content."""
    return {
        path: (state.mode, state.size, state.mtime_ns, state.digest)
        for path, state in files_of(places.root).items()
        if not path.startswith(".rmqtool")
    }
