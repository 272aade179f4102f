"""Statuses of disk and replicas that need no broker to be seen; tests/broker/test_store_state.py has the rest."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rmqtool.engine.append.message import Message
from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.status import PutStatus
from rmqtool.engine.append.store_writer import replica_refusal, replica_status, state_refusal
from rmqtool.engine.append.writer_config import Replication, Slave, WriterConfig, config_from
from rmqtool.engine.rules.versions import rules_for
from rmqtool.store.config.broker_conf import broker_conf
from rmqtool.store.sink import DirectorySink

OLD, NEW = rules_for("4.9.7"), rules_for("5.5.0")
MESSAGE = Message(topic="t", body=b"x")
SYNC = {"brokerRole": "SYNC_MASTER"}


def replication(slave: Slave = Slave.NONE, **settings: str) -> Replication:
    read = config_from(broker_conf({**SYNC, **settings})).replication
    return Replication(**{**{name: getattr(read, name) for name in read.__dataclass_fields__}, "slave": slave})


@pytest.mark.parametrize(
    ("slave", "old", "new"),
    [
        (Slave.NONE, PutStatus.SLAVE_NOT_AVAILABLE, PutStatus.FLUSH_SLAVE_TIMEOUT),
        (Slave.SILENT, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT),
        (Slave.ACKNOWLEDGES, PutStatus.PUT_OK, PutStatus.PUT_OK),
    ],
)
def test_a_slave_decides_the_answer(slave: Slave, old: PutStatus, new: PutStatus) -> None:
    wanted = replication(slave, inSyncReplicas="2")
    assert (replica_status(MESSAGE, wanted, OLD), replica_status(MESSAGE, wanted, NEW)) == (old, new)


def test_a_master_whose_slave_may_act_for_it_writes_nothing_without_one() -> None:
    settings = {"inSyncReplicas": "2", "enableSlaveActingMaster": "true"}
    refused = replica_refusal(MESSAGE, replication(**settings), NEW)
    assert refused is not None
    assert refused.status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
    assert replica_refusal(MESSAGE, replication(Slave.SILENT, **settings), NEW) is None
    assert replica_refusal(MESSAGE, replication(**settings, enableAutoInSyncReplicas="true"), NEW) is None
    assert replica_refusal(MESSAGE, replication(**settings), OLD) is None


def test_a_slave_takes_no_messages() -> None:
    slave = Replication(role="SLAVE")
    for rules in (OLD, NEW):
        refused = state_refusal(slave, rules, is_open=True, is_writable=True)
        assert refused is not None
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE


def test_a_disk_that_is_too_slow_is_told_to_those_who_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_sync = DirectorySink.sync

    def slow(self: DirectorySink, path: str) -> None:
        time.sleep(0.02)
        real_sync(self, path)

    config = WriterConfig(commitlog_file_size=65536, synchronous_flush=True, flush_timeout_ms=5)
    with new_store(tmp_path, NEW, config) as writer:
        monkeypatch.setattr(DirectorySink, "sync", slow)
        waiting = writer.put(MESSAGE)
        other = writer.put(Message(topic="t", body=b"x", properties={"WAIT": "false"}))
    assert (waiting.status, waiting.is_written) == (PutStatus.FLUSH_DISK_TIMEOUT, True)
    assert (other.status, other.is_written) == (PutStatus.PUT_OK, True)


def test_many_messages_stop_where_a_file_cannot_be_made(tmp_path: Path) -> None:
    config = WriterConfig(commitlog_file_size=2048)
    with new_store(tmp_path, NEW, config) as writer:
        (tmp_path / "commitlog" / f"{2 * 2048:020}").mkdir()
        results = writer.put_all([MESSAGE] * 100)
        writer.close(crash=True)
    written = [result for result in results if result.is_written]
    assert 0 < len(written) < 100
    assert {result.status for result in results[len(written) :]} == {PutStatus.CREATE_MAPPED_FILE_FAILED}
    assert written[-1].physical_offset < 4096
