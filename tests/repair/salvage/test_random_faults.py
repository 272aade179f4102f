"""Faults in queues, in the log and in records' heads at once: what is intact in the log is never changed.

Intact is a record of the healthy store whose bytes nobody touched.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.formats.commitlog import MESSAGE_V1
from rmqtool.repair.derived.result import BuildOptions
from rmqtool.repair.machine.plan import view_over
from rmqtool.repair.recover.plan import RecoverOptions, plan_recover
from rmqtool.store.directory import Store, survey
from tests.fuzz.tiny_recipes import TINY
from tests.repair.salvage.standing import Content, astray, content_of, gone
from tests.repair.salvage.trial import Files, Healthy, flip, healthy, one_damage, overwrite, salvaged
from tests.repair.salvage.unit_faults import unit_fault
from tests.verify.stores import above_note, verified

FIELDS = {"queue_id": 4, "queue_offset": 8, "sys_flag": 4, "prepared_transaction_offset": 8, "store_timestamp_ms": 8}
Fault = Callable[[random.Random, Healthy, Files], str]


def _head_fault(dice: random.Random, store: Healthy, files: Files) -> str:
    """A flipped bit, or another number, in a field that no checksum covers."""
    at = dice.choice(sorted(store.content.records))
    path, position = store.file_of(at)
    topics = [each.topic for each in store.content.standings if each.physical_offset == at]
    field = dice.choice([*FIELDS, "topic", "topic", "queue_offset", "queue_id"])
    if field == "topic":
        start = store.content.records[at].rfind(topics[0].encode()) if topics else -1
        length = len(topics[0].encode()) if topics else 0
    else:
        start, length = MESSAGE_V1.position(field), FIELDS[field]
    if start < 0 or position + start + length > len(files.get(path, b"")):
        return "none"
    if field == "topic" or dice.random() < 0.5:
        flip(files, path, 8 * (position + start) + dice.randrange(8 * length))
    else:
        raw = bytearray(files[path])
        number = int.from_bytes(raw[position + start : position + start + length], "big") + dice.choice((-2, -1, 1, 4))
        raw[position + start : position + start + length] = (number % (1 << 8 * length)).to_bytes(length, "big")
        files[path] = bytes(raw)
    return f"head: {field} at {at}"


def _queue_file_fault(dice: random.Random, store: Healthy, files: Files) -> str:
    """A queue's file missing, zero or with noise in it, or a whole queue missing."""
    paths = [path for path in files if path.startswith("consumequeue/")]
    if not paths:
        return "none"
    path, kind = dice.choice(paths), dice.choice(("missing", "zero", "noise", "no queue"))
    if kind == "zero":
        files[path] = bytes(len(files[path]))
    elif kind == "noise":
        overwrite(files, path, dice.randrange(len(files[path])), dice.randrange(1, 60), dice)
    else:
        directory = path.rpartition("/")[0] + "/"
        for other in paths:
            if other == path or (kind == "no queue" and other.startswith(directory)):
                del files[other]
    return f"{kind}: {path}"


FAULTS: tuple[tuple[Fault, int], ...] = ((unit_fault, 5), (one_damage, 2), (_head_fault, 3), (_queue_file_fault, 1))


def _damaged(seed: int) -> tuple[Healthy, Files, list[str]]:
    dice = random.Random(seed)
    store = healthy(dice.choice(sorted(TINY)), "5.5.0")
    files = dict(store.files)
    chosen = dice.choices([fault for fault, _ in FAULTS], [weight for _, weight in FAULTS], k=dice.choice((1, 2, 3, 4)))
    return store, files, [fault(dice, store, files) for fault in chosen]


def _recovered(store: Store, version: str, folder: Path) -> Content | None:
    """The log as `recover` would leave it; None where it leaves the store alone, or asks for consent to a loss."""
    rules = rules_for(version)
    staging = Path(tempfile.mkdtemp(dir=folder))
    options = RecoverOptions(BuildOptions(compiled=False), full=True, threads=1)
    recovery = plan_recover(store, rules, staging, options)
    if not recovery.steps or recovery.loss.messages:
        return None
    view = view_over(store.view, recovery.steps)
    return content_of(survey(view, replace(store.settings, commitlog_file_size=store.commitlog_file_size)), rules)


def _check(seed: int, folder: Path) -> None:
    store, files, faults = _damaged(seed)
    if "commitlog.stale-tail" in above_note(verified(store.store(files), store.version)[1]):
        return  # a wild store time makes what follows damage look like records of an older log
    intact = store.without_silenced(files, store.untouched(files))
    found = salvaged(store.store(files), store.version, folder)
    if found.made.steps:
        assert gone(intact, found.content) == [], (seed, faults)
        if not any(fault.startswith("head") for fault in faults):
            assert astray(intact, found.after) == [], (seed, faults)
    recovered = _recovered(store.store(files), store.version, folder)
    assert recovered is None or gone(intact, recovered) == [], (seed, faults)


@pytest.mark.parametrize("seed", [*range(40), 46, 127, 201, 1797, 1823, 1848, 2006, 2101, 2309, 2924, 3120, 5018])
def test_what_is_intact_is_never_changed(tmp_path: Path, seed: int) -> None:
    _check(seed, tmp_path)


@pytest.mark.slow
def test_what_is_intact_is_never_changed_in_many_stores(tmp_path: Path) -> None:
    for seed in range(1000, 3000):
        _check(seed, tmp_path)
