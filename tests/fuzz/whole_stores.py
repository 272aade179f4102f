"""Fuzzes verify with whole small stores: mutated, cut, missing, swapped and misnamed files, in memory or on the disk.

Whatever the bytes: verify ends, with findings or a clear error, says all of them as JSON, accounts for every byte, and
changes none.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import RmqtoolError
from rmqtool.findings.finding import Finding
from rmqtool.fixtures.recipe import make_store
from rmqtool.report.screens.verify_screen import findings_lines
from rmqtool.store.directory import Settings, survey
from rmqtool.store.view import StoreView, open_directory
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import Depth, VerifyOptions
from tests.engine.memory_view import MemoryView
from tests.fuzz.edits import NUMBERS, edit_bytes
from tests.fuzz.tiny_recipes import LOG_FILE_SIZE, TINY
from tests.store_state import assert_store_unchanged

VERSIONS: Final = ("4.9.7", "5.1.4", "5.5.0")
FINDINGS_MAX: Final = 5000
"""No store of this size has more to say: findings that lie together are one."""
ODD_NAMES: Final = ("..x", "x", "9" * 20, "9" * 40, "0" * 19, "0" * 20 + ".tmp", "\udcff", "\x1b[31m", "-1", "1e3")


@dataclass
class Tally:
    """What the stores came to: findings by id, and errors by class."""

    inputs: int = 0
    on_disk: int = 0
    findings: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.inputs += other.inputs
        self.on_disk += other.on_disk
        self.findings += other.findings
        self.errors += other.errors


@cache
def whole(name: str, version: str) -> dict[str, bytes]:
    """The files of a store before its edits."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        make_store(TINY[name], root, version)
        return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def mutated(seed: int) -> tuple[dict[str, bytes], str]:
    """Files of a store after one to four edits, and the version that wrote it."""
    chosen = random.Random(seed)
    version = chosen.choice(VERSIONS)
    name = chosen.choice([name for name, recipe in TINY.items() if recipe.fits(rules_for(version))])
    files = dict(whole(name, version))
    for _ in range(1 + int(chosen.random() ** 2 * 4)):
        _edit(chosen, files)
    return files, version


def check_store(seed: int) -> Tally:
    """Verify one mutated store.

    Raises:
        AssertionError: bytes are not accounted for or have changed, or there are findings without end.
        Exception: whatever verify should not have let through.
    """
    files, version = mutated(seed)
    chosen = random.Random(~seed)
    settings = Settings(commitlog_file_size=LOG_FILE_SIZE) if chosen.random() < 0.3 else None
    options = VerifyOptions(
        depth=chosen.choice((Depth.FULL,) * 8 + (Depth.RECORDS, Depth.STRUCTURE)),
        threads=1,
        slice_count=chosen.choice((1,) * 9 + (2,)),
        sample=chosen.choice((1.0,) * 9 + (0.5,)),
        broker_runs=chosen.random() < 0.1,
        compiled=chosen.random() < 0.5,
    )
    tally = Tally(1)
    if chosen.random() >= 0.01:
        _verify(MemoryView(files), version, settings, options, tally)
        return tally
    tally.on_disk = 1
    with tempfile.TemporaryDirectory() as folder:
        _write(files, Path(folder))
        with assert_store_unchanged(Path(folder)):
            _verify(open_directory(Path(folder)), version, settings, options, tally)
    return tally


def _verify(view: StoreView, version: str, settings: Settings | None, options: VerifyOptions, tally: Tally) -> None:
    found: list[Finding] = []
    try:
        store = survey(view, settings)
        summary = verify_store(store, rules_for(version), options, found.append)
    except RmqtoolError as error:
        tally.errors[type(error).__name__] += 1
        return
    assert len(found) <= FINDINGS_MAX
    assert sum(summary.findings.values()) == len(found)
    rows = [json.loads(json.dumps(each.as_json())) for each in found]
    judged = {"verdict": "inconsistent", "headline": "INCONSISTENT", "needs_decision": False}
    step = {"next_step": {"command": None, "reason": ""}}
    shown = findings_lines(rows, summary.as_json() | judged | step, 80, color=False, all_rows=True)
    assert all(line.isprintable() for line in shown), "what a file says reaches the terminal"
    tally.findings.update(summary.findings)


def _edit(chosen: random.Random, files: dict[str, bytes]) -> None:
    """One edit: mostly in a file's bytes, else of a file as a whole."""
    kinds = sorted({path.partition("/")[0] for path in files})
    kind = chosen.choice(kinds)
    path = chosen.choice([path for path in files if path.partition("/")[0] == kind])
    raw = bytearray(files[path])
    roll = chosen.random()
    if roll < 0.8:
        # Where the data is, not in the zeros behind it.
        edit_bytes(chosen, raw, 0, max(len(raw.rstrip(b"\0")), min(40, len(raw))))
    elif roll < 0.84:
        del raw[int(chosen.random() * (len(raw) + 1)) :]
    elif roll < 0.87:
        raw += bytes(chosen.choice(NUMBERS)) if chosen.random() < 0.5 else chosen.randbytes(chosen.choice(NUMBERS[:12]))
    elif roll < 0.9:
        raw[:] = chosen.choice((b"", bytes(len(raw)), chosen.randbytes(min(2000, len(raw)))))
    elif roll < 0.93:
        raw[:] = files[chosen.choice(list(files))]
    elif roll < 0.96 and len(files) > 1:
        del files[path]
        return
    else:
        folder = path.rpartition("/")[0]
        named = chosen.choice((*ODD_NAMES, f"{chosen.choice(NUMBERS) * 20:020d}"))
        if folder and not any(other.startswith(f"{folder}/{named}/") for other in files):
            files[f"{folder}/{named}"] = bytes(raw) if chosen.random() < 0.5 else files.pop(path)
        return
    files[path] = bytes(raw)


def _write(files: dict[str, bytes], root: Path) -> None:
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
