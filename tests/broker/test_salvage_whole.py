"""Whole brokers on salvaged logs: a real client gets every intact message, and delayed ones are delivered."""

import random
import time
from pathlib import Path
from typing import Any

import pytest

from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.status import PutResult
from rmqtool.engine.append.writer_config import config_from
from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.recipe import SMALL, TopicSpec, write_topics
from rmqtool.repair.derived.result import BuildOptions
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.fingerprint import fingerprint
from rmqtool.repair.machine.plan import Plan
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.salvage.plan import SalvageOptions, plan_salvage
from rmqtool.scan.log import LogFile, RecordTable
from rmqtool.store.config.broker_conf import broker_conf
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.broker.test_writer_whole import message
from tests.broker.whole import WholeBroker

COUNT = 480
FILE = int(SMALL["mappedFileSizeCommitLog"])
DELAYED = {**SMALL, "messageDelayLevel": "1s 10s"}
DELAYED_COUNT = 5
DELIVERED_WITHIN_SECONDS = 60


@pytest.mark.parametrize("end", ["clean", pytest.param("crash", marks=pytest.mark.slow)])
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_client_gets_every_intact_message(judge_of: object, tmp_path: Path, version: str, end: str) -> None:
    """Thirteen records in a row are a hole; pulls of 1 and of 32."""
    rules, store = rules_for(version), tmp_path / "store"
    messages = [message(number, "127.0.0.1:10911") for number in range(COUNT)]
    with new_store(store, rules, config_from(broker_conf(SMALL))) as writer:
        results = writer.put_all(messages)
        writer.close(crash=end == "crash")
    write_topics(store, {"Orders": TopicSpec(3)}, with_attributes=rules.batch_queues)
    second = [number for number, result in enumerate(results) if result.physical_offset >= FILE]
    lost = set(second[40:53])
    overwrite(store, [results[number] for number in sorted(lost)])
    salvage(store, version, tmp_path / "staging")
    wanted = {
        (m.queue_id, r.queue_offset): m.body
        for number, (m, r) in enumerate(zip(messages, results, strict=True))
        if number not in lost
    }
    with WholeBroker(version, store, SMALL) as broker:
        assert broker.started["lastExit"] == "clean"
        for count in (1, 32):
            assert by_place(broker.consume("Orders", count)) == wanted
        sent = broker.send("Orders", 1, b"new")
    assert (sent["status"], sent["queueOffset"]) == ("SEND_OK", COUNT // 3)


@pytest.mark.parametrize("file", ["second file", pytest.param("first file", marks=pytest.mark.slow)])
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_delayed_messages_behind_the_damage_are_delivered(
    judge_of: object, tmp_path: Path, version: str, file: str
) -> None:
    store = tmp_path / "store"
    topics = {"Orders": {"readQueueNums": 1, "writeQueueNums": 1}}
    with WholeBroker(version, store, DELAYED, topics) as broker:
        for number in range(200 if file == "second file" else 5):
            broker.send("Orders", 0, b"%04d" % number * 100)
        for number in range(DELAYED_COUNT):
            assert broker.send("Orders", 0, b"late %d" % number, {"DELAY": "2"})["status"] == "SEND_OK"
        broker.kill()
    parked = schedule_places(store)
    assert len(parked) == DELAYED_COUNT
    assert (parked[2][0] >= FILE) == (file == "second file")
    overwrite_range(store, *parked[2])
    salvage(store, version, tmp_path / "staging", BuildOptions(delays_ms=(1000, 10_000)))
    wanted = sorted(b"late %d" % number for number in range(DELAYED_COUNT) if number != 2)
    deadline = time.monotonic() + DELIVERED_WITHIN_SECONDS
    with WholeBroker(version, store, DELAYED, topics) as broker:
        late: list[bytes] = []
        while len(late) < len(wanted) and time.monotonic() < deadline:
            time.sleep(0.5)
            late = sorted(body for body in by_place(broker.consume("Orders")).values() if body.startswith(b"late"))
    assert late == wanted


def by_place(queues: list[dict[str, Any]]) -> dict[tuple[int, int], bytes]:
    return {(queue["queueId"], m["queueOffset"]): m["body"] for queue in queues for m in queue["messages"]}


def schedule_places(store: Path) -> list[tuple[int, int]]:
    """Physical offset and size of every record that waits for its time."""
    segments = survey(open_directory(store), broker_conf(SMALL).settings()).commitlog
    view, found = open_directory(store), []
    table = RecordTable.of([LogFile(lambda path=each.path: view.open(path), each.start) for each in segments])
    for batch in table.batches():
        found += [
            (row.physical_offset, row.size)
            for row in batch.as_rows()
            if row.topic_length > 0 and batch.topics[row.topic_number] == b"SCHEDULE_TOPIC_XXXX"
        ]
    table.close()
    return found


def overwrite(store: Path, results: list[PutResult]) -> None:
    overwrite_range(store, results[0].physical_offset, sum(result.size for result in results))


def overwrite_range(store: Path, physical_offset: int, length: int) -> None:
    with (store / "commitlog" / f"{physical_offset - physical_offset % FILE:020d}").open("r+b") as file:
        file.seek(physical_offset % FILE)
        file.write(random.Random(3).randbytes(length))


def salvage(path: Path, version: str, staging: Path, build: BuildOptions | None = None) -> None:
    places = StorePaths(path)
    before = fingerprint(places)
    staging.mkdir()
    store = survey(open_directory(path), broker_conf(SMALL).settings())
    options = SalvageOptions(build or BuildOptions())
    made = plan_salvage(store, rules_for(version), staging, options)
    apply_plan(Plan("salvage", before, version, made.steps), places)
