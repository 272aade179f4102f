"""The stores that inputs are made from: tiny ones, ones that brokers wrote, and what commands made of them."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from rmqtool.fixtures.recipe import make_store
from tests.campaign.cases import CASES
from tests.campaign.command import run
from tests.fuzz.tiny_recipes import TINY
from tests.golden_stores import unpack

VERSION: Final = "5.5.0"
MEMORY: Final = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a directory of its own is made there
Files = Mapping[str, bytes]

CONFIG: Final[Mapping[str, object]] = {
    "topics.json": {
        "dataVersion": {"counter": 3, "stateVersion": 0, "timestamp": 1700000000000},
        "topicConfigTable": {
            "orders": {"attributes": {"+message.type": "NORMAL"}, "order": False, "perm": 6, "readQueueNums": 2,
                       "topicFilterType": "SINGLE_TAG", "topicName": "orders", "topicSysFlag": 0, "writeQueueNums": 2},
            "payments": {"attributes": {"+cleanup.policy": "COMPACTION"}, "order": True, "perm": 6, "readQueueNums": 2,
                         "topicName": "payments", "topicSysFlag": 0, "writeQueueNums": 2},
        },
    },
    "consumerOffset.json": {"offsetTable": {"orders@g": {0: 2, 1: 1}, "payments@g": {0: 1}, "%RETRY%g@g": {0: 0}}},
    "lmqConsumerOffset.json": {"offsetTable": {"orders@g": {0: 2}}, "lmqOffsetTable": {"%LMQ%a@g": 1}},
    "subscriptionGroup.json": {
        "dataVersion": {"counter": 1, "timestamp": 1700000000000},
        "forbiddenTable": {"g": {"orders": 1}},
        "subscriptionGroupTable": {"g": {"groupName": "g", "consumeEnable": True, "retryQueueNums": 1,
                                         "retryMaxTimes": 16, "groupSysFlag": 0, "subscriptionDataSet": None}},
    },
    "consumerFilter.json": {"filterDataByTopic": {"orders": {"filterDataMap": {"g": {
        "topic": "orders", "consumerGroup": "g", "expression": "a > 1", "expressionType": "SQL92", "bornTime": 1,
        "deadTime": 0, "clientVersion": 2, "bloomFilterData": {"bitPos": [1, 2], "bitNum": 32}}}}}},
    "consumerOrderInfo.json": {"table": {"orders@g": {0: {"popTime": 1700000000000, "i": 60000, "l": 1700000000000,
                                                          "o": [0, 1], "oc": {}, "t": 1}}}},
    "delayOffset.json": {"offsetTable": {1: 2, 3: 1}, "dataVersion": {"counter": 1}},
    "topicQueueMapping.json": {"dataVersion": {"counter": 1}, "topicQueueMappingInfoMap": {
        "orders": {"bname": "b", "epoch": 1, "topic": "orders", "totalQueues": 2, "hostedQueues": {0: [
            {"gen": 0, "queueId": 0, "bname": "b", "logicOffset": 0, "startOffset": 0,
             "endOffset": -1}]}}}},
    "timermetrics": {"timingCount": {"orders": {"count": 1, "timeStamp": 1700000000000}},
                     "dataVersion": {"counter": 1}},
    "tieredStoreMetadata.json": {"maxTopicId": 1, "topicMetadataTable": {"orders": {
        "topic": "orders", "topicId": 0, "status": 0, "reserveTime": 1, "updateTimestamp": 1}},
        "queueMetadataTable": {}},
}  # fmt: skip
"""Every configuration file that has a reader, with a value for each kind of field."""
PROPERTIES: Final = """brokerName=b
storePathRootDir=store
storePathCommitLog=store/commitlog
mappedFileSizeCommitLog=4096
mappedFileSizeConsumeQueue=100
maxHashSlotNum=10
maxIndexNum=20
enableLmq=false
messageDelayLevel=1s 5s 10s 30s
storeType=default
flushDiskType=ASYNC_FLUSH
fileReservedTime=72
"""


@cache
def tiny(name: str = "tiny", version: str = VERSION, settings: tuple[tuple[str, str], ...] = ()) -> Files:
    """The files of a store of a tiny recipe, with every configuration file."""
    from dataclasses import replace

    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        root = Path(folder) / "store"
        recipe = TINY[name]
        make_store(replace(recipe, settings={**recipe.settings, **dict(settings)}), root, version)
        return files_below(root)


@cache
def with_config() -> Files:
    """A tiny store with every configuration file that has a reader."""
    return {**tiny(), **{f"config/{name}": json.dumps(value).encode() for name, value in CONFIG.items()}}


@cache
def golden(name: str) -> Files:
    """The files of a store that a broker wrote."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        return files_below(unpack(name, Path(folder)))


@cache
def case_files(name: str) -> Files:
    """The folder of a case of a repair."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        CASES[name].make(Path(folder))
        return files_below(Path(folder))


@cache
def made(command: str, files_of: str, *options: str) -> bytes:
    """What a command writes into one file, about a tiny store."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name)
        write_files(tiny(files_of), folder / "store")
        outcome = run(command, folder / "store", *[option.format(folder=folder) for option in options])
        assert outcome.code in (0, 3), outcome.said
        return (folder / "result").read_bytes()


def write_files(files: Mapping[str, bytes], root: Path) -> None:
    """Put files into a directory; names that no file can have are left out."""
    root.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        place = root / path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        except (OSError, ValueError):
            continue


def files_below(root: Path) -> Files:
    return {os.fspath(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
