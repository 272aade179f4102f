"""Statuses that come from the store's own state, and from its replicas: those of real stores."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtool.engine.append.message import Message
from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.status import PutStatus, status_name
from rmqtool.engine.append.store_writer import StoreWriter
from rmqtool.engine.append.writer_config import Slave, config_from
from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.recipe import SMALL
from rmqtool.store.config.broker_conf import broker_conf
from tests.broker.broker import Answer, Judge, setting_texts
from tests.broker.writing import judge_message

JudgeOf = Callable[[str], Judge]
VERSIONS = ("4.9.7", "5.5.0")
PLAIN = Message(topic="T", body=b"x", properties={"WAIT": "true"})
IMPATIENT = Message(topic="T", body=b"x", properties={"WAIT": "false"})


@contextmanager
def ours(
    path: Path, version: str, config: Mapping[str, Any] | None = None, slave: Slave = Slave.NONE
) -> Iterator[StoreWriter]:
    settings = {**SMALL, **setting_texts(config or {})}
    writer_config = config_from(broker_conf({name.removeprefix("broker."): v for name, v in settings.items()}))
    writer_config = replace(writer_config, replication=replace(writer_config.replication, slave=slave))
    with new_store(path, rules_for(version), writer_config) as writer:
        yield writer


def told(answer: Answer) -> tuple[str, str | None]:
    return answer["status"], answer.get("appendStatus")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_store_that_takes_nothing_says_why(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    with judge_of(version).open(tmp_path / "real", SMALL) as store:
        store.set_condition(disk_full=True)
        [read_only] = store.put(judge_message(PLAIN))
        store.set_condition(busy_ms=5000)
        [busy] = store.put(judge_message(PLAIN))
        store.set_condition()
        [taken] = store.put(judge_message(PLAIN))
    rules = rules_for(version)
    with ours(tmp_path / "ours", version) as writer:
        writer.is_writable = False
        our_read_only = writer.put(PLAIN)
        writer.is_writable = True
        writer._busy_since = -1e6
        our_busy = writer.put(PLAIN)
        writer._busy_since = None
        our_taken = writer.put(PLAIN)
        writer.close()
        our_closed = writer.put(PLAIN)
    statuses = [status_name(result.status, rules) for result in (our_read_only, our_busy, our_taken)]
    assert [answer["status"] for answer in (read_only, busy, taken)] == statuses
    assert our_closed.status == our_read_only.status == "SERVICE_NOT_AVAILABLE"
    assert not our_busy.is_written


ACTED_FOR = {"inSyncReplicas": 2, "slaveTimeout": 300, "broker.enableSlaveActingMaster": True}
REPLICAS: dict[str, tuple[str, dict[str, Any], Message]] = {
    "4.x without a slave": ("4.9.7", {}, PLAIN),
    "4.x, a sender that does not wait": ("4.9.7", {}, IMPATIENT),
    "5.x, which counts itself": ("5.5.0", {}, PLAIN),
    "5.x with too few replicas": ("5.5.0", {"inSyncReplicas": 2, "slaveTimeout": 300}, PLAIN),
    "5.x, a sender that does not wait": ("5.5.0", {"inSyncReplicas": 2, "slaveTimeout": 300}, IMPATIENT),
    "5.x whose slave may act for it": ("5.5.0", ACTED_FOR, PLAIN),
    "5.x whose slave may act for it, a sender that does not wait": ("5.5.0", ACTED_FOR, IMPATIENT),
    "5.x that makes do with those alive": (
        "5.5.0",
        {**ACTED_FOR, "enableAutoInSyncReplicas": True, "minInSyncReplicas": 1},
        PLAIN,
    ),
    "5.x that makes do with too few": (
        "5.5.0",
        {**ACTED_FOR, "enableAutoInSyncReplicas": True, "minInSyncReplicas": 2},
        PLAIN,
    ),
}


@pytest.mark.parametrize("case", REPLICAS)
def test_a_synchronous_master_without_a_slave(judge_of: JudgeOf, tmp_path: Path, case: str) -> None:
    version, config, message = REPLICAS[case]
    config = {"brokerRole": "SYNC_MASTER", **config}
    with judge_of(version).open(tmp_path / "real", {**SMALL, **config}) as store:
        [real] = store.put(judge_message(message))
    with ours(tmp_path / "ours", version, config) as writer:
        result = writer.put(message)
    assert told(real) == (status_name(result.status, rules_for(version)), "PUT_OK" if result.is_written else None)
    assert result.is_written is (result.status is not PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_that_cannot_be_made(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    """A directory has its name: the message is refused, and so is each one after it."""
    messages = [replace(PLAIN, body=bytes(30_000)) for _ in range(6)]
    blocked = f"commitlog/{2 * 65536:020}"
    with judge_of(version).open(tmp_path / "real", SMALL) as store:
        (tmp_path / "real" / blocked).mkdir(parents=True)
        real = store.put(*map(judge_message, messages[:5]))
        store.halt()
    with ours(tmp_path / "ours", version) as writer:
        (tmp_path / "ours" / blocked).mkdir(parents=True)
        results = writer.put_all(messages[:5])
        assert not writer.put(messages[5]).is_written
        writer.close(crash=True)
    assert [result.is_written for result in results] == [True] * 4 + [False]
    assert real[-1]["status"] == status_name(results[-1].status, rules_for(version))
    # A broker makes a file in advance; if that fails, it may refuse the file before too.
    assert [answer["status"] for answer in real[:2]] == ["PUT_OK"] * 2
    first = f"commitlog/{0:020}"
    theirs, mine = ((tmp_path / store / first).read_bytes()[-5000:] for store in ("real", "ours"))
    assert theirs == mine


@pytest.mark.parametrize("version", VERSIONS)
def test_a_disk_that_is_too_slow(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    """No disk is in time if it has none; the sender is told so, and the message is stored all the same."""
    config = {**SMALL, "flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "0"}
    with judge_of(version).open(tmp_path / "real", config) as store:
        # A flush may be done before the watcher of the deadline looks.
        real = next(
            each for each in (store.put(judge_message(PLAIN))[0] for _ in range(200)) if each["status"] != "PUT_OK"
        )
        [other] = store.put(judge_message(IMPATIENT))
    with ours(tmp_path / "ours", version, {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": 0}) as writer:
        waiting, impatient = writer.put(PLAIN), writer.put(IMPATIENT)
    rules = rules_for(version)
    assert told(real) == (status_name(waiting.status, rules), "PUT_OK") == ("FLUSH_DISK_TIMEOUT", "PUT_OK")
    assert waiting.is_written
    assert told(other) == (status_name(impatient.status, rules), "PUT_OK")
