"""Real brokers serve the store that a frame was written as, and continue its queues."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.pipeline.store_sink import SinkOptions, write_store
from tests.broker.test_extract import CONFIG
from tests.broker.whole import WholeBroker

COUNT = 300


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_consumers_get_what_the_rows_say(tmp_path: Path, version: str) -> None:
    bodies = [b"order %d" % number for number in range(COUNT)]
    rows = pa.table({"topic": ["Orders"] * COUNT, "body": bodies, "queue_id": [n % 2 for n in range(COUNT)]})
    sizes = SinkOptions(
        CONFIG["mappedFileSizeCommitLog"],
        CONFIG["mappedFileSizeConsumeQueue"],
        CONFIG["maxHashSlotNum"],
        CONFIG["maxIndexNum"],
        rules_for(version),
    )
    store = tmp_path / "store"
    assert write_store(rows.to_batches(), store, sizes) is not None
    with WholeBroker(version, store, CONFIG) as broker:
        served = {queue["queueId"]: queue["messages"] for queue in broker.consume("Orders")}
        sent = broker.send("Orders", 1, b"next")
    for queue_id in (0, 1):
        assert [message["body"] for message in served[queue_id]] == bodies[queue_id::2]
    assert sent["queueOffset"] == COUNT // 2
