"""What a start loses of a topic that was deleted and used again."""

from __future__ import annotations

import json

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.forecast.forecast import forecast_store
from rmqtool.formats.consumequeue import FILLER_UNIT
from tests.engine.memory_view import log_file, made_store, queue_file, record


def topics_file(*names: str) -> bytes:
    table = {name: {"topicName": name} for name in ("SELF_TEST_TOPIC", *names)}
    return json.dumps({"topicConfigTable": table}).encode()


@pytest.mark.parametrize("unit_of_first", [False, True])
def test_new_messages_before_the_first_unit_of_a_queue_are_lost(*, unit_of_first: bool) -> None:
    """Those of a topic that begins again are told by the order of its records where filler stands for them."""
    places = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 0), (1, 0), (0, 1), (1, 1)]
    records, starts = list[bytes](), list[int]()
    for queue_id, queue_offset in places:
        starts.append(sum(map(len, records)))
        records.append(record(starts[-1], queue_id=queue_id, queue_offset=queue_offset))
    files = {f"commitlog/{0:020d}": log_file(records, 8192), "config/topics.json": topics_file("T")}
    for queue_id in (0, 1):
        first, second = ((starts[number], len(records[number]), 0) for number in (4 + queue_id, 6 + queue_id))
        units = [first if unit_of_first else FILLER_UNIT, second]
        files[f"consumequeue/T/{queue_id}/{0:020d}"] = queue_file(units)
    store = made_store(files, commitlog_file_size=8192, consumequeue_file_size=200)
    forecast = forecast_store(store, rules_for("5.4.0"))
    assert forecast.lost.messages == (0 if unit_of_first else 2)
    assert forecast.deleted_topics == {"T": 4}


def test_a_first_unit_that_leads_to_another_topic_is_no_restart() -> None:
    """Two queues of one id and two topics have each other's files; all of their records are there."""
    records, starts = list[bytes](), list[int]()
    for number, topic in enumerate(("T", "S", "T", "S")):
        starts.append(sum(map(len, records)))
        records.append(record(starts[-1], topic, queue_offset=number // 2))
    files = {f"commitlog/{0:020d}": log_file(records, 8192), "config/topics.json": topics_file("S", "T")}
    for topic, numbers in (("T", (1, 3)), ("S", (0, 2))):
        units = [(starts[number], len(records[number]), 0) for number in numbers]
        files[f"consumequeue/{topic}/0/{0:020d}"] = queue_file(units)
    store = made_store(files, commitlog_file_size=8192, consumequeue_file_size=200)
    forecast = forecast_store(store, rules_for("5.4.0"))
    assert (forecast.lost.messages, forecast.deleted_topics) == (4, {})
