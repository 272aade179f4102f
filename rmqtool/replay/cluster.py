"""The cluster that messages are sent to: routes, connections with reconnects, and the content of its queues."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from rmqtool.engine.reading.record import Record, SingleRecord, decode_record
from rmqtool.engine.rules.versions import NEWEST, rules_for
from rmqtool.engine.segments.log import RecordLocation
from rmqtool.errors import AnswerError, ConnectionLostError, UsageError
from rmqtool.formats.remoting import RequestCode, ResponseCode
from rmqtool.remoting.connection import NAME_SERVER_PORT, Connection, parse_address
from rmqtool.remoting.requests import TopicBroker, pull_records, queue_offset, topic_route
from rmqtool.replay.journal import TargetQueue
from rmqtool.store.source import Closable

_SEPARATORS: Final = re.compile(r"[;,]")


class Cluster(Closable):
    """A cluster behind its name servers. A connection that failed is made again when it is asked for next."""

    def __init__(self, name_servers: str) -> None:
        """Note the name servers, `host:port` with `;` between them.

        Raises:
            UsageError: one of them is no address.
        """
        self.name_servers = [text.strip() for text in _SEPARATORS.split(name_servers) if text.strip()]
        if not self.name_servers:
            raise UsageError("--to: no name server is named")
        for text in self.name_servers:
            parse_address(text, NAME_SERVER_PORT)
        self._brokers: dict[str, Connection] = {}

    def close(self) -> None:
        """Close all connections."""
        for connection in self._brokers.values():
            connection.close()
        self._brokers.clear()

    def route(self, topic: str) -> list[TopicBroker]:
        """The masters of a topic with queues that may be written; none where no name server that answers has any.

        Raises:
            ConnectionLostError: no name server answers.
            AnswerError: the answer makes no sense.
        """
        lost: ConnectionLostError | None = None
        for address in self.name_servers:
            try:
                with Connection(address, default_port=NAME_SERVER_PORT) as name_server:
                    brokers = topic_route(name_server, topic)
            except ConnectionLostError as error:
                lost = error
                continue
            return [broker for broker in brokers or () if broker.write_queues]
        assert lost is not None, "at least one was asked"
        raise lost

    def queues(self, topic: str) -> list[TargetQueue]:
        """The queues that may be written, by broker and number; AnswerError where there are none."""
        route = self.route(topic)
        if not route:
            raise AnswerError(
                f"no route to topic {topic}: create it with queues that may be written, or send its messages to "
                f"another one with --map {topic}=NEW"
            )
        return [
            TargetQueue(topic, broker.name, queue_id) for broker in route for queue_id in range(broker.write_queues)
        ]

    def broker(self, queue: TargetQueue) -> Connection:
        """A connection to the master that has a queue.

        Raises:
            ConnectionLostError: there is none at the moment; nothing was sent.
        """
        connection = self._brokers.get(queue.broker)
        if connection is None:
            address = next((one.address for one in self.route(queue.topic) if one.name == queue.broker), None)
            if address is None:
                raise ConnectionLostError(
                    f"broker {queue.broker}: the name server knows no master of it for topic {queue.topic}",
                    was_sent=False,
                )
            connection = self._brokers[queue.broker] = Connection(address)
        return connection

    def drop(self, queue: TargetQueue) -> None:
        """Forget the connection to a broker after an error."""
        connection = self._brokers.pop(queue.broker, None)
        if connection is not None:
            connection.close()

    def end(self, queue: TargetQueue) -> int:
        """The offset of a queue's next message."""
        return queue_offset(self.broker(queue), RequestCode.GET_MAX_OFFSET, queue.topic, queue.queue_id)

    def messages(self, queue: TargetQueue, queue_offset: int) -> Iterator[Record]:
        """The messages of a queue from an offset on, before which all were acknowledged, up to its present end.

        Raises:
            AnswerError: the queue ends before this offset, as it does while a broker dispatches its log after a crash,
                or the broker does not give them.
            ConnectionLostError: the broker is away.
        """
        end = self.end(queue)
        if end < queue_offset:
            raise AnswerError(
                f"broker {queue.broker} has lost messages that it had acknowledged: queue {queue.queue_id} of topic "
                f"{queue.topic} ends at {end} and not at {queue_offset}; to send all again, start without this state",
                ResponseCode.SYSTEM_BUSY,
            )
        while queue_offset < end:
            pulled = pull_records(self.broker(queue), queue.topic, queue.queue_id, queue_offset)
            yield from _records(pulled.records, self.broker(queue).address)
            if pulled.next_queue_offset <= queue_offset:
                return
            queue_offset = pulled.next_queue_offset


def _records(data: bytes, address: str) -> Iterator[Record]:
    rules, at = rules_for(NEWEST), 0

    def read_at(start: int, position: int, length: int) -> bytes:
        return data[start + position : start + position + length]

    while at < len(data):
        place = RecordLocation(at, "", at, len(data) - at)
        record = decode_record(SingleRecord(rules, partial(read_at, at)), place)
        if record is None:
            raise AnswerError(f"{address}: a pull was answered with bytes that are no messages")
        yield record
        at += record.size
