"""Runs batches of inputs, each in a folder of its own, and counts how they ended."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import random
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import rmqtool
from rmqtool.commands import app
from rmqtool.commands.command_list import COMMANDS
from rmqtool.pipeline import stores
from tests.campaign.command import run
from tests.campaign.doors.bounds import MIB, Input, prepare, run_input
from tests.campaign.doors.kinds import KINDS
from tests.campaign.doors.stores import MEMORY, tiny, write_files

_LATE: Final = ("encodings.idna", "importlib.readers", "multiprocessing.pool", "multiprocessing.popen_fork",
         "cmath", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet")  # fmt: skip
"""Modules of Python that are imported late; a user who may not read where Python lies has to find them imported."""
_WITHOUT: Final = ("rmqtool.pipeline", "rmqtool.__main__", "rmqtool.fixtures.pytest_plugin", "rmqtool.browse")


@dataclass
class DoorTally:
    """How inputs ended, the most that one took, and a line for each that broke a bound."""

    inputs: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    memory_bytes: int = 0
    cpu_seconds: float = 0.0
    written_bytes: int = 0
    all_cpu_seconds: float = 0.0
    failures: list[str] = field(default_factory=list)

    def add(self, other: DoorTally) -> None:
        self.inputs += other.inputs
        self.ends += other.ends
        self.memory_bytes = max(self.memory_bytes, other.memory_bytes)
        self.cpu_seconds = max(self.cpu_seconds, other.cpu_seconds)
        self.written_bytes = max(self.written_bytes, other.written_bytes)
        self.all_cpu_seconds += other.all_cpu_seconds
        self.failures += other.failures

    def line(self) -> str:
        """For a person."""
        ends = ", ".join(f"exit {code} {count}" for code, count in sorted(self.ends.items()))
        return (
            f"{self.inputs} inputs, {len(self.failures)} failures; {ends}; at most {self.memory_bytes // MIB} MiB, "
            f"{self.cpu_seconds:.1f} s of a processor, {self.written_bytes} bytes written; "
            f"{self.all_cpu_seconds:.0f} s of a processor in all"
        )

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "ends": dict(self.ends)}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> DoorTally:
        known = {name: content[name] for name in vars(cls()) if name in content}
        return cls(**{**known, "ends": Counter(content["ends"])})


@dataclass(frozen=True)
class Batch:
    """Inputs of a kind, by their numbers."""

    kind: str
    seed: int
    begin: int
    end: int

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.seed}:{self.begin}:{self.end}"


def batches(kinds: Sequence[str], seed: int, count: int, size: int) -> Iterator[Batch]:
    """All inputs, kinds after each other, by their shares."""
    whole = sum(KINDS[kind].share for kind in kinds)
    for kind in kinds:
        share = -(-count * KINDS[kind].share // whole)
        for begin in range(0, share, size):
            yield Batch(kind, seed, begin, min(share, begin + size))


def warm() -> None:
    """Import all commands, and compile what reads records, once for all children."""
    for name in COMMANDS:
        app.load(name)
    stores.LOG_BYTES_MAX = 1 << 80  # type: ignore[misc] - Spark is no part of this campaign
    for name in ("fastavro", "pyarrow.fs", "zstandard", "google.protobuf.descriptor_pool", *_LATE):
        importlib.import_module(name)
    for module in pkgutil.walk_packages(rmqtool.__path__, "rmqtool."):
        if not module.name.startswith(_WITHOUT):
            importlib.import_module(module.name)

    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        store = Path(name) / "store"
        write_files(tiny(), store)
        for line in ("info", "verify --threads 1", "forecast", "dump --format jsonl", "stats", "salvage --dry-run"):
            command, *options = line.split()
            run(command, store, *options)
    gc.collect()
    gc.freeze()


def run_batch(batch: Batch) -> DoorTally:
    """Run all inputs of a batch."""
    tally = DoorTally()
    for number in range(batch.begin, batch.end):
        with _folder() as folder:
            try:
                _run_one(batch.kind, batch.seed, number, folder, tally)
            except Exception as error:  # noqa: BLE001 - else one input ends the whole run
                tally.failures.append(f"--only {batch.kind}:{number} --seed {batch.seed} broke off: {error!r}")
    return tally


def keep_input(kind: str, seed: int, number: int, *, verbose: bool = False) -> int:
    """Run one input, say what it was and how it ended, and keep its folder."""
    folder = Path(tempfile.mkdtemp(prefix=f"{kind}-{number}-"))
    tally = DoorTally()
    chosen = _run_one(kind, seed, number, folder, tally, *(("--verbose",) if verbose else ()))
    command = " ".join(shlex.quote(os.fspath(word)) for word in chosen.arguments)
    sys.stdout.write(f"cd {folder}/work && rmqtool {command}\n{tally.line()}\n")
    sys.stdout.writelines(f"FAILED {line}\n" for line in tally.failures)
    sys.stdout.write((folder / "stderr").read_text("utf-8", "replace")[-3000:])
    return 1 if tally.failures else 0


def _run_one(kind: str, seed: int, number: int, folder: Path, tally: DoorTally, *options: str) -> Input:
    prepare(folder)
    with _deep_recursion():
        chosen = KINDS[kind].make(random.Random(f"{kind} {seed} {number}"), folder)
    chosen.arguments = [*options, *chosen.arguments]
    ending, wrong = run_input(folder, chosen)
    tally.inputs += 1
    tally.ends[str(ending.code) if not ending.signal else f"signal {ending.signal}"] += 1
    tally.memory_bytes = max(tally.memory_bytes, ending.memory_bytes)
    tally.cpu_seconds = max(tally.cpu_seconds, ending.cpu_seconds)
    tally.written_bytes = max(tally.written_bytes, ending.written_bytes)
    tally.all_cpu_seconds += ending.cpu_seconds
    if wrong:
        command = " ".join(shlex.quote(os.fspath(word)) for word in chosen.arguments)
        tally.failures.append(f"--only {kind}:{number} --seed {seed} [{command[:300]}] {'; '.join(wrong[:6])}"[:3000])
    return chosen


@contextmanager
def _deep_recursion() -> Iterator[None]:
    """For documents of any depth, which are edited and written by recursions; a command has the usual limit."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


@contextmanager
def _folder() -> Iterator[Path]:
    name = tempfile.mkdtemp(prefix="door-", dir=MEMORY)
    Path(name).chmod(0o755)  # another user runs some of the commands
    try:
        yield Path(name)
    finally:
        shutil.rmtree(name, ignore_errors=True)
        if os.path.lexists(name):
            _remove_deep(name)


def _remove_deep(name: str) -> None:
    """What lies deeper than a path may be long, or in directories that were closed."""
    import subprocess

    subprocess.run(["rm", "-rf", "--", name], check=False)
