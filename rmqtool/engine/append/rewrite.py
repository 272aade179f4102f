"""Changes of a message before it is encoded: delayed, listed in further queues, written again.

Broker: `HookUtils#transformDelayLevelMessage`, `MultiDispatch#wrapMultiDispatch`, `LmqDispatch#wrapLmqDispatch`,
`BatchConsumeQueue#assignQueueOffset`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rmqtool.engine.append.message import Message
from rmqtool.engine.append.validation import delay_level
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.rules.broker_rules import BrokerRules, MultiDispatch
from rmqtool.engine.rules.topic_names import LMQ_PREFIX, is_kept_out
from rmqtool.formats import properties as names
from rmqtool.formats import system_flag
from rmqtool.formats.java_text import java_hash
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, decode_properties, encode_properties
from rmqtool.formats.queue_name import QueueName

CLIENT_MAP_CAPACITY: Final = 16
LOAD_FACTOR: Final = 0.75
_SPECIAL: Final = re.compile(rb"(?:\A|\x02)(?:DELAY|WAIT|INNER_[A-Z_]+|__CRC32#)\x01")
"""Names that make the broker look into the properties; text without any of them is stored as it came."""
_SPECIAL_PARTS: Final = (b"DELAY\x01", b"WAIT\x01", b"INNER_", b"__CRC32#\x01")
"""One of these is in each such name; looking for them is many times faster."""


@dataclass(slots=True)
class RewrittenMessage:
    """A message with its final topic, queue and text; `properties` is None where nobody has to look into them."""

    topic: str
    queue_id: int
    text: bytes
    properties: dict[str, str] | None


def sent_text(properties: Mapping[str, str], rules: BrokerRules) -> bytes:
    """The text that is stored for a map: encoded by the client, decoded and encoded once more by the broker."""
    if not properties:
        return b""
    order = _stored_order(tuple(properties), rules.property_map_capacity)
    text = PROPERTY_SEPARATOR.join([f"{name}{NAME_VALUE_SEPARATOR}{properties[name]}" for name in order])
    is_whole = "" not in properties and all(properties.values()) and text.isascii()
    counts = text.count(NAME_VALUE_SEPARATOR), text.count(PROPERTY_SEPARATOR)
    if is_whole and counts == (len(order), len(order) - 1):  # so nothing is read otherwise than it was written
        return (text + PROPERTY_SEPARATOR if rules.trailing_separator else text).encode("ascii")
    order = hash_map_order(properties, CLIENT_MAP_CAPACITY)
    sent = encode_properties({name: properties[name] for name in order}, trailing_separator=True)
    return encode_map(decode_properties(sent), rules)


@lru_cache(maxsize=1024)
def _stored_order(sent_names: tuple[str, ...], capacity: int) -> list[str]:
    """The order in which a broker stores properties that a client sends in this order."""
    return hash_map_order(hash_map_order(sent_names, CLIENT_MAP_CAPACITY), capacity)


def is_plain_text(texts: Iterable[bytes]) -> bool:
    """True if none of these property texts makes the broker read into it."""
    joined = b"\x02".join(texts)
    return not any(part in joined for part in _SPECIAL_PARTS) or not _SPECIAL.search(joined)


def prepare(message: Message, rules: BrokerRules, config: WriterConfig) -> RewrittenMessage:
    """Everything that does not depend on queue offsets."""
    text = message.properties_text if message.properties_text is not None else sent_text(message.properties, rules)
    if message.is_final:
        inner = decode_properties(text) if message.sys_flag & system_flag.INNER_BATCH else None
        return RewrittenMessage(message.topic, message.queue_id, text, inner)
    if not _SPECIAL.search(text):
        return RewrittenMessage(message.topic, message.queue_id, text, None)
    properties = dict(message.properties) if message.is_internal else decode_properties(text)
    prepared = RewrittenMessage(message.topic, message.queue_id, text, properties)
    if config.record_crc and names.RECORD_CRC in properties:
        del properties[names.RECORD_CRC]  # that a client sent (`MessageUtils#deleteProperty`)
        start = names.RECORD_CRC.encode() + b"\x01"
        prepared.text = b"\x02".join(part for part in text.split(b"\x02") if not part.startswith(start))
    if names.WAIT in properties and rules.strips_wait and not message.is_internal:
        # Taken out of the text only: it is put back into the map, after all others, and comes back when the properties
        # are written again.
        prepared.text = encode_map(properties, rules, without=names.WAIT)
        properties[names.WAIT] = properties.pop(names.WAIT)
    level = delay_level(Message(topic="", properties=properties))
    if level > 0 and system_flag.takes_queue_entry(message.sys_flag) and config.delays_ms:
        if level > len(config.delays_ms):
            level = len(config.delays_ms)
            properties[names.DELAY_LEVEL] = str(level)
        properties[names.REAL_TOPIC] = prepared.topic
        properties[names.REAL_QUEUE_ID] = str(prepared.queue_id)
        prepared.topic, prepared.queue_id = names.SCHEDULE_TOPIC, level - 1
        prepared.text = encode_map(properties, rules)
    return prepared


def further_queues(prepared: RewrittenMessage, rules: BrokerRules, config: WriterConfig) -> list[QueueName | None]:
    """The queues beside its own that a message goes to, as it names them; None for one that gets no offset."""
    listed = (prepared.properties or {}).get(names.MULTI_DISPATCH)
    only_lmq = rules.multi_dispatch is MultiDispatch.LMQ_ONLY
    is_on = rules.multi_dispatch is not MultiDispatch.NONE and (config.lmq if only_lmq else config.multi_dispatch)
    if not listed or not is_on or is_kept_out(prepared.topic, rules.put_keeps_out):
        return []
    queues: list[QueueName | None] = []
    for name in listed.split(","):
        if config.lmq and name.startswith(LMQ_PREFIX):
            queues.append((name, 0))
        else:
            queues.append(None if only_lmq else (name, prepared.queue_id))
    return queues


def encode_map(properties: Mapping[str, str], rules: BrokerRules, without: str | None = None) -> bytes:
    """A property map as the broker encodes it after a change (`MessageDecoder#messageProperties2String`)."""
    names = hash_map_order(properties, rules.property_map_capacity)
    return encode_properties(
        {name: properties[name] for name in names if name != without}, trailing_separator=rules.trailing_separator
    )


def ordered(properties: Mapping[str, str], rules: BrokerRules) -> dict[str, str]:
    """Properties as a map that a broker read from text; later entries do not change their order."""
    return {name: properties[name] for name in hash_map_order(properties, rules.property_map_capacity)}


def hash_map_order(names: Iterable[str], capacity: int) -> list[str]:
    """The order in which a `java.util.HashMap` gives its keys back.

    Buckets come by number, keys of one bucket in the order of insertion. Splitting a bucket keeps that order, so only
    the final size of the table counts.
    """
    inserted = list(names)
    while len(inserted) > capacity * LOAD_FACTOR:
        capacity *= 2
    hashes = {name: java_hash(name) & 0xFFFFFFFF for name in inserted}
    return sorted(inserted, key=lambda name: (hashes[name] ^ hashes[name] >> 16) & capacity - 1)  # `HashMap.hash`
