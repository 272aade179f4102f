"""Check B: a repair leaves a store that the broker takes, serves and goes on with; and it can be undone exactly."""

import os
import random
import re
import shutil
import time
from pathlib import Path
from typing import Any

from tests.broker.broker import OpenStore
from tests.broker.files import changes, copy_store, snapshot
from tests.broker.program import JudgeError
from tests.judge.bases import settled_read, whole_served
from tests.judge.case import Case
from tests.judge.check_forecast import of_the_store
from tests.judge.check_get import check_get
from tests.judge.check_verify import SEEN
from tests.judge.intact import intact_records
from tests.judge.messages import Sender
from tests.judge.tool import Answer, rmqtool
from tests.store_state import store_state

MOST_STEPS = 7
FOR_A_PERSON = ("commitlog.stray-file", "index.directory", "consumequeue.stray-file")
NEW_A_QUEUE = 2
LOOKS, LOOK_S = 100, 0.1
"""Queues in RocksDB are written in groups, by a thread of their own."""
KEYS_MAX = 32
SENDABLE = re.compile(r"[%|a-zA-Z0-9_-]+")
"""Topics that a broker takes from a client."""
KILLED = 0.8
"""How often the broker is killed before its restart; a clean stop takes it a second."""


def check_repair(case: Case) -> Path | None:
    """Repair a copy and judge it; the repaired store, if the repair went to its end."""
    before = store_state(case.store)
    path = copy_store(case.store, case.folder / "repaired")
    steps = _repaired(case, path)
    repaired = None
    if steps and is_done(steps[-1]):
        repaired = copy_store(path, case.folder / "result")
        shutil.rmtree(repaired / ".rmqtool", ignore_errors=True)
        lost = case.intact - intact_records(case.base, case.truth, path)
        if lost:
            case.differs("B intact records changed", sorted(lost)[:20])
        if case.full:
            _check_clean(case, repaired, steps)
        _check_broker(case, repaired)
    check_undo(case, path, before)
    shutil.rmtree(path)
    return repaired


def _repaired(case: Case, path: Path) -> list[Answer]:
    """recover, then what its exit codes ask for; the commands that ran."""
    command, options = "recover", ["--yes", *(["--full"] if case.full else [])]
    steps: list[Answer] = []
    while len(steps) < MOST_STEPS:
        answer = case.ask(command, path, *options, "--format", "json")
        steps.append(answer)
        strays = {row["file"]: row["expected"] for row in _named(answer) if row["id"] in FOR_A_PERSON}
        if is_done(answer) and not strays:
            if command == "recover" and asks_for_salvage(answer):
                command, options = "salvage", ["--yes"]
                continue
            break
        damage = (answer.json or {}).get("damage") or []
        if answer.code == 3 and strays:
            _set_aside(case, path, strays)
            command, options = "recover", ["--yes", *(["--full"] if case.full else [])]
        elif answer.code == 3 and command == "recover" and damage:
            command, options = "salvage", ["--yes"]
        elif answer.code == 5 and "--accept-loss" in answer.err and "--accept-loss" not in options:
            options = [*options, "--accept-loss"]
        elif answer.code == 5 and "--broker-conf" in answer.err and "--broker-conf" not in case.told:
            case.told = ["--broker-conf", case.conf]
        else:
            break
    last = steps[-1]
    if not is_done(last) and last.code != 1 and case.intact:
        ids = sorted({row["id"] for row in (last.json or {}).get("damage", ())})
        case.differs(f"B {last.arguments[0]} exit {last.code} {last.trouble or ids}",
                     f"{[' '.join(step.arguments) for step in steps]} {last.err} {last.out[:800]}")  # fmt: skip
    return steps


def is_done(answer: Answer) -> bool:
    """Whether nothing is left to do: exit 0, or a plan that was carried out and names what remains."""
    plan = answer.json or {}
    names_rest = bool(plan.get("remaining")) and not plan.get("damage")
    return answer.code == 0 or (answer.code == 3 and names_rest and bool(plan.get("applied") or not plan.get("steps")))


def _named(answer: Answer) -> list[dict[str, Any]]:
    """What a plan names as damage, and as what remains."""
    plan = answer.json or {}
    return [*(plan.get("damage") or ()), *(plan.get("remaining") or ())]


def asks_for_salvage(answer: Answer) -> bool:
    """Whether what remains is repaired by salvage."""
    return any((row.get("repair") or "").startswith("salvage") for row in (answer.json or {}).get("remaining") or ())


def _set_aside(case: Case, path: Path, strays: dict[str, str | None]) -> None:
    """What a person does with what has no place there: give it the name that is expected, or move it out."""
    for name, expected in strays.items():
        if not (path / name).exists():
            continue
        spare = case.folder / f"aside-{len(case.aside)}"
        if expected is not None and (path / expected).exists():  # an empty file, which gives way
            spare = spare.with_suffix(".empty")
            (path / expected).rename(spare)
            case.aside.append((spare, path / expected, repair_count(path)))
        aside = spare if expected is None else path / expected
        is_made = expected is None and name in case.made
        intact = intact_records(case.base, case.truth, path) if is_made else set()
        (path / name).rename(aside)
        if is_made:
            case.intact -= intact - intact_records(case.base, case.truth, path)
        case.aside.append((aside, path / name, repair_count(path)))


def repair_count(path: Path) -> int:
    """How many repairs of a store can be rolled back."""
    folder = path / ".rmqtool" / "undo"
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def _put_back(case: Case, path: Path) -> None:
    """Put back what the person moved after the repair that is rolled back next, for that repair ended with it there."""
    while case.aside and case.aside[-1][2] >= repair_count(path):
        aside, place, _ = case.aside.pop()
        aside.rename(place)


def _set_times(directories: set[Path], path: Path, before: dict[str, Any]) -> None:
    """Give directories that the person changed the times that they had."""
    for directory in directories:
        time_ns = before[str(directory.relative_to(path))].mtime_ns
        os.utime(directory, ns=(time_ns, time_ns))


def _check_clean(case: Case, repaired: Path, steps: list[Answer]) -> None:
    """After exit 0 a verify has nothing but notes, or the plan names what stays."""
    answer = case.ask("verify", repaired, "--format", "json")
    if answer.json is None:
        case.differs(f"B no verify of a repaired store: exit {answer.code} {answer.trouble}", answer.err)
        return
    told = "".join(step.out for step in steps)
    for name in sorted({row["id"] for row in answer.json["findings"] if row["severity"] in SEEN}):
        if name not in told:
            texts = [row["message"] for row in answer.json["findings"] if row["id"] == name]
            case.differs(f"B exit 0, and verify finds {name}", texts[:3])


def check_undo(case: Case, path: Path, before: dict[str, Any]) -> None:
    """Undo all, latest first."""
    changed = {place.parent for _, place, _ in case.aside}
    for _ in range(MOST_STEPS):
        _put_back(case, path)
        if not repair_count(path):
            break
        answer = rmqtool("undo", path, "--yes")
        if answer.code != 0:
            case.differs(f"B undo exit {answer.code} {answer.trouble}", answer.err)
            return
    _put_back(case, path)
    _set_times(changed, path, before)
    after = store_state(path)
    differ = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if differ == ["."]:
        case.differs("B undo: the store root has another time", f"{before['.']} -> {after['.']}")
    elif differ:
        rows = [f"{name}: {before.get(name)} -> {after.get(name)}" for name in differ[:6]]
        case.differs("B undo is not exact", "; ".join(rows))


def _check_broker(case: Case, repaired: Path) -> None:
    with case.copied(repaired, "served") as path:
        try:
            store = case.judge.open(path, case.base.plan.config, case.base.plan.topic_settings)
            if not store.serving:
                case.differs(
                    "B does not start", f"{store.opened.get('loadTrouble')} {store.opened.get('startTrouble')}"
                )
                store.abandon()
                return
            removed = of_the_store(case, changes(store.before, snapshot(path))["removed"])
            removed = {name for name in removed if holds_something(repaired / name)}
            if removed:
                case.differs("B start deletes files", sorted(removed))
            read = store.read(times=1)
            failing = [queue for queue in read["queues"] if "error" in queue and has_files(repaired, queue)]
            if failing:
                case.differs("B broker throws on a queue", failing)
            _check_served(case, read, "B")
            _check_keys(case, read)
            check_get(case, repaired, store, read)
            check_goes_on(case, store, read)
        except JudgeError as trouble:
            case.differs("B broker died", trouble)


def has_files(store: Path, queue: dict[str, Any]) -> bool:
    """Whether a queue has a file; brokers of 5.3 throw over a batch queue that has none, also where they emptied it."""
    folders = (store / root / queue["topic"] / str(queue["queueId"]) for root in ("consumequeue", "batchconsumequeue"))
    return any(folder.is_dir() and any(folder.iterdir()) for folder in folders)


def holds_something(file: Path) -> bool:
    """Whether not all of a file is zeros; one that was made in advance is unlinked by a start, and nothing is lost."""
    with file.open("rb") as source:
        while block := source.read(1 << 22):
            if block.strip(b"\0"):
                return True
    return False


def _check_served(case: Case, read: dict[str, Any], check: str) -> None:
    served = whole_served(read, case.truth.sizes)
    expected = case.expected()
    missing = {name: (at, served.get(name)) for name, at in expected.items() if served.get(name) != at}
    if missing:
        case.differs(
            f"{check} intact messages not served", f"{len(missing)} of {len(expected)}: {list(missing.items())[:8]}"
        )


def _check_keys(case: Case, read: dict[str, Any]) -> None:
    keys = {(row[0], row[1]): row for row in read["keys"] if not (len(row) > 3 and "type" in row[3])}
    missing = []
    for name, places in case.truth.keys.items():
        expected = places & case.intact if case.full else set()
        row = keys.get(name)
        if not expected or len(places) >= KEYS_MAX:
            continue
        if row is None or not expected <= set(row[2]):
            missing.append((name, sorted(expected), row))
    if missing:
        case.differs("B keys not served", f"{len(missing)} of {len(case.truth.keys)}: {missing[:4]}")


def check_goes_on(case: Case, store: OpenStore, read: dict[str, Any]) -> None:
    """New messages into each queue: they are served, after a restart too."""
    draw = random.Random(f"new {case.name}")
    sender = Sender(draw, frozenset(), ("T",), 1)
    inner = "Packed"
    queues = [
        (queue["topic"], queue["queueId"])
        for queue in read["queues"]
        if queue["topic"] != inner
        and "%LMQ%" not in queue["topic"]
        and SENDABLE.fullmatch(queue["topic"])
        and case.takes(queue["topic"])
    ]
    puts = [sender.plain(*queue) for queue in queues for _ in range(NEW_A_QUEUE)] or [sender.plain("T", 0)]
    answers = store.put(*puts)
    refused = [answer for answer in answers if answer.get("status") != "PUT_OK"]
    if refused:
        case.differs(f"B put refused {refused[0].get('status')} {refused[0].get('trouble')}", refused[:3])
        store.abandon()
        return
    store.wait_dispatched()
    new = {(a["topic"], a["queueId"], a["queueOffset"]): a["physicalOffset"] for a in answers}
    _check_new(case, store, new, "B new messages not served")
    path = store.directory
    if case.full and draw.random() < KILLED:
        again = copy_store(path, path.with_name(f"{path.name}-killed"))
        store.abandon()
    else:
        again = _stopped(case, store)
    restarted = case.judge.open(again, case.base.plan.config, case.base.plan.topic_settings)
    if not restarted.serving:
        case.differs("B does not start again", f"{restarted.opened.get('loadTrouble')}")
    else:
        _check_new(case, restarted, new, "B new messages lost by a restart")
        _check_served(case, settled_read(restarted, case.base.plan, case.named_queues), "B after a restart:")
    restarted.abandon()
    shutil.rmtree(path.with_name(f"{path.name}-killed"), ignore_errors=True)


def _stopped(case: Case, store: OpenStore) -> Path:
    """The store after a clean stop; a 5.5.1 may end in the RocksDB library then, which counts as killed."""
    try:
        store.shutdown()
    except JudgeError as trouble:
        if not (case.base.plan.has_database and "died in shutdown" in str(trouble)):
            raise
    return store.directory


def _check_new(case: Case, store: OpenStore, new: dict[tuple[str, int, int], int], signature: str) -> None:
    queues: dict[tuple[str, int], list[int]] = {}
    for topic, queue_id, queue_offset in new:
        queues.setdefault((topic, queue_id), []).append(queue_offset)
    for _ in range(LOOKS if case.base.plan.has_database else 1):
        missing = []
        for name, queue_offsets in queues.items():
            rows = store.get(*name, queue_offsets, count=1)["rows"]
            missing += [(name, new[*name, row[0]], row) for row in rows if row[4] != [new[*name, row[0]]]]
        if not missing:
            return
        time.sleep(LOOK_S)
    if missing:
        case.differs(signature, f"{len(missing)} of {len(new)}: {missing[:4]}")
