"""A whole broker on a store that is already there: a real client gets every message, by queue, key and id."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker import Judge
from tests.broker.whole import WholeBroker

CONFIG = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 600,
    "maxHashSlotNum": 100,
    "maxIndexNum": 200,
}


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_real_client_on_a_crashed_store(judge_of: Any, tmp_path: Path, version: str) -> None:
    judge: Judge = judge_of(version)
    store = judge.open(tmp_path, CONFIG)
    answers = store.put(
        *(
            {"topic": "Orders", "queueId": number % 2, "body": b"%d" % number, "properties": {"KEYS": f"key{number}"}}
            for number in range(40)
        )
    )
    store.wait_dispatched()
    store.halt()
    with WholeBroker(version, tmp_path, CONFIG, {"Orders": {"readQueueNums": 2, "writeQueueNums": 2}}) as broker:
        assert broker.started["lastExit"] == "abnormal"
        queues = broker.consume("Orders")
        bodies = {(q["queueId"], m["queueOffset"]): m["body"] for q in queues for m in q["messages"]}
        by_key = broker.query("Orders", "key7")
        nothing = broker.query("Orders", "key40")
        sent = broker.send("Orders", 1, b"new", {"KEYS": "later"})
        viewed = broker.view("Orders", sent["messageId"])
        later = eventually(broker, "later")
        by_unique_key = broker.view("Orders", sent["uniqueKey"])
    expected = {(a["queueId"], a["queueOffset"]): b"%d" % number for number, a in enumerate(answers)}
    assert bodies == expected
    assert [(m["body"], m["physicalOffset"]) for m in by_key] == [(b"7", answers[7]["physicalOffset"])]
    assert nothing == []
    assert (sent["status"], sent["queueOffset"]) == ("SEND_OK", 20)
    assert viewed["body"] == by_unique_key["body"] == b"new"
    assert [message["body"] for message in later] == [b"new"]
    assert not (tmp_path / "abort").exists()


def eventually(broker: WholeBroker, key: str) -> list[dict[str, Any]]:
    """A message is found by its key once it has been dispatched."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        found = broker.query("Orders", key)
        if found:
            return found
        time.sleep(0.1)
    return []
