"""A consumer's offset is compared with the end that its queue has once all of the log is dispatched."""

from __future__ import annotations

import json

import pytest

from rmqtool.engine.rules.versions import NEWEST
from tests.engine.memory_view import log_file, made_store, queue_file, record
from tests.verify.stores import verified

KIND = "config.consumer-offset-beyond-queue"


@pytest.mark.parametrize("dispatched", [0, 1, 3])
@pytest.mark.parametrize(("consumed", "count"), [(3, 0), (4, 1)])
def test_the_end_is_the_one_of_the_log(dispatched: int, consumed: int, count: int) -> None:
    """Also where the queue has no file at all: a broker that was killed early leaves none."""
    first = record(0, queue_offset=0)
    size = len(first)
    records = [first, *(record(number * size, queue_offset=number) for number in (1, 2))]
    files = {
        "abort": b"",
        "commitlog/00000000000000000000": log_file(records, 4096),
        "config/consumerOffset.json": json.dumps({"offsetTable": {"T@group": {"0": consumed}}}).encode(),
    }
    if dispatched:
        units = [(number * size, size, 0) for number in range(dispatched)]
        files["consumequeue/T/0/00000000000000000000"] = queue_file(units)
    summary, _ = verified(made_store(files, commitlog_file_size=4096, consumequeue_file_size=200), NEWEST)
    assert summary.findings["consumequeue.behind-log"] == (dispatched < 3)
    assert summary.findings[KIND] == count
