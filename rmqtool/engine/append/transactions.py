"""Messages that a broker puts itself: the ends of transactions, and those derived from a stored message.

Broker: `EndTransactionProcessor`, `TransactionalMessageBridge`, `TransactionalMessageServiceImpl#deletePrepareMessage`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from rmqtool.engine.append.client_settings import ClientSettings
from rmqtool.engine.append.message import Message, MessageBatch
from rmqtool.engine.append.rewrite import CLIENT_MAP_CAPACITY, encode_map, hash_map_order, ordered
from rmqtool.engine.append.status import PutResult, PutStatus, refused, response_to
from rmqtool.engine.reading.record import Record
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.formats import properties as names
from rmqtool.formats import system_flag
from rmqtool.formats.properties import encode_properties
from rmqtool.formats.remoting import ResponseCode

OPERATION_TAG: Final = "d"
_STORED: Final = frozenset(
    {PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE}
)
"""Statuses with which the message is in the log, so that its transaction has ended."""


def message_again(
    record: Record, body: bytes, topic: str, queue_id: int, properties: dict[str, str], text: bytes
) -> Message:
    """A stored message for another queue.

    Args:
        properties: as the broker has them, and may look at them.
        text: as they are stored.
    """
    return Message(
        topic=topic,
        body=body,
        queue_id=queue_id,
        properties=properties,
        properties_text=text,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_address,
        store_host=record.store_address,
        reconsume_times=record.reconsume_times,
        is_internal=True,
    )


@dataclass(eq=False)
class TransactionEnds:
    """Ends half messages.

    Args:
        read: the record at a physical offset with its body, None for none.
        clock: now, in ms since the epoch.
    """

    _rules: BrokerRules
    _settings: ClientSettings
    _put: Callable[[Message | MessageBatch], PutResult]
    _read: Callable[[int], tuple[Record, bytes] | None]
    _clock: Callable[[], int]
    _ended: dict[int, list[str]] = field(default_factory=dict)

    def end(self, physical_offset: int, *, commit: bool, group: str | None = None) -> list[PutResult]:
        """Commit a half message, or roll it back; its final message, if there is one, and its operation record.

        From 5.1.0 on operation records are written by `write_operations`, several ends in one.

        Args:
            physical_offset: of the half message.
            group: of the producer; None for the one that the half message names.

        Raises:
            UnreadableError, WriteError: the half message cannot be read, or the disk takes nothing.
        """
        stored = self._read(physical_offset)
        if stored is None:
            return [refused(ResponseCode.SYSTEM_ERROR, f"there is no half message at {physical_offset}")]
        half, body = stored
        if (refusal := self._refusal(half, group)) is not None:
            return [refusal]
        results: list[PutResult] = []
        if commit:
            properties = ordered(half.properties, self._rules)
            text = encode_map(properties, self._rules)
            topic, queue_id = properties.pop(names.REAL_TOPIC, ""), properties.pop(names.REAL_QUEUE_ID, "")
            if not topic or not queue_id.isdecimal() or len(queue_id) > 9:
                reason = f"the message at {physical_offset} is not a half message: it does not name its topic and queue"
                return [refused(ResponseCode.SYSTEM_ERROR, reason)]
            if self._rules.commit_drops_real_topic:
                text = encode_map(properties, self._rules)
            properties.pop(names.TRANSACTION_PREPARED, None)
            final = replace(
                message_again(half, body, topic, int(queue_id), properties, text),
                sys_flag=half.sys_flag & ~system_flag.TRANSACTION_MASK | system_flag.TRANSACTION_COMMIT,
                prepared_transaction_offset=physical_offset,
            )
            put = self._put(final)
            if put.status not in _STORED:
                return [put._replace(response=response_to(put))]
            results.append(put._replace(response=ResponseCode.SUCCESS))
        if half.topic == names.HALF_TOPIC:
            self._ended.setdefault(half.queue_id, []).append(str(half.queue_offset))
        if not self._rules.operation_batches:
            results += self.write_operations()
        return results

    def write_operations(self) -> list[PutResult]:
        """Write the operation records of ended half messages, as a broker does once in a while.

        Raises:
            WriteError: the disk does not take it.
        """
        results = []
        properties = {names.TAGS: OPERATION_TAG, names.WAIT: "true"}
        sent = {name: properties[name] for name in hash_map_order(properties, CLIENT_MAP_CAPACITY)}
        for queue_id, offsets in self._ended.items():
            bodies = offsets
            if self._rules.operation_batches:
                # A body that is as long as its limit, or longer, takes no further offset.
                bodies = [""]
                for offset in offsets:
                    if len(bodies[-1]) >= self._settings.operation_bytes_max:
                        bodies.append("")
                    bodies[-1] += f"{offset},"
            for body in bodies:
                operation = Message(
                    topic=names.OPERATION_TOPIC,
                    queue_id=queue_id,
                    body=body.encode("ascii"),
                    properties={**sent, names.WAIT: "false"},
                    properties_text=encode_properties(sent, trailing_separator=self._rules.trailing_separator),
                    born_timestamp_ms=self._clock(),
                    born_host=self._settings.store_host,
                    store_host=self._settings.store_host,
                    is_internal=True,
                )
                results.append(self._put(operation)._replace(response=ResponseCode.SUCCESS))
        self._ended.clear()
        return results

    def _refusal(self, half: Record, group: str | None) -> PutResult | None:
        producer = half.properties.get(names.PRODUCER_GROUP)
        if producer is None or group not in (None, producer):
            return refused(ResponseCode.SYSTEM_ERROR, f"the half message is of producer group {producer}")
        seconds = half.properties.get(names.IMMUNITY_SECONDS)
        if self._rules.immunity_refuses_end and seconds is not None:
            given_ms = int(seconds) * 1000 if seconds.lstrip("+-").isdecimal() and len(seconds) < 16 else 0
            immune_ms = max(given_ms, self._settings.transaction_timeout_ms)
            if self._clock() - half.born_timestamp_ms > immune_ms:
                return refused(ResponseCode.ILLEGAL_OPERATION, "the broker asks the producer about it by now")
        return None
