"""Numbers at the end of what Java has: sizes of queue files, and names of files that no broker lives to write."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rmqtool.quantities import JAVA_INT_MAX, JAVA_LONG_MAX
from rmqtool.store.config.broker_conf import broker_conf
from tests.broker.files import copy_store
from tests.broker.test_forecast_rare import CONFIG, LOG_FILE_SIZE, JudgeOf, assert_same, killed_store

QUEUE_FILE_SIZE_MAX = JAVA_INT_MAX // 20 * 20


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize("size", [QUEUE_FILE_SIZE_MAX - 19, QUEUE_FILE_SIZE_MAX, QUEUE_FILE_SIZE_MAX + 1, JAVA_INT_MAX])
def test_a_queue_file_is_as_long_as_it_is_said_to_become(
    judge_of: JudgeOf, tmp_path: Path, version: str, size: int
) -> None:
    path = tmp_path / "store"
    path.mkdir()
    store = judge_of(version).open(path, {**CONFIG, "mappedFileSizeConsumeQueue": size})
    store.put({"topic": "T", "queueId": 0, "body": b"x"})
    file = path / "consumequeue" / "T" / "0" / ("0" * 20)
    for _ in range(600):  # the broker makes it when it dispatches the record
        if file.exists():
            break
        time.sleep(0.1)
    store.halt()
    conf = broker_conf({"mappedFileSizeConsumeQueue": str(size)})
    assert (conf.sizes.consumequeue_file_size or 0) == file.stat().st_size
    assert bool(conf.odd_sizes) is (file.stat().st_size == 0)


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize("place", ["consumequeue/T/0", "commitlog"])
def test_a_file_with_the_highest_offsets(judge_of: JudgeOf, tmp_path: Path, version: str, place: str) -> None:
    judge, path = judge_of(version), tmp_path / "store"
    killed_store(judge, path, CONFIG)
    for start in (JAVA_LONG_MAX - JAVA_INT_MAX, JAVA_LONG_MAX - JAVA_INT_MAX + 1, JAVA_LONG_MAX - LOG_FILE_SIZE):
        for is_zero in (False, True):
            copy = tmp_path / f"{start}-{is_zero}"
            copy_store(path, copy)
            like = max((copy / place).iterdir()).read_bytes()
            (copy / place / f"{start:020}").write_bytes(bytes(len(like)) if is_zero else like)
            assert_same(judge, copy, CONFIG)
