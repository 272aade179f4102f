"""Random stores of DLedger and random faults before real brokers: `python -m tests.judge --dledger 200 --seed 7`.

A case writes the store of a group's member; up to two faults follow. What rmqtool says has to agree with the broker of
the asked version, and no repair takes away what that serves.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.judge.bases import Base, Truth
from tests.judge.groups.answers import Served, served_of
from tests.judge.groups.case import GroupCase
from tests.judge.groups.checks import check_group
from tests.judge.groups.entries import HEADER, entries_of, is_queued, plain_records
from tests.judge.groups.faults import CHANGES, DLEDGER, GroupTarget, intact_of, is_expired, judged_bytes
from tests.judge.groups.plan import GroupPlan, group_plan
from tests.judge.groups.writing import Written, settings_of, write_group
from tests.judge.target import Fault

MOST_TRIES = 20


def run_group_case(seed: int, number: int, judge_of: Callable[[str], Judge], folder: Path) -> GroupCase:
    """Write, damage, ask and compare, all in a folder of its own."""
    plan = group_plan(seed, number)
    written = write_group(plan, judge_of(plan.base.version), folder)
    records = _records(plan, written.path)
    judge = judge_of(plan.asked)
    whole = served_of(judge, written.path, settings_of(plan), plan.base.topic_settings)
    assert whole is not None, plan
    truth = _truth(records, whole)
    base = Base(plan.base, written.path, None)
    case = GroupCase(plan, judge, folder, written, base, truth, copy_store(written.path, folder / "store"), whole=whole)
    target = GroupTarget(base, truth, case.store, random.Random(f"faults {plan.base.name}"),
                         directories=plan.data_directories, folder=plan.folder)  # fmt: skip
    case.faults = _damage(target)
    case.intact = intact_of(target)
    case.live = _live(records, written)
    case.unqueued = {at for at, record in records.items() if not is_queued(record)}
    case.now = served_of(judge, case.store, settings_of(plan), plan.base.topic_settings) if case.faults else whole
    if plan.is_told or plan.directories:
        case.tell()
    check_group(case)
    return case


def _records(plan: GroupPlan, path: Path) -> dict[int, bytes]:
    """The records of the log by physical offset."""
    entries = entries_of(path, plan.data_directories)
    return plain_records(path) | {entry.place + HEADER.size: entry.record for entry in entries if entry.is_message}


def _live(records: dict[int, bytes], written: Written) -> set[int]:
    """Records that a queue should lead to: earlier starts may have dropped others, and given their offsets again."""
    return {
        at for at, record in records.items() if is_queued(record) and (at >= written.log_end or at in written.served)
    }


def _truth(records: dict[int, bytes], whole: Served) -> Truth:
    sizes = {at: len(record) for at, record in sorted(records.items())}
    keys = {key: set(places) for key, places in whole.by_key.items()}
    return Truth(sizes, dict(whole.offsets), {}, keys, dict(whole.bounds), [])


def _damage(target: GroupTarget) -> list[Fault]:
    """Up to two faults; one in the log is silent where nobody looks at what it changed."""
    faults: list[Fault] = []
    wanted = target.draw.choice((0, 1, 1, 1, 2))
    for _ in range(MOST_TRIES):
        if len(faults) == wanted:
            break
        before = judged_bytes(target)
        fault = target.draw.choice(CHANGES)(target)
        if fault is not None:
            faults.append(_seen(fault, target, before))
    return faults


def _seen(fault: Fault, target: GroupTarget, before: list[bytes | None]) -> Fault:
    """The fault, silent where the bytes of the log that somebody looks at are as before, or as if files had expired."""
    if fault.name == "gone":
        return replace(fault, silent=is_expired(target))
    if fault.area != DLEDGER or fault.name in ("cut", "longer", "checkpoint"):
        return fault
    return replace(fault, silent=fault.silent or judged_bytes(target) == before)
