"""The requests that rmqtool sends: the route of a topic, the ends of a queue, sending and pulling messages.

Broker: `RouteInfoManager#pickupTopicRouteData`, `AdminBrokerProcessor#getMaxOffset`, `SendMessageProcessor`,
`PullMessageProcessor`. A server that refuses, or whose answer cannot be read, is an AnswerError; one that is away a
ConnectionLostError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rmqtool.errors import AnswerError
from rmqtool.formats.remoting import PULL_SUBSCRIPTION, READABLE, WRITABLE, RequestCode, ResponseCode, code_name
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.frame import Command
from rmqtool.store.relaxed_json import JsonError, parse_relaxed_json

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""A consumer group that every broker has from its start on (`MixAll.TOOLS_CONSUMER_GROUP`)."""
DEFAULT_TOPIC: Final = "TBW102"
QUEUES_MAX: Final = 65536
"""Queues of a topic on all its brokers; a route that tells more is not believed."""
_MASTER: Final = "0"


@dataclass(frozen=True)
class TopicBroker:
    """A master with queues of a topic.

    Attributes:
        address: `host:port`.
        read_queues, write_queues: how many there are; 0 where reading or writing is not permitted.
    """

    name: str
    address: str
    read_queues: int
    write_queues: int


@dataclass(frozen=True)
class SentMessage:
    """A message as a producer sends it; the fields are those of `SendMessageRequestHeader`."""

    topic: str
    queue_id: int
    body: bytes
    properties: str
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    reconsume_times: int


@dataclass(frozen=True)
class SendAnswer:
    """A broker's answer to a message; `queue_offset` is None where it was not stored."""

    code: int
    remark: str
    queue_offset: int | None


@dataclass(frozen=True)
class PulledRecords:
    """Records from a queue, as they lie in the broker's log one after the other, and where the next pull begins."""

    records: bytes
    next_queue_offset: int
    min_queue_offset: int
    max_queue_offset: int


def topic_route(name_server: Connection, topic: str) -> list[TopicBroker] | None:
    """The masters of a topic in the order of their names; None where the name server does not know the topic.

    Raises:
        AnswerError: the name server gives no route for another reason, or one that cannot be read.
        ConnectionLostError: the name server is away.
    """
    fields = {"topic": topic, "acceptStandardJsonOnly": True}
    answer = name_server.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    _demand_success(answer, name_server, f"the route of topic {topic}")
    try:
        route = parse_relaxed_json(answer.body.decode())
        queues = {queue["brokerName"]: queue for queue in route["queueDatas"]}
        brokers = [
            _topic_broker(broker["brokerName"], str(address), queues[broker["brokerName"]])
            for broker in route["brokerDatas"]
            for number, address in broker["brokerAddrs"].items()
            if str(number) == _MASTER and broker["brokerName"] in queues
        ]
    except (UnicodeDecodeError, JsonError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise AnswerError(f"{name_server.address}: the route of topic {topic} cannot be read ({error!r})") from error
    if (count := sum(max(broker.read_queues, broker.write_queues) for broker in brokers)) > QUEUES_MAX:
        raise AnswerError(
            f"{name_server.address}: the route of topic {topic} names {count:,} queues on {len(brokers):,} brokers; "
            f"rmqtool accepts up to {QUEUES_MAX:,}: check the name server"
        )
    return sorted(brokers, key=lambda broker: broker.name)


def _topic_broker(name: str, address: str, queues: Mapping[str, Any]) -> TopicBroker:
    perm, counts = int(queues["perm"]), (int(queues["readQueueNums"]), int(queues["writeQueueNums"]))
    if min(counts) < 0:
        raise ValueError(f"a topic of {min(counts)} queues")
    return TopicBroker(name, address, counts[0] if perm & READABLE else 0, counts[1] if perm & WRITABLE else 0)


def queue_offset(broker: Connection, code: RequestCode, topic: str, queue_id: int) -> int:
    """The offset of a queue's first message (`GET_MIN_OFFSET`), or of its next one (`GET_MAX_OFFSET`) as dispatched."""
    answer = broker.call(code, {"topic": topic, "queueId": queue_id})
    what = f"{code.name} of queue {queue_id} of topic {topic}"
    _demand_success(answer, broker, what)
    return _number(answer, "offset", broker, what)


def send_message(broker: Connection, message: SentMessage, producer_group: str) -> SendAnswer:
    """Send one message to a queue.

    Raises:
        AnswerError: the broker stored it, but what it says of it cannot be read.
        ConnectionLostError: the broker is away; whether the message was stored is not known if it was sent.
        FrameError: the message is too long for the protocol; nothing was sent.
    """
    fields = {
        "a": producer_group,
        "b": message.topic,
        "c": DEFAULT_TOPIC,
        "d": 4,
        "e": message.queue_id,
        "f": message.sys_flag,
        "g": message.born_timestamp_ms,
        "h": message.flag,
        "i": message.properties,
        "j": message.reconsume_times,
        "k": False,
        "m": False,
    }
    answer = broker.call(RequestCode.SEND_MESSAGE_V2, fields, message.body)
    queue_offset = None
    if "queueOffset" in answer.fields:
        queue_offset = _number(answer, "queueOffset", broker, f"the answer to a message to topic {message.topic}")
    return SendAnswer(answer.code, answer.remark, queue_offset)


def pull_records(broker: Connection, topic: str, queue_id: int, queue_offset: int) -> PulledRecords:
    """Read messages of a queue from an offset on; none where there is none. No consumer offset is noted."""
    fields = {
        "consumerGroup": TOOLS_GROUP,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": queue_offset,
        "maxMsgNums": 32,
        "sysFlag": PULL_SUBSCRIPTION,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    answer = broker.call(RequestCode.PULL_MESSAGE, fields)
    what = f"a pull of queue {queue_id} of topic {topic} at {queue_offset}"
    none = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)
    if answer.code not in none:
        _demand_success(answer, broker, what)
    return PulledRecords(
        answer.body if answer.code == ResponseCode.SUCCESS else b"",
        _number(answer, "nextBeginOffset", broker, what),
        _number(answer, "minOffset", broker, what),
        _number(answer, "maxOffset", broker, what),
    )


def _demand_success(answer: Command, server: Connection, what: str) -> None:
    if answer.code != ResponseCode.SUCCESS:
        text = f"{server.address}: {what} was refused: {code_name(answer.code)}: {answer.remark}"
        raise AnswerError(text, answer.code)


def _number(answer: Command, name: str, server: Connection, what: str) -> int:
    value = answer.fields.get(name, "")
    if not value.removeprefix("-").isdecimal() or len(value) > 20:
        raise AnswerError(f"{server.address}: {what}: the answer's field {name} is {value!r}, not a number")
    return int(value)
