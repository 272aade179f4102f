"""Stores that a whole broker wrote and closed cleanly: each message it served is pulled, found by key and by place."""

from __future__ import annotations

from typing import Any

import pytest

from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.versions import rules_for
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.conftest import Unpacked
from tests.golden_stores import broker_manifest, broker_names

CLEAN = [name for name in broker_names() if broker_manifest(name)["end"] == "clean" and "compaction" not in name]


def served_queues(name: str) -> list[dict[str, Any]]:
    return list(broker_manifest(name)["served"]["queues"])


@pytest.mark.parametrize("name", CLEAN)
def test_each_message_is_pulled_in_order(golden: Unpacked, name: str) -> None:
    pulled = 0
    with open_reader(
        survey(open_directory(golden(name))), rules_for(broker_manifest(name)["broker_version"])
    ) as reader:
        for queue in served_queues(name):
            loaded = reader.queue(queue["topic"], queue["queue"])
            written_since = len(queue.get("written_since_start") or [])
            assert loaded.min_queue_offset == queue["min"]
            assert loaded.max_queue_offset == queue["max"] - written_since
            at = queue["min"]
            places = []
            while (found := reader.get_message(queue["topic"], queue["queue"], at)).messages:
                places += [(message.physical_offset, message.size) for message in found.messages]
                at = found.next_begin_offset
            assert places == [(row["physical_offset"], row["record_size"]) for row in queue["messages"]]
            pulled += len(places)
    assert pulled > 30


@pytest.mark.parametrize("name", CLEAN)
def test_each_message_is_found_by_its_unique_key(golden: Unpacked, name: str) -> None:
    with open_reader(
        survey(open_directory(golden(name))), rules_for(broker_manifest(name)["broker_version"])
    ) as reader:
        for queue in served_queues(name):
            for row in queue["messages"][:10]:
                message = reader.message_at(row["physical_offset"])
                assert message is not None
                assert message.record is not None
                assert message.record.body_crc == row["stored_body_crc"]
                assert message.record.store_timestamp_ms == row["store_timestamp_ms"]
                key = message.record.unique_key
                if key is not None:
                    found = reader.query_message(message.record.topic, key, 64)
                    assert row["physical_offset"] in found.indexed_physical_offsets
                    assert any(found.carries_key)
