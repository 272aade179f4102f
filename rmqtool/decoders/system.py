"""Records that brokers write for themselves: of pop consumers, ends of transactions, messages that wait."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from rmqtool.formats import pop
from rmqtool.formats import properties as names
from rmqtool.report.bodies import MessageFacts
from rmqtool.sides.pop import decode_pop_body
from rmqtool.sides.timer.waiting import timer_due_ms

SYSTEM: Final = "system"
"""The name of these decoders."""
_POP_KINDS: Final = {
    pop.CHECK_POINT: "pop-check-point",
    pop.ACKNOWLEDGEMENT: "pop-acknowledgement",
    pop.BATCH_ACKNOWLEDGEMENT: "pop-batch-acknowledgement",
}
_DIGITS_MAX: Final = 18


class SystemMessage(NamedTuple):
    """A decoded system message.

    Attributes:
        fields: what it says.
        carries_body: whether the body is a user's, which waits in it.
    """

    fields: dict[str, Any]
    carries_body: bool


def decode_system_message(body: bytes, message: MessageFacts) -> SystemMessage | None:
    """A message that a broker wrote for itself; None for any other.

    Raises:
        ValueError: it has such a topic, and is none.
    """
    if message.topic.startswith(pop.REVIVE_TOPIC):
        return SystemMessage(_pop(body, message), carries_body=False)
    if message.topic == names.OPERATION_TOPIC:
        return SystemMessage(_operation(body), carries_body=False)
    if message.topic not in (names.HALF_TOPIC, names.TIMER_TOPIC, names.SCHEDULE_TOPIC):
        return None
    properties = message.properties
    target = {"topic": properties.get(names.REAL_TOPIC), "queue_id": _number(properties.get(names.REAL_QUEUE_ID))}
    if message.topic == names.HALF_TOPIC:
        fields = {
            "kind": "half-message",
            **target,
            "producer_group": properties.get(names.PRODUCER_GROUP),
            "transaction_id": properties.get(names.TRANSACTION_ID),
        }
    elif message.topic == names.TIMER_TOPIC:
        fields = {
            "kind": "timer-message",
            **target,
            "due_timestamp_ms": timer_due_ms(properties),
            "rolls": _number(properties.get(names.TIMER_ROLL_TIMES)) or 0,
            "deletes": properties.get(names.TIMER_DELETE_KEY),
        }
    else:
        fields = {"kind": "delayed-message", **target, "delay_level": _number(properties.get(names.DELAY_LEVEL))}
    return SystemMessage(fields, carries_body=True)


def _pop(body: bytes, message: MessageFacts) -> dict[str, Any]:
    tag = message.properties.get(names.TAGS, "")
    if tag not in _POP_KINDS:
        raise ValueError(f"a revive topic has no records with the tag {tag!r}")
    decoded = decode_pop_body(tag, body)
    fields: dict[str, Any] = {
        "kind": _POP_KINDS[tag],
        "topic": decoded.key.topic,
        "queue_id": decoded.key.queue_id,
        "consumer_group": decoded.key.consumer_group,
        "start_queue_offset": decoded.key.start,
        "queue_offsets": list(decoded.offsets),
        "pop_timestamp_ms": decoded.key.pop_timestamp_ms,
        "broker_name": decoded.key.broker_name,
    }
    if tag == pop.CHECK_POINT:
        fields["acknowledged"] = sorted(decoded.acknowledged)
        fields["revive_timestamp_ms"] = decoded.revive_timestamp_ms
    return fields


def _operation(body: bytes) -> dict[str, Any]:
    texts = body.split(b",")
    if texts and not texts[-1]:
        texts.pop()
    if not texts or not all(text.isdigit() and len(text) <= _DIGITS_MAX for text in texts):
        raise ValueError("not a list of queue offsets of half messages")
    return {"kind": "transaction-end", "half_queue_offsets": [int(text) for text in texts]}


def _number(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if is_number and text is not None else None
