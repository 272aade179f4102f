"""A cluster of one broker that a test can make busy, forgetful or deaf: its queues are kept as a broker keeps them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from rmqtool.engine.append.encoder import RecordColumns, RecordFields, encode_records
from rmqtool.formats.remoting import RequestCode, ResponseCode
from tests.remoting_server import Request, answer

HOST = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")


@dataclass
class BrokerStub:
    """Answers as a name server and as the only broker.

    Attributes:
        topics: number of queues by topic.
        before, after: are asked for each message, by its number, before and after it is stored; what they return is
            the answer, None closes the connection, and an Ellipsis goes on.
        stored: topic, queue id, body and properties of what is stored.
    """

    topics: dict[str, int]
    before: Callable[[int, Request], bytes | None] = lambda _number, _request: b"go on"
    after: Callable[[int, Request], bytes | None] = lambda _number, _request: b"go on"
    address: str = ""
    stored: list[tuple[str, int, bytes, dict[str, str]]] = field(default_factory=list)
    raw: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    sends: int = 0
    requests: list[Request] = field(default_factory=list)

    def reply(self, request: Request, body: bytes) -> bytes | None:
        """The answer to a request."""
        fields = request["extFields"]
        if request["code"] == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return self._route(request, fields["topic"])
        if request["code"] == RequestCode.SEND_MESSAGE_V2:
            return self._send(request, body)
        queue = self.raw.get((fields["topic"], int(fields["queueId"])), [])
        if request["code"] == RequestCode.GET_MAX_OFFSET:
            return answer(request, offset=len(queue))
        begin = int(fields["queueOffset"])
        part = queue[begin : begin + 2]
        numbers = {"nextBeginOffset": begin + len(part), "minOffset": 0, "maxOffset": len(queue)}
        code = ResponseCode.SUCCESS if part else ResponseCode.PULL_NOT_FOUND
        return answer(request, code, b"".join(part), **numbers)

    def _route(self, request: Request, topic: str) -> bytes:
        if topic not in self.topics:
            return answer(request, ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info")
        count = self.topics[topic]
        route = {
            "brokerDatas": [{"brokerName": "a", "brokerAddrs": {"0": self.address}}],
            "queueDatas": [{"brokerName": "a", "perm": 6, "readQueueNums": count, "writeQueueNums": count}],
        }
        return answer(request, body=json.dumps(route).encode())

    def _send(self, request: Request, body: bytes) -> bytes | None:
        self.sends += 1
        self.requests.append(request)
        number = self.sends
        first = self.before(number, request)
        if first != b"go on":
            return first
        fields = request["extFields"]
        topic, queue_id = fields["b"], int(fields["e"])
        queue = self.raw.setdefault((topic, queue_id), [])
        record = RecordFields(
            len(topic).to_bytes(1, "big") + topic.encode(), body, fields["i"].encode(), queue_id, int(fields["h"]),
            len(queue), int(fields["f"]), int(fields["g"]), HOST, 1, HOST, int(fields["j"]), 0, False,
        )  # fmt: skip
        columns = RecordColumns(*zip(record, strict=True))
        queue.append(bytes(encode_records(columns, columns.sizes(), 0)))
        properties = dict(part.split("\x01") for part in fields["i"].split("\x02") if part)
        self.stored.append((topic, queue_id, body, properties))
        last = self.after(number, request)
        return last if last != b"go on" else answer(request, queueOffset=len(queue) - 1)
