"""What of a store is sent: messages that consumers could get, as new messages; everything else has its reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rmqtool.dump.waiting import waiting_of
from rmqtool.engine.append.message import Message
from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.rules.versions import rules_for
from rmqtool.formats import system_flag
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.replay.outgoing import NotSent, Outgoing, Selection, outgoing_messages
from rmqtool.store.location import survey_store

RULES = rules_for("5.5.0")
STORED_MS = 1_700_000_000_000
FIRST_LEVEL_MS, NINTH_LEVEL_MS = 1_000, 5 * 60_000
MESSAGES = [
    Message(topic="T", body=b"plain", properties={"KEYS": "k", "CLUSTER": "c", "TIMER_OUT_MS": "1"}, queue_id=2),
    Message(topic="T", body=b"at once", properties={"DELAY": "1", "KEYS": "d"}, queue_id=3),
    Message(topic="T", body=b"later", properties={"DELAY": "9"}, queue_id=1),
    Message(topic="T", body=b"committed", sys_flag=system_flag.TRANSACTION_COMMIT | 1, properties={"TRAN_MSG": "true"}),
    Message(topic="T", body=b"half", sys_flag=system_flag.TRANSACTION_PREPARED),
    Message(topic="RMQ_SYS_TRANS_OP_HALF_TOPIC", body=b"1"),
    Message(topic="rmq_sys_REVIVE_LOG_c", body=b"x"),
    Message(topic="%RETRY%group", body=b"again"),
    Message(topic="T", body=b"lost", prepared_transaction_offset=TOMBSTONE),
    Message(topic="T", body=b""),
    Message(topic="Other", body=b"other"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with new_store(tmp_path / "s", RULES, WriterConfig(commitlog_file_size=65536), lambda: STORED_MS) as writer:
        writer.put_all(MESSAGES)
    return tmp_path / "s"


def entries(root: Path, selection: Selection, now_ms: int) -> tuple[dict[bytes, Outgoing], Counter[str]]:
    store = survey_store(root)
    rows = list(outgoing_messages(store, RULES, selection, waiting_of(store, RULES), now_ms))
    reasons = Counter(row.reason.value for row in rows if isinstance(row, NotSent))
    return {row.body: row for row in rows if isinstance(row, Outgoing)}, reasons


def test_each_kind_of_message(root: Path) -> None:
    sent, reasons = entries(root, Selection(), STORED_MS + 60_000)
    assert {*sent} == {b"plain", b"at once", b"later", b"committed", b"other"}
    assert reasons == {
        "transaction-record": 2, "broker-topic": 1, "retry-or-dead-letter": 1, "tombstone": 1, "no-body": 1,
    }  # fmt: skip
    plain = sent[b"plain"].properties
    assert plain.keys() == {"KEYS", "RMQTOOL_MESSAGE_ID", "RMQTOOL_STORE_TIME", "RMQTOOL_QUEUE_OFFSET"}
    assert (plain["RMQTOOL_STORE_TIME"], plain["RMQTOOL_QUEUE_OFFSET"]) == (str(STORED_MS), "2:0")
    assert "TRAN_MSG" not in sent[b"committed"].properties
    assert sent[b"committed"].sys_flag == system_flag.COMPRESSED


def test_a_message_that_waits_goes_to_its_own_topic_at_once_or_later(root: Path) -> None:
    sent, _ = entries(root, Selection(), STORED_MS + FIRST_LEVEL_MS)
    due, later = sent[b"at once"], sent[b"later"]
    assert [(one.topic, one.queue_id) for one in (due, later)] == [("T", 3), ("T", 1)]
    assert not {"DELAY", "REAL_TOPIC", "REAL_QID"} & due.properties.keys()
    assert due.properties["KEYS"] == "d"
    assert later.properties["DELAY"] == "9"
    assert "DELAY" not in entries(root, Selection(), STORED_MS + NINTH_LEVEL_MS)[0][b"later"].properties


def test_what_is_asked_for_by_name_is_sent(root: Path) -> None:
    assert {*entries(root, Selection(("%RETRY%*",)), 0)[0]} == {b"again"}
    assert b"again" in entries(root, Selection(renames={"%RETRY%group": "T"}), 0)[0]
    assert {*entries(root, Selection(("Other",)), 0)[0]} == {b"other"}
    assert entries(root, Selection(from_ms=STORED_MS + 1), 0) == ({}, {})
    assert entries(root, Selection(to_ms=STORED_MS), 0) == ({}, {})


def test_damage_and_a_missing_file_are_counted(tmp_path: Path) -> None:
    with new_store(tmp_path / "s", RULES, WriterConfig(commitlog_file_size=4096), lambda: STORED_MS) as writer:
        writer.put_all([Message(topic="T", body=b"%d" % number * 300) for number in range(40)])
    log = sorted((tmp_path / "s/commitlog").iterdir())
    whole, _ = entries(tmp_path / "s", Selection(), 0)
    log[2].unlink()
    with log[4].open("r+b") as file:
        file.seek(100)
        file.write(b"\xff")
    sent, reasons = entries(tmp_path / "s", Selection(), 0)
    assert reasons == {"bad-range": 2}
    gone = [row for body, row in whole.items() if body not in sent]
    assert {row.physical_offset // 4096 for row in gone} == {2, 4}
    assert len([row for row in gone if row.physical_offset >= 4 * 4096]) == 1
