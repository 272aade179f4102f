"""Wrong headers of records that name further queues (light message queues) beside their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.formats.system_flag import TRANSACTION_MASK
from tests import golden_stores
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


PREPARED_AT = 76
SYS_FLAG_AT = 36


def _with_half_at(path: Path, record: int, half_offset: int, sys_flag: int) -> bytes:
    """A record says that its transaction started there; the log as it was."""
    before = (path / LOG).read_bytes()
    raw = bytearray(before)
    raw[record + SYS_FLAG_AT : record + SYS_FLAG_AT + 4] = sys_flag.to_bytes(4, "big")
    raw[record + PREPARED_AT : record + PREPARED_AT + 8] = half_offset.to_bytes(8, "big", signed=True)
    (path / LOG).write_bytes(raw)
    return before


@pytest.mark.parametrize("half_offset", [1 << 40, -5])
def test_a_message_of_no_transaction_starts_none(golden_copy: Unpacked, half_offset: int) -> None:
    path = golden_copy("5.5.0-clean-basic")
    before = _with_half_at(path, 0, half_offset, 0)
    assert above_note(verified(path, writer_of(path.name))[1])["commitlog.doubtful-header"] == 1
    assert rmqtool("salvage", path, "--yes").code == 0
    assert (path / LOG).read_bytes() == before
    assert rmqtool("verify", path).code == 0


def test_no_command_is_advised_where_nothing_shows_where_a_transaction_starts(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-clean-basic")
    _with_half_at(path, 0, 1 << 40, 8)
    ran = rmqtool("verify", path)
    assert ran.code == 3
    assert "commitlog.doubtful-header" in ran.out
    assert "rmqtool salvage" not in ran.out


def test_brokers_write_no_start_of_a_transaction_into_other_messages() -> None:
    records = [record for name in golden_stores.names() for record in golden_stores.manifest(name).records]
    plain = {record.prepared_transaction_offset for record in records if not record.sys_flag & TRANSACTION_MASK}
    assert plain == {0}
    assert len({record.prepared_transaction_offset for record in records}) > 1
