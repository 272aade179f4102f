"""Whole brokers that have lost a part of their configuration, and what `recover` makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import golden_stores
from tests.broker.broker import Judge
from tests.broker.program import JudgeError
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool

pytestmark = pytest.mark.slow

CASES = [
    ("4.9.7", "broker-4.9.7-mixed-clean"),
    ("5.3.3", "broker-4.9.7-mixed-clean"),
    ("5.4.0", "broker-4.9.7-mixed-clean"),  # 5.4.0 does not read the consumer offsets that 5.5.0 writes
    ("5.5.0", "broker-5.5.0-mixed-clean"),
]
NO_ROUTE = "No route info|Can not find Message Queue|CODE: 17"
TOPICS, OFFSETS, GROUPS = "topics.json", "consumerOffset.json", "subscriptionGroup.json"
GROUP, TOPIC, QUEUES = "account-keepers", "account-moves", range(4)
QUERY_CONSUMER_OFFSET, NOT_FOUND = 14, 22


class Case(NamedTuple):
    """A broker's version, a store for it, and its settings."""

    version: str
    path: Path
    settings: dict[str, Any]

    @contextmanager
    def broker(self) -> Iterator[WholeBroker]:
        broker = WholeBroker(self.version, self.path, self.settings)
        try:
            yield broker
        finally:
            broker.kill()

    def recover(self) -> dict[str, Any]:
        ran = rmqtool("recover", self.path, "--yes", "--broker-version", self.version, "--format", "json")
        plan: dict[str, Any] = json.loads(ran.out)
        return plan


@pytest.fixture(params=CASES, ids=[version for version, _ in CASES])
def case(request: pytest.FixtureRequest, judge_of: Callable[[str], Judge], tmp_path: Path) -> Case:
    del judge_of
    version, name = request.param
    return Case(version, golden_stores.unpack(name, tmp_path), dict(golden_stores.broker_manifest(name)["config"]))


def consumer_offsets(broker: WholeBroker) -> list[int | None]:
    """What a broker tells a consumer that asks where its group is; None where it says that it does not know."""
    answers = [
        broker.remote(QUERY_CONSUMER_OFFSET, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue_id})
        for queue_id in QUEUES
    ]
    return [None if answer["code"] == NOT_FOUND else int(answer["fields"]["offset"]) for answer in answers]


def test_a_topic_newer_than_the_backup_has_no_route_until_it_is_added(case: Case) -> None:
    config = case.path / "config"
    older = json.loads((config / TOPICS).read_bytes())
    with case.broker() as broker:
        expected = broker.bodies("payments")
    assert len(expected) >= 20
    del older["topicConfigTable"]["payments"]

    def lose() -> None:
        (config / TOPICS).write_bytes(b"")
        (config / f"{TOPICS}.bak").write_text(json.dumps(older))

    lose()
    with case.broker() as broker, pytest.raises(JudgeError, match=NO_ROUTE):
        broker.bodies("payments")
    lose()  # the broker has written it again, from the backup
    assert any("topic payments: guessed" in note for note in case.recover()["notes"])
    with case.broker() as broker:
        assert broker.bodies("payments") == expected
        assert broker.send("payments", 0, b"new")["status"] == "SEND_OK"


def test_without_consumer_offsets_a_group_begins_again_or_at_the_end(case: Case) -> None:
    with case.broker() as broker:
        before = consumer_offsets(broker)
    assert all(before), before
    for name in (OFFSETS, f"{OFFSETS}.bak"):
        (case.path / "config" / name).unlink(missing_ok=True)
    with case.broker() as broker:
        assert set(consumer_offsets(broker)) <= {0, None}


def test_a_broker_does_not_start_on_two_cut_copies_and_does_without_them(case: Case) -> None:
    config = case.path / "config"
    for name in (GROUPS, f"{GROUPS}.bak"):
        (config / name).write_text('{"dataVersion":{"counter":2,')
    with pytest.raises(JudgeError, match="broker does not initialize"), case.broker():
        pass
    assert "config.groups-missing" in [left["id"] for left in case.recover()["remaining"]]
    assert not (config / GROUPS).exists()
    with case.broker() as broker:
        assert all(consumer_offsets(broker))
        assert broker.bodies(TOPIC)


def test_the_offsets_of_a_cut_file_reach_the_consumers(case: Case) -> None:
    config = case.path / "config"
    with case.broker() as broker:
        before = consumer_offsets(broker)
    content = (config / OFFSETS).read_text()
    whole = content[: content.index("}", content.index(f"{TOPIC}@{GROUP}")) + 1]
    older = {"offsetTable": {f"{TOPIC}@{GROUP}": dict.fromkeys(map(str, QUEUES), 1)}}
    (config / OFFSETS).write_text(whole)
    (config / f"{OFFSETS}.bak").write_text(json.dumps(older))
    case.recover()
    with case.broker() as broker:
        assert consumer_offsets(broker) == before
