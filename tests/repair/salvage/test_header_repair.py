"""Wrong headers of records that name further queues (light message queues) beside their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.verify.stores import above_note, verified, writer_of

STORES = ["4.9.7-lmq", "5.5.0-lmq"]
LOG = "commitlog/00000000000000000000"
TOPIC = b"mqtt"
UNIT_SIZE = 20


def _record(path: Path, queue_offset: int) -> int:
    """The physical offset of a record of queue 1, which names two more queues."""
    units = next((path / "consumequeue/mqtt/1").iterdir()).read_bytes()
    return int.from_bytes(units[queue_offset * UNIT_SIZE :][:8], "big")


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("field", ["queue-offset", "queue-id", "topic"])
def test_the_own_queue_of_a_record_is_set_right(golden_copy: Unpacked, name: str, field: str) -> None:
    path = golden_copy(name)
    before = (path / LOG).read_bytes()
    record = _record(path, 2)
    position, value = {
        "queue-offset": (record + 20, ((1 << 63) - 1).to_bytes(8, "big")),
        "queue-id": (record + 12, (77).to_bytes(4, "big")),
        "topic": (before.index(TOPIC, record), b"mqtT"),
    }[field]
    (path / LOG).write_bytes(before[:position] + value + before[position + len(value) :])
    assert above_note(verified(path, writer_of(name))[1])["commitlog.doubtful-header"] == 1
    assert rmqtool("salvage", path, "--yes").code == 0
    assert (path / LOG).read_bytes() == before
    assert not above_note(verified(path, writer_of(name))[1])
