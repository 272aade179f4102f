"""Damaged topics: those that are one string to Java are one queue, and no file is made for one that holds a zero."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.forecast.forecast import forecast_store
from rmqtool.formats.consumequeue import UNIT
from rmqtool.repair.derived.build import build
from rmqtool.repair.derived.result import BuildRequest
from rmqtool.store.directory import Settings, survey
from rmqtool.store.view import open_directory
from tests.broker.broker import Judge

LOG_FILE_SIZE = 65536
CONFIG = {"mappedFileSizeCommitLog": LOG_FILE_SIZE}
TOPICS = {b"TopicX": b"Topic\xfe", b"TopicY": b"Topic\xff"}
STRING = "Topic\ufffd"


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_topics_that_are_one_string_are_one_queue(
    judge_of: Callable[[str], Judge], tmp_path: Path, version: str
) -> None:
    """Both number their messages from 0; a start gives later records the places that are left, we their own places."""
    judge = judge_of(version)
    path = tmp_path / "store"
    path.mkdir()
    store = judge.open(path, CONFIG)
    store.put(*({"topic": name.decode(), "body": bytes([number])} for number in range(6) for name in TOPICS))
    store.wait_dispatched()
    store.halt()
    log = min((path / "commitlog").iterdir())  # the other one was made ahead
    content = log.read_bytes()
    for name, damaged in TOPICS.items():
        content = content.replace(name, damaged)
    log.write_bytes(content)
    shutil.rmtree(path / "consumequeue")
    shutil.rmtree(path / "index", ignore_errors=True)
    (path / "checkpoint").unlink()
    before = survey(open_directory(path), Settings(defaults_hold=True))  # no queue file is left to show the size
    told = forecast_store(before, rules_for(version))
    ours = tmp_path / "ours"
    ours.mkdir()
    build(before, rules_for(version), BuildRequest(lambda _topic, _queue_id: True, index=False), ours)
    report = judge.examine(path, CONFIG)
    found = [queue for queue in report["served"]["queues"] if queue["topic"].startswith("Topic")]
    assert [(queue["min"], queue["max"]) for queue in found] == [
        (queue.min_queue_offset, queue.max_queue_offset) for queue in told.queues if queue.topic == STRING
    ]
    assert len(found) == 1
    assert 6 <= found[0]["max"] < 12
    places = [row[2] for row in found[0]["messages"]]
    assert places == sorted(places)
    (queue_file,) = (ours / "consumequeue" / STRING / "0").iterdir()
    units = np.frombuffer(queue_file.read_bytes(), UNIT.dtype, len(places))
    written = [(2 * place, 2 * place + 1) for place in range(6)]  # of each number one to either topic, in turn
    numbers = [at // (places[-1] // written[-1][0]) for at in units["physical_offset"].tolist()]
    assert all(number in pair for number, pair in zip(numbers, written, strict=True)), numbers


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_record_whose_topic_holds_a_zero_enters_no_queue(
    judge_of: Callable[[str], Judge], tmp_path: Path, version: str
) -> None:
    """4.9.7, 5.3.1 and 5.5.0 try for 30 seconds to make the queue's file; then no queue gets anything any more.

    The load ends well, and what was in the queues is served; new messages are not taken.
    """
    judge = judge_of(version)
    path = tmp_path / "store"
    path.mkdir()
    store = judge.open(path, CONFIG)
    topics = ["Other", "TopicX", "Other", "Later", "TopicX"]
    store.put(*({"topic": topic, "queueId": 3, "body": b"x"} for topic in topics))
    store.wait_dispatched()
    store.halt()
    log = min((path / "commitlog").iterdir())
    log.write_bytes(log.read_bytes().replace(b"TopicX", b"Topic\0"))
    shutil.rmtree(path / "consumequeue")
    shutil.rmtree(path / "index", ignore_errors=True)
    (path / "checkpoint").unlink()
    told = forecast_store(survey(open_directory(path), Settings(defaults_hold=True)), rules_for(version))
    with judge.open(path, CONFIG) as store:
        served = {queue["topic"]: (queue["min"], queue["max"]) for queue in store.read(brief=True)["queues"]}
        [answer] = store.put({"topic": "Other", "queueId": 3, "body": b"x"})
    assert {name: bounds for name, bounds in served.items() if name != "SCHEDULE_TOPIC_XXXX"} == {
        queue.topic: (queue.min_queue_offset, queue.max_queue_offset) for queue in told.queues
    }
    assert (served["Other"], served["Topic\0"], served["Later"]) == ((0, 1), (0, 0), (0, 0))
    assert told.lost.by_topic == {"Later": 1, "Other": 1, "Topic\0": 2}
    assert answer["status"] == "SERVICE_NOT_AVAILABLE"
