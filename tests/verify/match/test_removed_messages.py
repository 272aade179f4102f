"""Messages of deleted topics are told from messages that a queue lacks: by the whole configuration, and by restarts."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from rmqtool.engine.rules.versions import NEWEST
from rmqtool.findings.finding import Finding
from rmqtool.formats.consumequeue import FILLER_UNIT
from tests import life_stores
from tests.conftest import Unpacked
from tests.engine.memory_view import log_file, made_store, queue_file, record
from tests.verify.stores import above_note, verified

LOG = "commitlog/00000000000000000000"
TOPICS = "config/topics.json"
DELETED = "topic.deleted"
LIFE = [name for name in life_stores.names() if name.startswith("deleted-topic")]

Sent = tuple[str, int, int]
"""Topic, queue id, queue offset."""


def store_of(
    messages: list[Sent], queues: dict[tuple[str, int], list[int]], topics: object
) -> tuple[list[Finding], dict[str, int]]:
    """Findings about a store, and the ids above a note.

    Args:
        messages: the records of the log, in its order.
        queues: numbers of the messages that each queue has units for, in order; -1 is filler.
        topics: the names in `topics.json`; bytes are its content, and None is no file.
    """
    records, places = list[bytes](), list[tuple[int, int]]()
    for topic, queue_id, queue_offset in messages:
        at = sum(map(len, records))
        records.append(record(at, topic, queue_id=queue_id, queue_offset=queue_offset))
        places.append((at, len(records[-1])))
    files = {LOG: log_file(records, 8192), "checkpoint": struct.pack(">qq", 1_000_000, 1_000_000).ljust(4096, b"\0")}
    for (topic, queue_id), numbers in queues.items():
        units = [(*places[number], 0) if number >= 0 else FILLER_UNIT for number in numbers]
        files[f"consumequeue/{topic}/{queue_id}/00000000000000000000"] = queue_file(units)
    if topics is not None:
        names = [*topics, "SELF_TEST_TOPIC"] if isinstance(topics, list) and topics else []
        table = {name: {"topicName": name} for name in names}
        files[TOPICS] = topics if isinstance(topics, bytes) else json.dumps({"topicConfigTable": table}).encode()
    store = made_store(files, commitlog_file_size=8192, consumequeue_file_size=200)
    findings = verified(store, NEWEST)[1]
    return findings, dict(above_note(findings))


def deleted(findings: list[Finding]) -> dict[str | None, int]:
    return {one.topic: one.count for one in findings if one.id == DELETED}


TWO: list[Sent] = [("T", 0, 0), ("T", 0, 1), ("K", 0, 0)]
KEPT = {("K", 0): [2]}
LACKING = {"consumequeue.missing-queue": 1}
DOUBTFUL = {"topic.may-be-deleted": 1}
ODD_ENTRY = b'{"topicConfigTable":{"SELF_TEST_TOPIC":{"topicName":"SELF_TEST_TOPIC"},"K":{"topicName":"K"},"T":5}}'


@pytest.mark.parametrize(
    ("topics", "queues", "expected", "removed"),
    [
        (["T", "K"], KEPT, LACKING, {}),
        (["K"], KEPT, {}, {"T": 2}),
        (None, KEPT, LACKING, {}),
        ([], KEPT, LACKING, {}),
        (b"{ cut", KEPT, DOUBTFUL | {"config.unreadable": 1}, {}),
        (b"", KEPT, DOUBTFUL | {"config.unreadable": 1}, {}),
        (b"{ cut", {}, {"consumequeue.missing-queue": 2, "config.unreadable": 1}, {}),
        (b"{ cut", {("T", 0): [0], **KEPT}, {"consumequeue.missing-unit": 1, "config.unreadable": 1}, {}),
        (ODD_ENTRY, KEPT, LACKING | {"config.unreadable": 1}, {}),
        (["T", "K"], {("T", 0): [0], **KEPT}, {"consumequeue.missing-unit": 1}, {}),
        (["K"], {("T", 0): [0, 1], **KEPT}, {}, {}),
    ],
    ids=[
        "configured",
        "deleted",
        "no configuration",
        "emptied",
        "unreadable",
        "empty file",
        "no queue at all",
        "unreadable, and shorter",
        "an entry of another shape",
        "configured, and shorter",
        "queue is there",
    ],
)
def test_a_topic_without_queues(
    topics: object, queues: dict[tuple[str, int], list[int]], expected: dict[str, int], removed: dict[str, int]
) -> None:
    findings, ids = store_of(TWO, queues, topics)
    assert ids == expected
    assert deleted(findings) == removed


def test_a_name_used_again() -> None:
    # The second queue of the topic has not begun again: what it had before went with the topic too.
    messages: list[Sent] = [("T", 0, 0), ("T", 1, 0), ("T", 0, 1), ("T", 0, 2), ("T", 0, 0), ("T", 0, 1)]
    findings, ids = store_of(messages, {("T", 0): [4, 5]}, ["T"])
    assert ids == {}
    assert deleted(findings) == {"T": 4}
    assert [one.repair for one in findings if one.id == DELETED] == [None]


def test_new_messages_before_the_first_unit_of_a_queue_are_not_removed() -> None:
    """A start that enters only a later file of the log puts filler where the first new messages belong."""
    messages: list[Sent] = [
        ("T", 0, 0), ("T", 1, 0), ("T", 0, 1), ("T", 1, 1), ("T", 0, 0), ("T", 1, 0), ("T", 0, 1), ("T", 1, 1)
    ]  # fmt: skip
    findings, ids = store_of(messages, {("T", 0): [-1, 6], ("T", 1): [-1, 7]}, ["T"])
    assert ids.pop("consumequeue.missing-unit") == 2
    assert ids.keys() <= {"consumequeue.filler-readable"}
    assert deleted(findings) == {"T": 4}


@pytest.mark.parametrize(
    ("messages", "removed"),
    [
        ([("T", 0, 3), ("T", 1, 5), ("T", 0, 0), ("T", 1, 0)], {"T": 2}),
        ([("T", 0, 3), ("T", 1, 5), ("T", 0, 0)], {}),
        ([("T", 0, 3), ("T", 1, 5), ("T", 0, 0), ("T", 0, 1)], {"T": 2}),
    ],
    ids=["two queues", "one record", "two records"],
)
def test_records_that_step_back_to_the_first_place_begin_again(messages: list[Sent], removed: dict[str, int]) -> None:
    """Also where no queue has a unit of them."""
    findings, ids = store_of([("K", 0, 0), *messages], {("K", 0): [0]}, ["T", "K"])
    assert deleted(findings) == removed
    assert ids


def test_units_that_were_lost_are_no_deletion() -> None:
    # A queue that goes on in its middle: a broker gave queue offset 1 twice, and nobody deleted anything.
    messages: list[Sent] = [("T", 0, 0), ("T", 0, 1), ("T", 0, 2), ("T", 0, 1)]
    findings, ids = store_of(messages, {("T", 0): [0, 3]}, ["T"])
    assert deleted(findings) == {}
    assert "commitlog.queue-offset-repeated" in ids


def test_a_first_unit_that_leads_to_another_record_is_no_deletion() -> None:
    # The first unit leads to the third record, whose own place is another one: the queue is damaged.
    messages: list[Sent] = [("T", 0, 0), ("T", 0, 1), ("T", 0, 2)]
    findings, ids = store_of(messages, {("T", 0): [2, 1]}, ["T"])
    assert deleted(findings) == {}
    assert ids


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "%LMQ%light", "no/topic", "a b"])
def test_what_nobody_can_delete_is_missing(topic: str) -> None:
    findings, ids = store_of([("K", 0, 0), (topic, 0, 0)], {("K", 0): [0]}, ["K"])
    assert deleted(findings) == {}
    assert ids


@pytest.mark.parametrize("topic", ["%RETRY%group", "%DLQ%group"])
def test_topics_of_a_deleted_group(topic: str) -> None:
    findings, ids = store_of([("K", 0, 0), (topic, 0, 0)], {("K", 0): [0]}, ["K"])
    assert deleted(findings) == {topic: 1}
    assert ids == {}


@pytest.mark.parametrize("name", LIFE)
def test_a_life_is_healthy(golden: Unpacked, name: str) -> None:
    findings: list[Any] = verified(golden(name), life_stores.life_store(name).asked)[1]
    is_killed = "killed" in name
    assert dict(above_note(findings)) == ({"store.abort-present": 1} if is_killed else {})
    removed = {"deleted-topic-used-again-4.9.7": 71, "deleted-topic-used-again-killed-5.5.0": 0}.get(name, 72)
    assert deleted(findings) == ({"orders": removed} if removed else {})
