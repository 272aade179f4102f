"""A topic deleted through a store alone is what a whole broker leaves of it: the judge of lives counts on this."""

import json
import socket
from pathlib import Path

import pytest

from tests.broker.broker import Judge
from tests.broker.files import Snapshot, copy_store, snapshot
from tests.broker.whole import WholeBroker
from tests.judge.lives.broker_config import BrokerConfig

CONFIG = {"mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 600}
TIMER = {"timerWheelEnable": True}
"""5.3.3 and later answer a deletion with an error where it is off, after they have deleted the topic."""
DELETED, KEPT = "Orders", "Payments"
TOPICS = {DELETED: {}, KEPT: {}}
DELETE_TOPIC_IN_BROKER = 215


def test_a_store_alone_deletes_a_topic_as_a_whole_broker_does(judge: Judge, tmp_path: Path) -> None:
    version = judge.version
    path = tmp_path / version
    with WholeBroker(version, path, CONFIG, TOPICS) as broker:
        for number in range(12):
            broker.send((DELETED, KEPT)[number % 2], number % 4, b"x" * (number + 1))
    alone = copy_store(path, tmp_path / f"{version}-alone")
    names = topic_names(path)
    with WholeBroker(version, path, CONFIG | TIMER) as broker:
        answer = broker.remote(DELETE_TOPIC_IN_BROKER, {"topic": DELETED})
        assert answer["code"] == 0, (version, answer)
    with judge.open(alone, CONFIG, TOPICS) as store:
        store.delete_topic(DELETED, names - {DELETED})
    assert queues(alone) == queues(path)
    assert not any(f"/{DELETED}/" in name for name in queues(path))
    assert names - topic_names(path) == {DELETED}
    is_noted_again = version.startswith("5")
    assert (DELETED not in topic_names(path, "topics.json.bak")) == is_noted_again, (
        "a 5.x writes it once more at its end"
    )


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_the_configuration_of_a_life_names_the_topics_that_a_whole_broker_names(version: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with WholeBroker(version, path, CONFIG, TOPICS):
        pass
    ours = BrokerConfig()
    ours.create(DELETED)
    ours.create(KEPT)
    ours.write_topics(tmp_path / "ours", is_five=version.startswith("5"))
    names, named = topic_names(path), topic_names(tmp_path / "ours")
    assert named <= names
    assert all(socket.gethostname() in name for name in names - named)


def topic_names(path: Path, name: str = "topics.json") -> set[str]:
    return set(json.loads((path / "config" / name).read_text())["topicConfigTable"])


def queues(path: Path) -> Snapshot:
    """All that the queues and the log hold; queues without a file, which a start makes in memory, left out."""
    return {
        name: entry
        for name, entry in snapshot(path).items()
        if name.startswith(("consumequeue/", "commitlog/")) and not name.endswith("/")
    }
