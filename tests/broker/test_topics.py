"""A whole broker without `topics.json`, and after `rebuild --topics`: each message reaches a client again."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import golden_stores
from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.program import JudgeError
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool

pytestmark = pytest.mark.slow

STORES = ("broker-4.9.7-mixed-clean", "broker-5.5.0-mixed-clean", "broker-5.5.0-batchcq")
NO_ROUTE = "No route info|Can not find Message Queue|CODE: 17"
TOPICS = "config/topics.json"
WAIT_SECONDS = 120
Served = dict[tuple[str, int, int], bytes]


def unpacked(name: str, folder: Path) -> tuple[str, Path, dict[str, object]]:
    """Version, a copy of the store, and its broker's settings."""
    manifest = json.loads((golden_stores.FOLDER / f"{name}.json").read_text())
    return manifest["broker_version"], golden_stores.unpack(name, folder), manifest["config"]


def served(broker: WholeBroker, topics: list[str], awaited: frozenset[str] = frozenset()) -> Served:
    """Bodies by topic, queue and offset, once the messages with the awaited unique keys are delivered too."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        rows = [(queue["queueId"], message) for topic in topics for queue in broker.consume(topic)
                for message in queue["messages"]]  # fmt: skip
        keys = {message["properties"].get("UNIQ_KEY") for _, message in rows}
        if awaited <= keys or time.monotonic() > deadline:
            return {(row["topic"], queue_id, row["queueOffset"]): row["body"] for queue_id, row in rows}
        time.sleep(0.3)


def delayed(path: Path) -> frozenset[str]:
    """Unique keys of the messages that wait for their time, which is long past."""
    dumped = rmqtool("dump", path, "--pending", "--format", "jsonl")
    return frozenset(json.loads(line)["unique_key"] for line in dumped.out.splitlines())


def with_messages(path: Path) -> list[str]:
    """Topics of producers that have queues."""
    names = {queue.parent.name for root in ("consumequeue", "batchconsumequeue") for queue in (path / root).glob("*/*")}
    return sorted(name for name in names if not name.startswith(("%", "rmq_sys_", "RMQ_SYS_", "SCHEDULE_TOPIC_")))


@pytest.mark.parametrize("name", STORES)
def test_each_message_reaches_a_client_after_a_rebuild(
    judge_of: Callable[[str], Judge], tmp_path: Path, name: str
) -> None:
    del judge_of  # only a whole broker reads the file
    version, path, config = unpacked(name, tmp_path)
    topics, awaited = with_messages(path), delayed(path)
    whole = copy_store(path, tmp_path / "whole")
    with WholeBroker(version, whole, config) as broker:
        expected = served(broker, topics, awaited)
    assert len(expected) >= 90
    known = json.loads((path / TOPICS).read_text())
    for lost in (TOPICS, f"{TOPICS}.bak"):
        (path / lost).unlink(missing_ok=True)
    without = copy_store(path, tmp_path / "without")
    if name.endswith("batchcq"):
        for topic in (path / "batchconsumequeue").iterdir():
            del known["topicConfigTable"][topic.name]
        for text in (None, "", '{"topicConfigTable":{', json.dumps(known)):
            if text is not None:
                (without / TOPICS).write_text(text)
            with pytest.raises(JudgeError, match="broker does not initialize"):
                WholeBroker(version, without, config)
    else:
        with WholeBroker(version, without, config) as broker, pytest.raises(JudgeError, match=NO_ROUTE):
            served(broker, topics[:1])
    rebuilt = rmqtool("rebuild", path, "--topics", "--yes", "--broker-version", version)
    assert (path / TOPICS).exists(), rebuilt.err
    with WholeBroker(version, path, config) as broker:
        assert served(broker, topics, awaited) == expected
        assert broker.send(topics[0], 0, b"new")["status"] == "SEND_OK"
