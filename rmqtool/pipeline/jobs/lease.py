"""Lets one run at a time write into the target of an export: a file in the target says who writes, and since when.

A run creates a file with a name of its own and then lists the others. It has the lease if there is no other; of two
that see each other, the older one waits and the younger one withdraws. So of two runs at least one sees the other,
whatever the file system is, and a file is removed by its name: no run removes the lease of a run that began later.

A lease whose run has ended is removed by the next run, if both were on the same machine, which alone can tell. Else a
person breaks it.
"""

from __future__ import annotations

import getpass
import json
import os
import platform
import random
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rmqtool.errors import RefusedError
from rmqtool.store.probe_lock import started_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqtool.pipeline.jobs.target_files import TargetFiles

WAIT_S: Final = 5.0
"""Waiting time for another run, which may be about to withdraw, or whose Java is about to end."""
_PAUSE_S: Final = 0.3
_SAME_START_S: Final = 1.0


@dataclass(frozen=True)
class Lease:
    """The lease of this run.

    Attributes:
        folder: of the target, where leases are.
        id: also names what else belongs to this run alone.
    """

    files: TargetFiles
    folder: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def take(cls, files: TargetFiles, folder: str, session: SparkSession | None) -> Lease:
        """Wait until no other run writes into the target.

        Raises:
            RefusedError: another run has the lease.
            WriteError: the target cannot be written.
        """
        lease = cls(files, folder)
        holder = {"since": time.time(), **_holder(session)}
        try:
            oldest = lease._wait(holder)
        except BaseException:
            with suppress(Exception):  # what is going on is more important
                lease.release()
            raise
        if oldest is not None:
            lease.release()
            began = datetime.fromtimestamp(float(oldest["since"]), UTC)
            processes = oldest.get("processes")
            pids = ", ".join(map(str, processes)) if isinstance(processes, dict) else "unknown"
            raise RefusedError(
                f"{folder}: another export has written to this target since "
                f"{began.isoformat(timespec='seconds').replace('+00:00', 'Z')}: {oldest.get('user', 'unknown')} on "
                f"{oldest.get('host', 'unknown')}, processes {pids}. Wait until it has ended. If it ended without "
                f"removing its lease, run this command again with --break-lease {oldest['id']}"
            )
        return lease

    def check(self) -> None:
        """Demand that this run still has the lease.

        Raises:
            RefusedError: somebody broke it.
        """
        if not self.files.exists(self._place):
            raise RefusedError(f"{self.folder}: the lease of this export was broken while it ran; run it again")

    def release(self, files: TargetFiles | None = None) -> None:
        """Let other runs write into the target.

        Args:
            files: of the same target, if those of the session are gone.
        """
        at = files or self.files
        at.remove(self._place)
        at.remove_if_empty(self.folder)

    def _wait(self, holder: Mapping[str, Any]) -> dict[str, Any] | None:
        """Wait for the lease; return its holder at the end of the time, None where this run has it."""
        deadline = time.monotonic() + WAIT_S
        is_claimed = False
        while True:
            if not is_claimed:
                is_claimed = self.files.create(self._place, json.dumps(holder, indent=2) + "\n")
            others = self._others()
            if not others:
                return None
            oldest = min(others, key=lambda one: (one["since"], one["id"]))
            if time.monotonic() > deadline:
                return oldest
            if (oldest["since"], oldest["id"]) < (holder["since"], self.id):
                self.release()
                is_claimed = False
            time.sleep(random.uniform(_PAUSE_S / 2, _PAUSE_S))  # noqa: S311 - no secret depends on it

    @property
    def _place(self) -> str:
        return f"{self.folder}/{self.id}.json"

    def _others(self) -> list[dict[str, Any]]:
        """Leases of other runs; those of runs that have ended on this machine are removed."""
        others = []
        for name in self.files.sizes(self.folder):
            identity, _, kind = name.rpartition(".")
            if kind != "json" or identity == self.id:
                continue
            text = self.files.read(f"{self.folder}/{name}")
            if text is None:
                continue  # it was released
            other = {"since": 0.0, **_parsed(text), "id": identity}
            if _has_ended(other):
                self.files.remove(f"{self.folder}/{name}")
            else:
                others.append(other)
        return others


def break_lease(files: TargetFiles, folder: str, identity: str) -> None:
    """Remove the lease of another run, which a person says has ended; a run that has no lease does nothing more.

    Raises:
        RefusedError: there is no such lease.
    """
    names = files.sizes(folder)
    if f"{identity}.json" not in names:
        there = ", ".join(sorted(name.removesuffix(".json") for name in names)) or "none"
        raise RefusedError(f"--break-lease {identity}: no such lease in {folder}; leases there: {there}")
    files.remove(f"{folder}/{identity}.json")


def _holder(session: SparkSession | None) -> dict[str, Any]:
    """Identity of this run: its machine, and its processes with the times of their start."""
    pids = [os.getpid()]
    if session is not None:
        java: Any = session._jvm  # noqa: SLF001
        pids.append(int(java.java.lang.ProcessHandle.current().pid()))
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    processes = {str(pid): started_at(pid) for pid in pids}
    return {"user": user, "host": platform.node(), "machine": _machine(), "processes": processes}


def _machine() -> str | None:
    """Identity of the running system and the processes that are seen from here; None if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _has_ended(other: Mapping[str, Any]) -> bool:
    """True if all processes of a run have certainly ended; a process with another start is another one."""
    processes = other.get("processes")
    machine = _machine()
    if not isinstance(processes, dict) or not processes or not machine or other.get("machine") != machine:
        return False
    for pid, started in processes.items():
        if not str(pid).isdecimal() or not isinstance(started, int | float):
            return False  # nobody can tell
        now = started_at(int(pid))
        if now is not None and abs(now - started) < _SAME_START_S:
            return False
    return True


def _parsed(text: str) -> dict[str, Any]:
    """Content of a lease; one that is not whole is empty, and still held."""
    with suppress(ValueError, TypeError):
        parsed = json.loads(text)
        return {**parsed, "since": float(parsed["since"])} if isinstance(parsed, dict) else {}
    return {}
