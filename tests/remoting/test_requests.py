"""Requests: the fields that brokers expect go out, and answers that make no sense are named."""

from __future__ import annotations

import json
import tracemalloc
from contextlib import closing
from typing import Any

import pytest

from rmqtool.errors import AnswerError
from rmqtool.formats.remoting import RequestCode
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.requests import (
    SentMessage,
    TopicBroker,
    pull_records,
    queue_offset,
    send_message,
    topic_route,
)
from rmqtool.replay.cluster import Cluster
from tests.remoting_server import Reply, Request, answer, serving

OLD_ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.2:10911",1:"10.0.0.3:10911"},"brokerName":"b","cluster":"c"},'
    b'{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"a","cluster":"c"},'
    b'{"brokerAddrs":{1:"10.0.0.9:10911"},"brokerName":"slaves-only","cluster":"c"}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"a","perm":4,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":8},'
    b'{"brokerName":"b","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2},'
    b'{"brokerName":"slaves-only","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2}]}'
)


def asked(reply: Reply, ask: Any) -> Any:
    with serving(reply) as address, Connection(address, answer_seconds=5) as connection:
        return ask(connection)


def test_a_route_names_masters_in_order_with_what_they_permit() -> None:
    def reply(request: Request, _body: bytes) -> bytes:
        assert (request["code"], request["extFields"]["topic"]) == (105, "T")
        return answer(request, body=OLD_ROUTE)

    assert asked(reply, lambda server: topic_route(server, "T")) == [
        TopicBroker("a", "10.0.0.1:10911", 4, 0),
        TopicBroker("b", "10.0.0.2:10911", 2, 2),
    ]


def test_a_topic_without_a_route_is_no_error() -> None:
    assert asked(lambda request, _: answer(request, 17), lambda server: topic_route(server, "T")) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"brokerDatas":1,"queueDatas":[]}',
        OLD_ROUTE.replace(b":8}", b":-8}"),
        OLD_ROUTE.replace(b'"perm":6', b'"perm":"rw"'),
        OLD_ROUTE.replace(b'{0:"10.0.0.2:10911",1:"10.0.0.3:10911"}', b"[]"),
    ],
)
def test_a_route_that_makes_no_sense_is_a_clear_error(body: bytes) -> None:
    with pytest.raises(AnswerError, match="the route of topic T cannot be read"):
        asked(lambda request, _: answer(request, body=body), lambda server: topic_route(server, "T"))


def test_a_short_answer_with_many_queues_takes_no_memory() -> None:
    """149 kB that name a thousand brokers with 65,536 queues each took 651 MiB: each broker was within the limit."""
    names = [f"b{number}" for number in range(1000)]
    full = {"perm": 6, "readQueueNums": 65536, "writeQueueNums": 65536}
    route = {
        "brokerDatas": [{"brokerName": name, "brokerAddrs": {"0": "10.0.0.1:10911"}} for name in names],
        "queueDatas": [{"brokerName": name, **full} for name in names],
    }

    def reply(request: Request, _body: bytes) -> bytes:
        return answer(request, body=json.dumps(route).encode())

    with serving(reply) as address, closing(Cluster(address)) as cluster:
        tracemalloc.start()
        try:
            with pytest.raises(
                AnswerError, match="topic T names 65,536,000 queues on 1,000 brokers; rmqtool accepts up"
            ):
                cluster.queues("T")
            assert tracemalloc.get_traced_memory()[1] < 16 << 20
        finally:
            tracemalloc.stop()
    del route["brokerDatas"][1:]
    with serving(reply) as address, closing(Cluster(address)) as cluster:
        assert len(cluster.queues("T")) == 65536


def test_a_refusal_carries_the_servers_words() -> None:
    with pytest.raises(AnswerError, match="GET_MIN_OFFSET of queue 3 of topic T was refused: NO_PERMISSION: no") as no:
        asked(
            lambda request, _: answer(request, 16, remark="no"),
            lambda server: queue_offset(server, RequestCode.GET_MIN_OFFSET, "T", 3),
        )
    assert no.value.code == 16


@pytest.mark.parametrize("value", ["", "x", "--1", "9" * 30])
def test_an_offset_that_is_no_number_is_a_clear_error(value: str) -> None:
    with pytest.raises(AnswerError, match="field offset is"):
        asked(
            lambda request, _: answer(request, offset=value),
            lambda server: queue_offset(server, RequestCode.GET_MAX_OFFSET, "T", 3),
        )


def test_a_message_goes_out_as_a_producers() -> None:
    requests: list[tuple[Request, bytes]] = []

    def reply(request: Request, body: bytes) -> bytes:
        requests.append((request, body))
        return answer(request, queueOffset=41) if len(requests) == 1 else answer(request, 2, remark="[TIMEOUT_CLEAN]")

    message = SentMessage("T", 3, b"body", "KEYS\x01k\x02", -7, 1, 1_600_000_000_000, 2)

    def send(broker: Connection) -> list[tuple[int, str, int | None]]:
        answers = [send_message(broker, message, "group") for _ in range(2)]
        return [(each.code, each.remark, each.queue_offset) for each in answers]

    assert asked(reply, send) == [(0, "", 41), (2, "[TIMEOUT_CLEAN]", None)]
    request, body = requests[0]
    fields = request["extFields"]
    assert (request["code"], body) == (310, b"body")
    assert {name: fields[name] for name in "abefghij"} == {
        "a": "group", "b": "T", "e": "3", "f": "1", "g": "1600000000000", "h": "-7", "i": "KEYS\x01k\x02", "j": "2",
    }  # fmt: skip


@pytest.mark.parametrize(("code", "records"), [(0, b"records"), (19, b""), (20, b""), (21, b"")])
def test_a_pull_gives_records_or_none(code: int, records: bytes) -> None:
    def reply(request: Request, _body: bytes) -> bytes:
        assert request["extFields"]["queueOffset"] == "5"
        return answer(request, code, b"records", nextBeginOffset=7, minOffset=1, maxOffset=9)

    pulled = asked(reply, lambda broker: pull_records(broker, "T", 0, 5))
    assert (pulled.records, pulled.next_queue_offset) == (records, 7)
    assert (pulled.min_queue_offset, pulled.max_queue_offset) == (1, 9)
