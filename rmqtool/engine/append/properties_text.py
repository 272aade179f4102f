"""The property text that a broker stores: its encoding, and the order of the Java HashMap it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rmqtool.engine.rules.versions import BrokerRules
from rmqtool.formats.java_text import java_hash
from rmqtool.formats.properties import decode_properties, encode_properties

LOAD_FACTOR: Final = 0.75
SENT_ANEW: Final = "WAIT"
"""Tells the broker whether the sender waits for the disk; never stored."""


def encode_map(properties: Mapping[str, str], rules: BrokerRules, without: str | None = None) -> bytes:
    """A property map as the broker encodes it after a change (`MessageDecoder#messageProperties2String`)."""
    names = hash_map_order(properties, rules.property_map_capacity)
    return encode_properties(
        {name: properties[name] for name in names if name != without}, trailing_separator=rules.trailing_separator
    )


def decode_map(text: bytes) -> dict[str, str]:
    """The map that the broker makes of a message's text."""
    return decode_properties(text)


def hash_map_order(names: Iterable[str], capacity: int) -> list[str]:
    """The order in which a `java.util.HashMap` gives its keys back.

    Buckets come by number, keys of one bucket in the order of insertion. Splitting a bucket keeps that order, so only
    the final size of the table counts.
    """
    inserted = list(names)
    while len(inserted) > capacity * LOAD_FACTOR:
        capacity *= 2
    return sorted(inserted, key=lambda name: _spread(java_hash(name)) & capacity - 1)


def _spread(value: int) -> int:
    """`HashMap.hash`: the upper half mixed into the lower one."""
    value &= 0xFFFFFFFF
    return value ^ value >> 16
