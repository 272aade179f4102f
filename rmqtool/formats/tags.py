"""The tags code of a record, which consume queues hold.

Broker: `CommitLog#checkMessageAndReturnSize`, `MessageExtBrokerInner#tagsString2tagsCode`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from rmqtool.formats.java_properties import parse_java_integer
from rmqtool.formats.java_text import java_hash
from rmqtool.formats.properties import DELAY_LEVEL, SCHEDULE_TOPIC, TAGS

DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str = DEFAULT_DELAY_LEVELS) -> tuple[int, ...]:
    """Delays in ms of levels 1, 2, ... of a `messageDelayLevel` setting.

    Raises:
        ValueError: a level is not a number and one of s, m, h, d. A broker with such a setting does not start.
    """
    # Java's split: between two blanks is a level that is none, and blanks alone are no level at all.
    levels = text.rstrip(" ").split(" ") if text.strip(" ") or not text else []
    delays = []
    for level in levels:
        number = parse_java_integer(level[:-1], 64)
        if number is None or level[-1] not in _UNIT_MS:
            raise ValueError(f"messageDelayLevel={text!r} is not a list of delays")
        delays.append(number * _UNIT_MS[level[-1]])
    return tuple(delays)


def delivery_tags_code(store_timestamp_ms: int, delay_level: int, delays_ms: Sequence[int]) -> int | None:
    """Delivery time that stands as tags code in the schedule topic; None where the level does not ask for one."""
    level = min(delay_level, len(delays_ms))
    if level <= 0:
        return None
    return store_timestamp_ms + delays_ms[level - 1]


def tags_code(topic: str, properties: Mapping[str, str], store_timestamp_ms: int, delays_ms: Sequence[int]) -> int:
    """The code that dispatch writes into the queue's unit.

    Raises:
        ValueError: DELAY is not a number in the schedule topic; the broker takes such a record for the end of the log.
    """
    if topic == SCHEDULE_TOPIC and DELAY_LEVEL in properties:
        delivery = delivery_tags_code(store_timestamp_ms, parse_java_int(properties[DELAY_LEVEL]), delays_ms)
        if delivery is not None:
            return delivery
    tags = properties.get(TAGS)
    return java_hash(tags) if tags else 0


def parse_java_int(text: str) -> int:
    """`Integer.parseInt`: an optional sign and digits, within 32 bits.

    Raises:
        ValueError: it would throw NumberFormatException.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    number = digits.lstrip("0") or "0"  # however many there are, which Python would not convert
    # Java looks at UTF-16 code units, so digits beyond the basic plane are none to it.
    if not digits.isdecimal() or max(digits) > "\uffff" or len(number) > 10:
        raise ValueError(f"not an int: {text[:40]!r}")
    value = -int(number) if text[0] == "-" else int(number)
    if not -(1 << 31) <= value < 1 << 31:
        raise ValueError(f"not an int: {text!r}")
    return value
