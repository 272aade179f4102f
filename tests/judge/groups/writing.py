"""Writes the store of a group's member with a real broker, and keeps what was served when its last run began."""

from __future__ import annotations

import random
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.broker.broker import Judge, OpenStore, served_places
from tests.broker.files import copy_store
from tests.broker.test_dledger_layouts import ELECTION_S, group, put_to_leader
from tests.judge.bases import CLEAN, KILLED_BEFORE_DISPATCH, PUT_TOGETHER, write_config
from tests.judge.groups.plan import KILLED_COMMITTED, GroupPlan
from tests.judge.messages import Sender

CHECKPOINT_S = 3.3
"""DLedger writes its checkpoint every three seconds."""
HALF, OPERATIONS = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
COMMITTED = 8
PRESENT = ((0, 1, 2), (0, 2), (0, 1, 2))
"""Members that run together, one group after the other; n1 is behind after the second, and catches up in the third."""


@dataclass(frozen=True)
class Written:
    """A store as its last run left it.

    Attributes:
        served: physical offsets that were served when the last run began.
        log_end: where the log ended then.
        undispatched: whether the last messages reached no queue.
    """

    path: Path
    served: frozenset[int]
    log_end: int
    undispatched: bool


def settings_of(plan: GroupPlan) -> dict[str, object]:
    """The settings of a group with this member alone."""
    named: dict[str, object] = {"dLegerSelfId": plan.member}
    if plan.directories:
        named["storePathDLedgerCommitLog"] = ",".join(plan.directories)
    return {**group(**named), **plan.base.config}


def write_group(plan: GroupPlan, judge: Judge, folder: Path) -> Written:
    """Write it; a killed end is a copy of the running store's files."""
    draw = random.Random(f"messages {plan.base.name}")
    sender = Sender(draw, plan.base.features, plan.base.topics, plan.base.queues)
    path = folder / "run-0"
    for _ in range(plan.plain_runs):
        with judge.open(path, plan.base.config, plan.base.topic_settings) as store:
            _put(store, sender.messages(draw.randrange(10, 80)))
    if plan.members > 1:
        return _members(plan, judge, folder, draw)
    written = _alone(plan, judge, path, sender)
    if draw.random() < 0.5:
        write_config(plan.base, written.path)
    return written


def _alone(plan: GroupPlan, judge: Judge, path: Path, sender: Sender) -> Written:
    served, log_end, undispatched = frozenset[int](), 0, False
    for number, (count, end) in enumerate(plan.base.runs):
        store = judge.open(path, settings_of(plan), plan.base.topic_settings)
        assert store.serving, (plan, store.opened)
        store.wait_committed()
        store.lead()
        read = store.read(brief=True)
        served, log_end = frozenset(served_places(read).values()), read["offsets"]["max"]
        undispatched = end == KILLED_BEFORE_DISPATCH
        _put(store, sender.messages(count))
        if "transactions" in plan.base.features:
            _put_transactions(store, sender)
        if undispatched:
            store.stop_dispatch()
            _put(store, sender.messages(count // 3 + 1), dispatched=False)
        path = _ended(store, end, path.with_name(f"run-{number + 1}"))
    return Written(path, served, log_end, undispatched)


def _ended(store: OpenStore, end: str, after: Path) -> Path:
    if end == CLEAN:
        store.shutdown()
        return copy_store(store.directory, after)
    if end == KILLED_COMMITTED:
        time.sleep(CHECKPOINT_S)
    copy_store(store.directory, after)
    store.abandon()
    return after


def _put(store: OpenStore, messages: list[dict[str, Any]], *, dispatched: bool = True) -> None:
    """Put messages; so few together that no two index files are made in one millisecond."""
    for at in range(0, len(messages), PUT_TOGETHER):
        answers = store.put(*messages[at : at + PUT_TOGETHER])
        assert {answer.get("status") for answer in answers} == {"PUT_OK"}, answers
        if dispatched:
            store.wait_dispatched()
        time.sleep(0.002)


def _put_transactions(store: OpenStore, sender: Sender) -> None:
    """Half messages, of which some are committed as brokers do it."""
    for number in range(4):
        message = sender.plain("Orders", 0)
        own = message["properties"]
        half = {**message, "topic": HALF, "properties": {**own, "REAL_TOPIC": "Orders", "REAL_QID": "0"}}
        (answer,) = store.put(half)
        assert answer["status"] == "PUT_OK", answer
        if number % 2 == 0:
            prepared = answer["physicalOffset"]
            operation = {"topic": OPERATIONS, "queueId": 0, "properties": {"TAGS": "d"}}
            committed = {**message, "sysFlag": COMMITTED, "preparedTransactionOffset": prepared}
            _put(store, [committed, {**operation, "body": str(answer["queueOffset"]).encode()}])
    store.wait_dispatched()


def _members(plan: GroupPlan, judge: Judge, folder: Path, draw: random.Random) -> Written:
    """Three members of which one is away for a time; the store is that of one, which is behind or not."""
    with ExitStack() as stack:
        free = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in PRESENT[0]]
        ports = [server.getsockname()[1] for server in free]
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports))
    groups = PRESENT[: draw.choice((2, 3))]
    chosen = folder / plan.member
    for turn, present in enumerate(groups, 1):
        members = [
            judge.open(
                folder / f"n{number}", {**group(dLegerSelfId=f"n{number}", dLegerPeers=peers), **plan.base.config}
            )
            for number in present
        ]
        put_to_leader(members, draw.randrange(20, 60))
        if turn == 1:
            _wait_for_entries(chosen / plan.folder / "data")
        is_killed = turn == len(groups) and draw.random() < 0.5
        if is_killed:
            chosen = copy_store(chosen, folder / "killed")
        for member in members:
            member.abandon() if is_killed else member.shutdown()
    return Written(chosen, frozenset(), 0, undispatched=False)


def _wait_for_entries(data: Path) -> None:
    """Wait until a member that does not lead has been sent some entries; two of three take messages without it."""
    deadline = time.monotonic() + ELECTION_S
    while not (data.is_dir() and any(data.iterdir())):
        assert time.monotonic() < deadline
        time.sleep(0.1)
