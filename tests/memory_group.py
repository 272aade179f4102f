"""Runs a command with a limit of memory that the operating system sets: a control group, as containers have it."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_ROOT = Path("/sys/fs/cgroup")
_CODE = """
import os, sys
open(sys.argv[1], "w").write(str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"""


def limited(limit: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `rmqtool` in a group that may hold so many bytes; the kernel kills what needs more (exit code -9)."""
    with limited_command(limit, *arguments) as command:
        environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TZ": "UTC"}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@contextmanager
def limited_command(limit: int, *arguments: object) -> Iterator[list[str]]:
    """What runs `rmqtool` in such a group; it must have ended when the context does."""
    with _group(limit) as group:
        start = [sys.executable, "-c", _CODE, str(group / "cgroup.procs"), sys.executable, "-m", "rmqtool"]
        yield [*start, *map(str, arguments)]


@contextmanager
def _group(limit: int) -> Iterator[Path]:
    is_second = "memory" in _text(_ROOT / "cgroup.subtree_control").split()
    parent, file = (_ROOT, "memory.max") if is_second else (_ROOT / "memory", "memory.limit_in_bytes")
    group = parent / f"rmqtool-test-{uuid.uuid4().hex}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no control group of memory can be made here: that needs root, and the controller")
    try:
        (group / file).write_text(str(limit))
        if is_second:
            (group / "memory.swap.max").write_text("0")
        yield group
    finally:
        group.rmdir()


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii")
    except OSError:
        return ""
