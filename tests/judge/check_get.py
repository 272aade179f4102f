"""Check D: `get` answers as the broker does: by queue offset, key, time and message id."""

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.broker.broker import OpenStore
from tests.judge.bases import served_of
from tests.judge.case import Case
from tests.judge.intact import log_content
from tests.judge.target import record_fields

QUESTIONS = 3


def check_get(case: Case, path: Path, store: OpenStore, read: dict[str, Any]) -> None:
    """Ask both a few questions; `store` runs on a copy of the store at `path`."""
    draw = random.Random(f"questions {case.name}")
    kinds: list[Callable[..., None]] = [_by_offset, _by_offset, _by_key, _by_time, _by_message_id]
    read = {**read, "queues": [queue for queue in read["queues"] if "error" not in queue]}
    if not read["queues"]:
        return
    for _ in range(QUESTIONS):
        draw.choice(kinds)(case, path, store, read, draw)


def _by_offset(case: Case, path: Path, store: OpenStore, read: dict[str, Any], draw: random.Random) -> None:
    queue = draw.choice(read["queues"])
    low, high = queue["min"], queue["max"]
    edges = (0, low, max(0, low - 1), max(0, high - 1), high, high + 1, high + 1000)
    at = draw.choice((*edges, draw.randrange(max(1, high)), draw.randrange(max(1, high))))
    count = draw.choice((1, 1, 5, 32))
    row = store.get(queue["topic"], queue["queueId"], [at], count=count)["rows"][0]
    answer = _asked(case, path, "--topic", queue["topic"], "--queue-id", queue["queueId"], "--queue-offset", at,
                    "--count", count)  # fmt: skip
    if answer is not None:
        ours = answer["status"], answer["next_begin_offset"], [m["physical_offset"] for m in answer["messages"]]
        question = queue["topic"], queue["queueId"], at, count
        _compare(case, f"D by offset: {row[1]}", (row[1], row[2], row[4]), ours, question)


def _by_key(case: Case, path: Path, store: OpenStore, read: dict[str, Any], draw: random.Random) -> None:
    rows = [row for row in read["keys"] if not (len(row) > 3 and ("type" in row[3] or "error" in row[3]))]
    if not rows:
        return
    topic, key = draw.choice(rows)[:2]
    if draw.random() < 0.1:
        key += "x"
    said = store.query(topic, key, count=32)
    if said.get("stuck") or "served" not in said:
        return
    answer = _asked(case, path, "--topic", topic, "--key", key)
    if answer is not None:
        _compare(case, "D by key", said["served"], [m["physical_offset"] for m in answer["messages"]], (topic, key))


def _by_time(case: Case, path: Path, store: OpenStore, read: dict[str, Any], draw: random.Random) -> None:
    queue = draw.choice(read["queues"])
    times = [row[4] for row in read["records"] if (row[1], row[2]) == (queue["topic"], queue["queueId"])]
    if not times:
        return
    time = draw.choice(times) + draw.choice((-1, 0, 0, 1, 100_000_000))
    row = store.offsets_by_time(queue["topic"], queue["queueId"], [time])[0]
    answer = _asked(case, path, "--topic", queue["topic"], "--queue-id", queue["queueId"], "--time", time)
    if answer is not None and "error" not in row:
        _compare(case, "D by time", row["offset"], answer["queue_offset"], (queue["topic"], queue["queueId"], time))


def _by_message_id(case: Case, path: Path, _store: OpenStore, read: dict[str, Any], draw: random.Random) -> None:
    """A client goes to the place that the id says, and the broker hands out what its log has there."""
    places = sorted(set(served_of(read).values()) & case.intact)
    if not places:
        return
    at = draw.choice(places)
    plan = case.base.plan
    start = at - at % plan.log_file_size
    content = log_content(case.base.path, plan.log_directories, at - start + case.truth.sizes[at])
    record = content[start][0][at - start :]
    position, width = record_fields(record)["store-host"]
    name = (record[position : position + width] + struct.pack(">q", at)).hex().upper()
    answer = _asked(case, path, "--message-id", name)
    if answer is not None:
        _compare(case, "D by message id", [at], [m["physical_offset"] for m in answer["messages"]], name)


def _asked(case: Case, path: Path, *options: object) -> dict[str, Any] | None:
    answer = case.ask("get", path, *options, "--format", "json")
    if answer.json is None and answer.code != 1:
        case.differs(f"D no answer: exit {answer.code} {answer.trouble}", f"{options} {answer.err}")
    found: dict[str, Any] | None = answer.json
    return found


def _compare(case: Case, signature: str, theirs: object, ours: object, question: object) -> None:
    if theirs != ours:
        case.differs(signature, f"{question}: the broker {theirs}, get {ours}")
