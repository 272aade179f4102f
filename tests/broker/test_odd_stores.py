"""What real brokers do with odd stores, which tests/test_odd_stores.py judges without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.conftest import JudgeOf
from tests.broker.files import copy_store
from tests.commands.transcripts import rmqtool
from tests.odd_stores import unpack_odd

pytestmark = pytest.mark.broker

VERSION = "5.5.0"
SIZES = {"mappedFileSizeCommitLog": 262144, "mappedFileSizeConsumeQueue": 20000, "maxHashSlotNum": 1000}
OF_BATCH = {**SIZES, "maxIndexNum": 2000, "mapperFileSizeBatchConsumeQueue": 920}


def test_batch_queues_load_once_their_topic_is_known(judge_of: JudgeOf, tmp_path: Path) -> None:
    store = unpack_odd("batchcq-no-topics", tmp_path)
    report = judge_of(VERSION).examine(copy_store(store, tmp_path / "lost"), OF_BATCH)
    assert (report["load"], "served" in report) == (False, False)
    assert rmqtool("rebuild", store, "--topics", "--yes").code == 3
    topics = {"packed": {"writeQueueNums": 4, "attributes": {"queue.type": "BatchCQ"}}}
    assert "BatchCQ" in (store / "config" / "topics.json").read_text("utf-8")
    report = judge_of(VERSION).examine(store, OF_BATCH, topics)
    assert report["load"]
    assert sum(len(queue["messages"]) for queue in report["served"]["queues"]) > 0


@pytest.mark.parametrize(("size", "count"), [(1700, 10), (4096, None)])
def test_a_log_file_of_1700_bytes_is_read_by_a_broker_with_that_size(
    judge_of: JudgeOf, tmp_path: Path, size: int, count: int | None
) -> None:
    store = unpack_odd("single-file-1700", tmp_path)
    report = judge_of("5.4.0").examine(store, {"mappedFileSizeCommitLog": size})
    served = sum(len(queue["messages"]) for queue in report["served"]["queues"]) if "served" in report else None
    assert (report["load"], served) == (count is not None, count)


def test_a_broker_that_makes_no_index_serves_all_and_makes_none(judge_of: JudgeOf, tmp_path: Path) -> None:
    store = unpack_odd("no-index-broker", tmp_path)
    config = {"messageIndexEnable": "false", "mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 6000}
    report = judge_of(VERSION).examine(store, config)
    assert sum(len(queue["messages"]) for queue in report["served"]["queues"]) == 20
    assert not (store / "index").exists()
    with judge_of(VERSION).open(tmp_path / "new", {**config, "messageIndexEnable": "true"}) as new:
        new.put({"topic": "T", "queueId": 0, "body": b"x", "properties": {}})
        new.wait_dispatched()
        assert (tmp_path / "new/index").exists()  # the first message makes the directory, without a key too
