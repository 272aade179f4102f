"""Real brokers and name servers understand our requests, and we their answers."""

from pathlib import Path

import pytest

from rmqtool.errors import AnswerError
from rmqtool.formats import properties, system_flag
from rmqtool.formats.remoting import RequestCode
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.requests import (
    SentMessage,
    pull_records,
    queue_offset,
    send_message,
    topic_route,
)
from tests.broker.whole import WholeBroker

CONFIG = {"mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 600}
TOPICS = {"Orders": {"readQueueNums": 4, "writeQueueNums": 3}}


@pytest.mark.parametrize("version", ["4.4.0", "4.9.7", "5.1.4", "5.5.0"])
def test_a_message_goes_to_a_real_broker_and_comes_back(tmp_path: Path, version: str) -> None:
    text = properties.encode_properties({"KEYS": "k 订单", "UNIQ_KEY": "A" * 32}, trailing_separator=True).decode()
    message = SentMessage("Orders", 2, b"body" * 1000, text, 5, 0, 1_600_000_000_000, 0)
    with WholeBroker(version, tmp_path, CONFIG, TOPICS) as broker:
        broker.await_route("Orders")
        with Connection(broker.started["nameServer"]) as name_server:
            route = topic_route(name_server, "Orders") or []
            assert topic_route(name_server, "NoSuchTopic") is None
        assert [(one.address, one.read_queues, one.write_queues) for one in route] == [
            (broker.started["address"], 4, 3)
        ]
        with Connection(route[0].address) as connection:
            assert [
                queue_offset(connection, RequestCode.GET_MAX_OFFSET, "Orders", 2),
                queue_offset(connection, RequestCode.GET_MIN_OFFSET, "Orders", 2),
            ] == [0, 0]
            answers = [send_message(connection, message, "rmqtool") for _ in range(2)]
            assert [(each.code, each.queue_offset) for each in answers] == [(0, 0), (0, 1)]
            refused = send_message(connection, SentMessage("Orders", 9, b"x", "", 0, 0, 0, 0), "rmqtool")
            assert refused.code != 0
            assert "queueId" in refused.remark
            [queue] = [queue for queue in broker.consume("Orders") if queue["queueId"] == 2]
            assert queue_offset(connection, RequestCode.GET_MAX_OFFSET, "Orders", 2) == 2
            pulled = pull_records(connection, "Orders", 2, 1)
            at_end = pull_records(connection, "Orders", 2, 2)
            with pytest.raises(AnswerError, match="pull of queue 7"):
                pull_records(connection, "Orders", 7, 0)
    assert (pulled.next_queue_offset, pulled.max_queue_offset) == (2, 2)
    assert message.body in pulled.records
    assert at_end.records == b""
    for stored in queue["messages"]:
        assert (stored["body"], stored["flag"], stored["bornTimestamp"]) == (message.body, 5, 1_600_000_000_000)
        assert stored["properties"]["KEYS"] == "k 订单"
        assert stored["properties"]["UNIQ_KEY"] == "A" * 32
        assert not system_flag.compression(stored["sysFlag"])
