"""Decodes the bodies of check points and acknowledgements of pop consumers."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from rmqtool.formats.pop import ACKNOWLEDGEMENT, BATCH_ACKNOWLEDGEMENT, CHECK_POINT, FIELD_DOCS
from rmqtool.store.relaxed_json import parse_relaxed_json

_SHORT: Final = {name: short for short, name, _, _ in FIELD_DOCS}
_BITS: Final = 32
_COUNT_MAX: Final = 127
_NUMBER_MAX: Final = (1 << 63) - 1


class PopKey(NamedTuple):
    """What a check point and its acknowledgements have in common."""

    topic: str
    consumer_group: str
    queue_id: int
    start: int
    pop_timestamp_ms: int
    broker_name: str


class PopBody(NamedTuple):
    """A decoded body.

    Attributes:
        offsets: queue offsets of the messages of a check point, or of those that are acknowledged.
        acknowledged: those of a check point that it says itself.
        revive_timestamp_ms: of a check point: the time from which the broker delivers again.
    """

    key: PopKey
    offsets: tuple[int, ...]
    acknowledged: frozenset[int] = frozenset()
    revive_timestamp_ms: int = 0


def decode_pop_body(tag: str, raw: bytes) -> PopBody:
    """The body of a record with one of the tags of a revive topic.

    Raises:
        ValueError: it is no such body; a broker that reads it stops there.
    """
    value = parse_relaxed_json(raw.decode())
    # Brokers also read the long names in acknowledgements.
    names = {} if tag == CHECK_POINT else _SHORT
    fields = {names.get(name, name): content for name, content in value.items()} if isinstance(value, dict) else {}
    texts = [fields.get(name) for name in ("t", "c", "bn")]
    topic, group, broker = (text if isinstance(text, str) else "" for text in texts)
    start, popped = _number(fields, "so"), _number(fields, "pt")
    if not topic or not group:
        raise ValueError("no topic or no consumer group")
    key = PopKey(topic, group, _number(fields, "q"), start, popped, broker)
    if tag == ACKNOWLEDGEMENT:
        return PopBody(key, (_number(fields, "ao"),))
    if tag == BATCH_ACKNOWLEDGEMENT:
        return PopBody(key, tuple(_numbers(fields, "aol")))
    count, bits, differences = _number(fields, "n"), _number(fields, "bm"), _numbers(fields, "d")
    differences = differences or list(range(min(count, _COUNT_MAX)))
    if not 0 <= count <= min(_COUNT_MAX, len(differences)):
        raise ValueError(f"{count} messages with {len(differences)} queue offsets")
    offsets = tuple(_java_long(start + difference) for difference in differences[:count])
    acknowledged = frozenset(offset for bit, offset in enumerate(offsets) if bit < _BITS and bits >> bit & 1)
    return PopBody(key, offsets, acknowledged, _java_long(popped + _number(fields, "it")))


def _java_long(value: int) -> int:
    """A sum as Java has it."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _number(fields: dict[Any, Any], name: str) -> int:
    value = fields.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not -_NUMBER_MAX <= value <= _NUMBER_MAX:
        raise ValueError(f"{name} is not a number")
    return value


def _numbers(fields: dict[Any, Any], name: str) -> list[int]:
    values = fields.get(name) or []
    return [_number({name: value}, name) for value in (values if isinstance(values, list) else [values])]
