"""The processes that this one started, and those that they started."""

from __future__ import annotations

import os
from pathlib import Path


def own_processes() -> list[str]:
    """Pids of all processes below this one, itself included, as names in `/proc`."""
    children: dict[str, list[str]] = {}
    for pid in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 - names only
        try:
            parent = Path("/proc", pid, "stat").read_text("ascii", "replace").rpartition(")")[2].split()[1]
        except OSError:  # it ended meanwhile
            continue
        children.setdefault(parent, []).append(pid)
    pids = [str(os.getpid())]
    for pid in pids:
        pids += children.get(pid, [])
    return pids
