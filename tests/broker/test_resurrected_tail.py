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


def message(number: int, queue_id: int = 0) -> dict[str, Any]:
    """A message of the one size that all have, sent now."""
    return {
        "topic": "A", "queueId": queue_id, "body": f"{number:08d}".encode(), "bornTimestamp": int(time.time() * 1000),
        "properties": {"KEYS": f"key-{number:08d}"},
    }  # fmt: skip


def served(read: dict[str, Any], queue_id: int = 0) -> dict[int, int]:
    """Physical offset of each message that is served, by queue offset."""
    (queue,) = (queue for queue in read["queues"] if (queue["topic"], queue["queueId"]) == ("A", queue_id))
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
    assert finding["severity"] == "note", "a clock that was set back leaves the same"
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


@pytest.mark.parametrize("version", ROUTINE)
def test_offsets_that_come_twice_prove_that_a_tail_came_back(
    judge_of: Callable[[str], Judge], tmp_path: Path, version: str
) -> None:
    """The new record takes the place of one of the other queue, and so an offset that a record of the tail has too."""
    judge, path = judge_of(version), tmp_path / "store"
    store = judge.open(path, CONFIG)
    answers = store.put(*(message(number, number % 2) for number in range(COUNT)))
    store.wait_dispatched()
    store.halt()
    log = path / "commitlog" / f"{0:020d}"
    content = bytearray(log.read_bytes())
    content[content.index(f"{CUT:08d}".encode(), answers[CUT]["physicalOffset"])] ^= 1
    log.write_bytes(content)
    time.sleep(1.2)
    store = judge.open(path, CONFIG)
    (newest,) = store.put(message(COUNT, 1))
    assert (newest["physicalOffset"], newest["queueOffset"]) == (answers[CUT]["physicalOffset"], CUT // 2)
    store.wait_dispatched()
    store.halt()

    code, findings = checked(path, version)
    (finding,) = (finding for finding in findings if finding["id"] == "commitlog.resurrected-tail")
    cut = newest["physicalOffset"] + newest["size"]
    assert (code, finding["severity"], finding["physical_offset"]) == (3, "warning", cut)
    assert finding["repair"] == f"rmqtool recover --cut-at {cut} {path}"
    options = ("--broker-version", version, "--cut-at", cut, "--yes", "--accept-loss")
    assert rmqtool("recover", path, *options).code == 0
    assert checked(path, version)[0] == 0
    read = judge.open(path, CONFIG).read()
    for queue_id, count in ((0, CUT // 2), (1, CUT // 2 + 1)):
        assert len(served(read, queue_id)) == count


def checked(path: Path, version: str) -> tuple[int, list[dict[str, Any]]]:
    ran = rmqtool("verify", path, "--broker-version", version, "--format", "json")
    return ran.code, json.loads(ran.out)["findings"]
