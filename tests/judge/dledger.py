"""Random stores of DLedger and random faults before real brokers: `python -m tests.judge --dledger 200 --seed 7`.

A case writes a group of one member, with or without a plain log in front of it, stopped or killed; up to two faults
follow. What rmqtool says has to agree with the broker that wrote it, and no repair takes away what that serves.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.broker.broker import Judge, OpenStore
from tests.broker.files import copy_store
from tests.broker.test_dledger_layouts import SIZES, Served, group, put_all, served
from tests.commands.transcripts import rmqtool
from tests.judge.case import Disagreement
from tests.store_state import store_state

VERSIONS = ("4.9.7", "5.3.3", "5.4.0")
LEFT_BY_A_KILL = {
    "store.abort-present", "index.would-be-dropped", "dledger.dropped-at-start", "consumequeue.behind-log",
    "index.missing-key", "index.missing-file", "commitlog.queue-offset-repeated",
}  # fmt: skip
WITHOUT_START = {"will-not-start", "log-missing"}
"""Verdicts where no broker starts; one on a lost log comes first."""
DATA, INDEX = "dledger-n0/data", "dledger-n0/index"
INTERNAL_ERROR = 1


@dataclass
class GroupCase:
    """A case, named dledger-SEED-NUMBER; all of it follows from the name, but for the broker's clock."""

    name: str
    version: str
    folder: Path
    store: Path = Path()
    faults: list[str] = field(default_factory=list)
    disagreements: list[Disagreement] = field(default_factory=list)

    def differs(self, signature: str, text: str) -> None:
        self.disagreements.append(Disagreement(signature, text))

    def ask(self, *arguments: object) -> tuple[int, dict[str, Any]]:
        """A command's exit code and answer; an internal error is a disagreement."""
        ran = rmqtool(*arguments, "--format", "json", "--broker-version", self.version)
        if ran.code == INTERNAL_ERROR:
            self.differs(f"{arguments[0]}: internal error", ran.err)
        return ran.code, json.loads(ran.out) if ran.out else {}


def run_group_case(seed: int, number: int, judge_of: Callable[[str], Judge], scratch: Path) -> GroupCase:
    """Write, damage, ask and compare."""
    draw = random.Random(f"dledger {seed} {number}")
    case = GroupCase(f"dledger-{seed}-{number}", draw.choice(VERSIONS), scratch / f"dledger-{seed}-{number}")
    case.folder.mkdir()
    judge = judge_of(case.version)
    written = _written(case, draw, judge)
    case.store = copy_store(written, case.folder / "store")
    for _ in range(draw.choice((0, 1, 1, 2))):
        if (fault := draw.choice(FAULTS)(case.store, draw)) is not None:
            case.faults.append(fault)
    whole = served(judge, written, group())
    now = served(judge, case.store, group()) if case.faults else whole
    assert whole, case.name
    _check_verdict(case, whole, now)
    if now:
        _check_converted(case, judge, now)
        _check_rebuilt(case, judge, now)
    shutil.rmtree(case.folder)
    return case


def _written(case: GroupCase, draw: random.Random, judge: Judge) -> Path:
    path = case.folder / "written"
    if draw.random() < 0.5:  # a plain log, before DLedger is turned on
        with judge.open(path, SIZES) as store:
            _put(store, draw)
    for _ in range(draw.choice((1, 1, 2))):
        store = judge.open(path, group())  # an abandoned broker keeps its port for a while
        _put(store, draw)
        if draw.random() < 0.5:
            store.shutdown()
        else:
            killed = copy_store(path, case.folder / f"killed-{time.monotonic_ns()}")
            store.abandon()
            path = killed
    return path


def _put(store: OpenStore, draw: random.Random) -> None:
    sent = [
        {
            "topic": draw.choice(("T", "U")), "queueId": draw.randrange(2), "body": b"x" * draw.randrange(1, 900),
            "properties": {"KEYS": f"k{number}"},
        }
        for number in range(draw.randrange(5, 160))
    ]  # fmt: skip
    put_all(store, sent)


Fault = Callable[[Path, random.Random], str | None]


def _a_file(store: Path, folder: str, draw: random.Random) -> Path | None:
    files = sorted(file for file in (store / folder).rglob("*") if file.is_file())
    return draw.choice(files) if files else None


def _gone(folder: str) -> Fault:
    def fault(store: Path, draw: random.Random) -> str | None:
        if (file := _a_file(store, folder, draw)) is None:
            return None
        file.unlink()
        return f"{file.relative_to(store)} gone"

    return fault


def _cut(folder: str) -> Fault:
    def fault(store: Path, draw: random.Random) -> str | None:
        if (file := _a_file(store, folder, draw)) is None:
            return None
        os.truncate(file, size := draw.randrange(file.stat().st_size + 1))
        return f"{file.relative_to(store)} cut to {size}"

    return fault


def _written_over(folder: str, length: int, content: Callable[[random.Random, int], bytes]) -> Fault:
    def fault(store: Path, draw: random.Random) -> str | None:
        file = _a_file(store, folder, draw)
        used = len(file.read_bytes().rstrip(b"\0")) if file is not None else 0
        if file is None or not used:
            return None
        at = draw.randrange(used)
        with file.open("r+b") as target:
            target.seek(at)
            target.write(content(draw, length)[: file.stat().st_size - at])
        return f"{file.relative_to(store)} {length} bytes at {at}"

    return fault


def _zeros(_: random.Random, length: int) -> bytes:
    return bytes(length)


FAULTS: tuple[Fault, ...] = (
    *(_gone(folder) for folder in (DATA, INDEX, "consumequeue", "index", "commitlog")),
    *(_cut(folder) for folder in (DATA, INDEX, "consumequeue")),
    *(_written_over(DATA, length, random.Random.randbytes) for length in (1, 8, 512)),
    *(_written_over(folder, 300, _zeros) for folder in (DATA, INDEX, "consumequeue", "commitlog")),
)


def _check_verdict(case: GroupCase, whole: Served, now: Served | None) -> None:
    code, answer = case.ask("verify", case.store)
    above = {one["id"]: one.get("count") for one in answer.get("findings", ()) if one["severity"] != "note"}
    verdict = answer.get("summary", {}).get("verdict")
    if verdict not in WITHOUT_START if now is None else verdict == "will-not-start":
        case.differs("verify: starts or not", f"{verdict}, the broker {'does not start' if now is None else 'starts'}")
    if not case.faults and not above.keys() <= (LEFT_BY_A_KILL if "store.abort-present" in above else set()):
        case.differs("verify: a healthy store", str(above))
    lost = len(set(whole.values()) - set((now or {}).values()))
    if lost and code == 0:
        case.differs("verify: OK though messages are not served", f"{lost} of {len(whole)}")
    code, answer = case.ask("forecast", case.store)
    if (now is None or lost) and code == 0:
        case.differs(
            "forecast: OK though messages are not served", f"{lost} of {len(whole)}, starts: {now is not None}"
        )


def _check_converted(case: GroupCase, judge: Judge, now: Served) -> None:
    plain = case.folder / "plain"
    code, _ = case.ask("convert", case.store, "--from-dledger", "--output", plain, "--yes")
    if code == 0:
        after = served(judge, plain, SIZES) or {}
        if gone := now.keys() - after.keys():
            case.differs("convert: below the floor", f"{len(gone)} of {len(now)}: {sorted(gone)[:5]}")


def _check_rebuilt(case: GroupCase, judge: Judge, now: Served) -> None:
    before = store_state(case.store)
    code, _ = case.ask("rebuild", case.store, "--yes")
    after = served(judge, case.store, group()) or {}
    if gone := {place for place, at in now.items() if after.get(place) != at}:
        case.differs("rebuild: below the floor", f"exit {code}, {len(gone)} of {len(now)}: {sorted(gone)[:5]}")
    if (case.store / ".rmqtool").exists():
        undone = rmqtool("undo", case.store, "--yes").code
        shutil.rmtree(case.store / ".rmqtool", ignore_errors=True)
        if undone != 0 or store_state(case.store) != before:
            case.differs("undo is not exact", f"exit {undone}")
