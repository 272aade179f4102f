"""Requests of clients to a whole broker and to ours: the same answer, the same bytes in log, queues and index."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker import Judge
from tests.broker.clients import COMMIT, ROLLBACK, End, Request, Send, SendBack, SendBatch, asked_both

JudgeOf = Callable[[str], Judge]
VERSIONS = ("4.9.7", "5.5.0")
KEY = {"UNIQ_KEY": "7F00000112672A139A5537AE80EE0000"}
SENT = {**KEY, "KEYS": "order-1", "TAGS": "paid", "WAIT": "true"}
HALF = {**SENT, "TRAN_MSG": "true", "PGROUP": "shop"}
LAST = Send(properties=KEY, body=b"the last one")

CHECKS: dict[str, Request] = {
    "a known topic": Send(properties=SENT),
    "a topic that is made": Send("new", properties=SENT),
    "the queue behind its last one": Send("new", 4, SENT),
    "a queue behind the last one": Send(queue_id=4, properties=SENT),
    "a queue that the broker chooses": Send(queue_id=-1, properties=SENT),
    "a blank topic": Send(" ", properties=SENT),
    "a space in a topic": Send("a b", properties=SENT),
    "a topic of 128 characters": Send("t" * 128, properties=SENT),
    "a retry topic of 200 characters": Send("%RETRY%" + "g" * 193, properties=SENT),
    "the schedule topic": Send("SCHEDULE_TOPIC_XXXX", properties=SENT),
    "the half topic": Send("RMQ_SYS_TRANS_HALF_TOPIC", properties=SENT),
    "the topic of RocksDB's half messages": Send("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", properties=SENT),
    "a system topic that clients may use": Send("BenchmarkTest", 1000, SENT),
    "the model of new topics": Send("TBW102", properties=SENT),
    "a reserved prefix": Send("rmq_sys_mine", properties=SENT),
    "a body that is too long": Send(properties=SENT, body=bytes((4 << 20) + 1)),
    "no body": Send(properties=SENT, body=b""),
    "properties that are too long": Send(properties={**SENT, "a": "b" * 33_000}),
    "a delay level": Send(properties={**SENT, "DELAY": "3"}),
    "no wish to wait": Send(properties={**SENT, "WAIT": "false"}),
    "a property that only brokers set": Send(properties={**SENT, "CLUSTER": "mine", "POP_CK": "1 2 3"}),
    "a priority": Send(properties={**SENT, "_SYS_MSG_PRIORITY_": "2"}),
    "a priority beside a delay": Send(properties={**SENT, "_SYS_MSG_PRIORITY_": "2", "DELAY": "2"}),
    "a lite topic": Send(properties={**SENT, "__LITE_TOPIC": "sub"}),
    "sysFlag of a transaction": Send(properties=SENT, sys_flag=4),
    "a compressed body": Send(properties=SENT, sys_flag=1, body=b"x\x9c\x03\x00\x00\x00\x00\x01"),
    "a retry": Send("%RETRY%buyers", properties={**SENT, "DELAY": "2"}, reconsume_times=3),
    "a retry at the limit": Send("%RETRY%buyers", properties={**SENT, "DELAY": "2"}, reconsume_times=16),
    "a retry above the limit": Send("%RETRY%buyers", properties={**SENT, "DELAY": "2"}, reconsume_times=17),
    "a batch": SendBatch(properties={"WAIT": "true"}),
    "a batch with a unique key": SendBatch(properties=KEY),
    "a batch for a batch queue": SendBatch("packed", properties=KEY),
    "a batch to a retry topic": SendBatch("%RETRY%buyers", properties=KEY),
    "a batch with a delay": SendBatch(properties={**KEY, "DELAY": "2"}),
}
QUEUES = {
    "orders": {"readQueueNums": 4, "writeQueueNums": 4},
    "packed": {"readQueueNums": 1, "writeQueueNums": 1, "attributes": {"+queue.type": "BatchCQ"}},
}


@pytest.mark.parametrize("version", [*VERSIONS, *(pytest.param(v, marks=pytest.mark.slow) for v in ("5.3.3", "5.4.0"))])
def test_each_message_is_answered_and_stored_as_by_the_broker(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    del judge_of  # a whole broker needs the tools that it asks for
    both = asked_both(version, tmp_path, [*CHECKS.values(), LAST], topics=QUEUES)
    assert [(list(CHECKS)[number], *rest) for number, *rest in both.wrong_codes()] == []
    assert list(both.differences()) == []


TRANSACTIONS: tuple[Request, ...] = (
    Send(properties=HALF, sys_flag=4, queue_id=2),
    Send(properties=HALF, sys_flag=4, body=b"second"),
    Send(properties={**HALF, "DELAY": "2"}, body=b"delayed"),
    End(0),
    End(1, ROLLBACK),
    Send(properties=HALF, body=b"of another group"),
    End(5, COMMIT, "others"),
    End(5, COMMIT),
    Send(properties=SENT, body=b"no half message"),
    End(8, COMMIT),
    LAST,
)


@pytest.mark.parametrize("version", VERSIONS)
def test_transactions_end_as_in_the_broker(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    del judge_of
    both = asked_both(version, tmp_path, TRANSACTIONS, ends=True)
    assert both.wrong_codes() == []
    assert list(both.differences()) == []


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_late_end_is_refused_where_a_time_was_given(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    """The answers only: at its stop a broker puts a half message that it was to spare so long once more."""
    del judge_of
    half = Send(properties={**HALF, "CHECK_IMMUNITY_TIME_IN_SECONDS": "1"}, body=b"spared for a second, long ago")
    both = asked_both(version, tmp_path, [half, End(0), LAST])
    assert both.wrong_codes() == []


def test_a_broker_can_reject_transactions(judge_of: JudgeOf, tmp_path: Path) -> None:
    del judge_of
    both = asked_both("5.5.0", tmp_path, [*TRANSACTIONS[:2], LAST], {"broker.rejectTransactionMessage": True})
    assert both.wrong_codes() == []
    assert list(both.differences()) == []


RETRIES: tuple[Request, ...] = (
    Send(properties=SENT, queue_id=3, flag=7),
    SendBack(0),
    SendBack(0, level=2),
    SendBack(0, level=-1),
    SendBack(0, retries_max=0),
    Send("%RETRY%buyers", properties={**SENT, "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "7F00"}, reconsume_times=2),
    SendBack(5),
    SendBack(5, retries_max=2),
    SendBack(0, group="a b"),
    SendBack(0, group="g" * 121),
    SendBack(None, physical_offset=1 << 30),
    SendBatch(properties=KEY),
    SendBack(11),
    LAST,
)


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_are_sent_back_as_to_the_broker(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    del judge_of
    both = asked_both(version, tmp_path, RETRIES)
    assert both.wrong_codes() == []
    assert list(both.differences()) == []


ORDERS = {"readQueueNums": 4, "writeQueueNums": 4}
SETTINGS: dict[str, tuple[dict[str, object], dict[str, Any], list[Request]]] = {
    "a broker that may not be written to": (
        {"broker.brokerPermission": 4},
        {"orders": ORDERS, "ordered": {**ORDERS, "order": True}},
        [Send(properties=SENT), Send("ordered", properties=SENT), SendBack(0)],
    ),
    "topics that may not be written to, and a compacted one": (
        {},
        {
            "orders": {**ORDERS, "perm": 4},
            "%RETRY%buyers": {**ORDERS, "perm": 4},
            "keyed": {**ORDERS, "attributes": {"+cleanup.policy": "COMPACTION"}},
        },
        [Send(properties=SENT), SendBack(0), Send("keyed", properties=KEY), Send("keyed", properties=SENT)],
    ),
    "a broker that makes nothing": (
        {"broker.autoCreateTopicEnable": False, "broker.autoCreateSubscriptionGroup": False},
        {"orders": ORDERS},
        [Send(properties=SENT), Send("new", properties=SENT), Send("%RETRY%buyers", properties=SENT), SendBack(0)],
    ),
    "a broker that takes no messages yet": (
        {"broker.startAcceptSendRequestTimeStamp": 9_000_000_000_000},
        {"orders": ORDERS},
        [Send(properties=SENT)],
    ),
    "a broker of another name": (
        {
            "broker.brokerClusterName": "Mine", "broker.regionId": "Here", "broker.traceOn": False,
            "broker.defaultTopicQueueNums": 2,
        },
        {"orders": ORDERS},
        [Send(properties=SENT), Send("new", 2, SENT), Send("new", 1, SENT)],
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", SETTINGS)
def test_settings_refuse_as_in_the_broker(judge_of: JudgeOf, tmp_path: Path, case: str, version: str) -> None:
    del judge_of
    config, topics, requests = SETTINGS[case]
    both = asked_both(version, tmp_path, requests, config, topics)
    assert both.wrong_codes() == []
    assert list(both.differences()) == []
