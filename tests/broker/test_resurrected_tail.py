"""Real brokers read on into old records after a truncation; cut where verify says, the log serves what lies before."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker import Judge
from tests.broker.versions import ROUTINE
from tests.commands.transcripts import rmqtool

CONFIG: dict[str, Any] = {"mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 600}
COUNT = 40
CUT = 20


def message(number: int) -> dict[str, Any]:
    """A message of the one size that all have, sent now."""
    return {
        "topic": "A", "queueId": 0, "body": f"{number:08d}".encode(), "bornTimestamp": int(time.time() * 1000),
        "properties": {"KEYS": f"key-{number:08d}"},
    }  # fmt: skip


def served(read: dict[str, Any]) -> dict[int, int]:
    """Physical offset of each message that is served, by queue offset."""
    (queue,) = (queue for queue in read["queues"] if queue["topic"] == "A")
    return {row[0]: row[2] for row in queue["messages"] if row[1] == "FOUND"}


@pytest.mark.parametrize("version", ROUTINE)
def test_a_tail_that_came_back_is_cut_where_verify_says(
    judge_of: Callable[[str], Judge], tmp_path: Path, version: str
) -> None:
    judge, path = judge_of(version), tmp_path / "store"
    store = judge.open(path, CONFIG)
    answers = store.put(*(message(number) for number in range(COUNT)))
    store.wait_dispatched()
    store.halt()
    log = path / "commitlog" / f"{0:020d}"
    content = bytearray(log.read_bytes())
    bad = content.index(f"{CUT:08d}".encode(), answers[CUT]["physicalOffset"])
    content[bad] ^= 1
    log.write_bytes(content)

    time.sleep(1.2)  # older than the next record by more than a correction of the clock
    store = judge.open(path, CONFIG)
    (newest,) = store.put(message(COUNT))
    assert newest["physicalOffset"] == answers[CUT]["physicalOffset"]
    store.wait_dispatched()
    store.halt()
    store = judge.open(path, CONFIG)
    assert len(served(store.read())) == COUNT, "the old records are back"
    store.halt()

    ran = rmqtool("verify", path, "--broker-version", version, "--format", "json")
    (finding,) = (each for each in json.loads(ran.out)["findings"] if each["id"] == "commitlog.resurrected-tail")
    cut = newest["physicalOffset"] + newest["size"]
    assert (finding["physical_offset"], finding["count"]) == (cut, COUNT - CUT - 1)
    options = ("--broker-version", version, "--cut-at", cut, "--yes", "--accept-loss")
    assert rmqtool("recover", path, *options).code == 0
    assert rmqtool("verify", path, "--broker-version", version).code == 0

    store = judge.open(path, CONFIG)
    expected = {number: answers[number]["physicalOffset"] for number in range(CUT + 1)}
    assert served(store.read()) == expected
    (after,) = store.put(message(COUNT + 1))
    assert (after["physicalOffset"], after["queueOffset"]) == (cut, CUT + 1)
    store.wait_dispatched()
    store.halt()
    store = judge.open(path, CONFIG)
    assert served(store.read()) == {**expected, CUT + 1: cut}
    store.shutdown()
