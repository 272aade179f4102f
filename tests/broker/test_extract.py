"""Real brokers serve what `extract` and `merge` wrote: every message at its queue offset, and consumers continue."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker import Answer, Judge
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool

CONFIG = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 2000,
}
QUEUES = {"readQueueNums": 2, "writeQueueNums": 2}
TOPICS = {"Orders": QUEUES, "Other": QUEUES}
HALF, COUNT = 200, 400


@pytest.mark.parametrize(
    ("version", "is_joined"),
    [("4.9.7", True), ("5.5.0", False)]
    + [pytest.param(*case, marks=pytest.mark.slow) for case in (("4.9.7", False), ("5.5.0", True))],
)
def test_consumers_continue_on_a_part_of_a_store_and_on_parts_joined_again(
    judge_of: Any, tmp_path: Path, version: str, *, is_joined: bool
) -> None:
    source, late, early, joined = (tmp_path / name for name in ("source", "late", "early", "joined"))
    answers = written(judge_of(version), source)
    with WholeBroker(version, source, CONFIG, TOPICS) as broker:
        broker.commit("readers", "Orders", 0, 130)
        broker.commit("readers", "Other", 0, 7)
    middle = answers[HALF]["storeTimestamp"]
    select = [source, "--topic", "Orders", "--keep-offsets", "--broker-version", version]
    assert done("extract", *select, "--from-time", middle, "--output", late) == 0
    assert done("extract", *select, "--to-time", middle, "--output", early) == 0
    assert done("merge", late, early, "--output", joined, "--broker-version", version) == 0
    for store in (late, joined):
        assert done("verify", store, "--broker-version", version) == 0
    store, first = (joined, 0) if is_joined else (late, HALF)
    for is_killed in (True, False):
        with WholeBroker(version, store, CONFIG) as broker:
            served = {queue["queueId"]: queue for queue in broker.consume("Orders")}
            known = broker.remote(14, {"consumerGroup": "readers", "topic": "Orders", "queueId": 0})
            number = 1 if is_killed else 2
            sent = broker.send("Orders", 1, b"next")
            if is_killed:
                broker.kill()
        for queue_id, queue in served.items():
            messages = queue["messages"][: (COUNT - first) // 2]
            assert queue["min"] == first // 2
            assert [message["queueOffset"] for message in messages] == list(range(first // 2, COUNT // 2))
            assert [message["body"] for message in messages] == [
                b"%d" % (2 * offset + queue_id) * 50 for offset in range(first // 2, COUNT // 2)
            ]
            for message in messages:
                old = answers[2 * message["queueOffset"] + queue_id]
                assert message["storeTimestamp"] == old["storeTimestamp"]
        assert known["fields"]["offset"] == "130"
        assert sent["queueOffset"] == COUNT // 2 + number - 1


def test_parts_that_do_not_continue_each_other_are_refused(judge_of: Any, tmp_path: Path) -> None:
    source, late = tmp_path / "source", tmp_path / "late"
    middle = written(judge_of("5.5.0"), source)[HALF]["storeTimestamp"]
    select = [source, "--topic", "Orders", "--keep-offsets", "--broker-version", "5.5.0"]
    assert done("extract", *select, "--from-time", middle, "--output", late) == 0
    ran = rmqtool("merge", source, late, "--output", tmp_path / "joined", "--broker-version", "5.5.0")
    assert ran.code == 5
    assert "two messages would have the same queue offset" in ran.err
    assert not (tmp_path / "joined").exists()


def written(judge: Judge, directory: Path) -> list[Answer]:
    """The answers to the messages of Orders; those of Other are between them, the second half is later."""
    answers: list[Answer] = []
    with judge.open(directory, CONFIG) as store:
        for start in (0, HALF):
            time.sleep(0.02)
            put = store.put(
                *(
                    {"topic": topic, "queueId": number % 2, "body": b"%d" % number * 50, "properties": {"KEYS": "k"}}
                    for number in range(start, start + HALF)
                    for topic in ("Orders", "Other")
                )
            )
            answers += [answer for answer in put if answer["topic"] == "Orders"]
    return answers


def done(*arguments: object) -> int:
    ran = rmqtool(*arguments)
    assert not ran.err, ran.err
    return ran.code
