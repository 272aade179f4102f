"""Real brokers serve what `convert --from-dledger` wrote, each message at its queue offset, and append to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import golden_stores
from tests.broker.conftest import JudgeOf
from tests.broker.files import copy_store
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize("name", ["broker-4.9.7-dledger", "broker-5.3.3-dledger"])
def test_a_plain_broker_serves_every_message_of_the_group(
    golden: Unpacked, judge_of: JudgeOf, tmp_path: Path, name: str, version: str
) -> None:
    output = tmp_path / "plain"
    ran = rmqtool("convert", golden(name), "--from-dledger", "--output", output, "--yes")
    assert ran.code == 0, ran.err
    manifest = golden_stores.broker_manifest(name)
    config = {key: value for key, value in manifest["config"].items() if key != "enableDLegerCommitLog"}
    dumped = [json.loads(line) for line in rmqtool("dump", output, "--format", "jsonl").out.splitlines()]
    messages = [row for row in dumped if row["type"] == "message"]
    keys = {row["physical_offset"]: row["unique_key"] for row in messages if row["body_crc_ok"]}
    report = judge_of(version).examine(copy_store(output, tmp_path / "started"), config)
    served = {
        (queue["topic"], queue["queueId"], row[0]): keys[row[2]]
        for queue in report["served"]["queues"]
        for row in queue["messages"]
        if row[1] == "FOUND"
    }
    assert served == {
        (sent["topic"], sent["queue"], sent["queue_offset"]): sent["msg_id"] for sent in manifest["acknowledged"]
    }
    assert len(served) == 500
    with judge_of(version).open(output, config) as store:
        last = max(offset for topic, queue, offset in served if (topic, queue) == ("orders", 1))
        (answer,) = store.put({"topic": "orders", "queueId": 1, "body": b"next", "properties": {}})
        store.wait_dispatched()
        ((_, status, *_),) = store.get("orders", 1, [last + 1])["rows"]
    assert (answer["status"], status) == ("PUT_OK", "FOUND")
