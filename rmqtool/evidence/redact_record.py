"""Replaces a customer's texts in one record; its lengths, offsets and every verdict about it stay.

A checksum that was right is right over the new bytes, and one that was wrong differs from the right one in the same
bits as before. What belongs to no whole record is masked: zero bytes stay zero, since they tell a hole from a record
that was cut short.
"""

from __future__ import annotations

import re
from functools import cache
from struct import Struct
from typing import Final

from rmqtool.evidence.names import BundleNames
from rmqtool.evidence.plausible import BOUNDS, MASK, WIDE_TEXT, Bound, is_plausible
from rmqtool.evidence.pseudonyms import Pseudonyms
from rmqtool.formats import commitlog, pop, properties, system_flag
from rmqtool.formats.commitlog import BODY_CRC_AT, MESSAGE_MAGICS, PHYSICAL_OFFSET_AT, SYS_FLAG_AT
from rmqtool.formats.layout import fields_of
from rmqtool.formats.record_crc import (
    CRC_MASK,
    PROPERTY_SIZE,
    masked_crc,
    record_crc_digits,
    stored_record_crc,
)
from rmqtool.sides.pop import decode_pop_body
from rmqtool.store.relaxed_json import JsonError, parse_relaxed_json

MASKED: Final = ord("x")
_MASK: Final = bytes([0]) + bytes([MASKED]) * 255
_STRUCTURE: Final = frozenset({"size", "magic", "body_length"})
"""Fields of a header that define the bytes after it; the record's other lengths agree with them."""
_TRANSACTION: Final = "prepared_transaction_offset"
"""Of a record that lies before."""
_HOSTS: Final = ("born_host.address", "store_host.address")
_DAY_MS: Final = 86_400_000
_FLAGS_UNKNOWN: Final = 1 << 30
_FLAGS_KNOWN: Final = 0xFFF
_FRAME: Final = Struct(">ii")
_CRC: Final = Struct(">I")
_FLIPPED_BITS_MAX: Final = 8
"""Wrong bits up to which a damaged magic is still taken for one; more may be a text."""

_HASHED: Final = frozenset({properties.TAGS.encode(), properties.UNIQUE_KEY.encode()})
_KEYS: Final = properties.KEYS.encode()
_TAGS: Final = properties.TAGS.encode()
_NAMED: Final = frozenset(
    name.encode()
    for name in (
        properties.REAL_TOPIC, properties.RETRY_TOPIC, properties.PRODUCER_GROUP, properties.MULTI_DISPATCH,
        properties.LITE_TOPIC, properties.POP_CHECKPOINT,
    )
)  # fmt: skip
"""Properties whose values are names of topics, groups and brokers."""
_NUMBERED: Final = frozenset(
    name.encode()
    for name in (
        properties.DELAY_LEVEL, properties.WAIT, properties.TRACE_ON, properties.TRANSACTION_PREPARED,
        properties.PRIORITY, properties.IMMUNITY_SECONDS, *properties.TIMER_DELIVERY, properties.REAL_QUEUE_ID,
        properties.INNER_COUNT, properties.INNER_BASE, properties.MULTI_QUEUE_OFFSET, properties.TIMER_OUT_MS,
        properties.TIMER_ROLL_TIMES, "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "TRAN_PREPARED_QUEUE_OFFSET",
        "MIN_OFFSET", "MAX_OFFSET", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_DELAY_LEVEL", "BORN_TIMESTAMP",
        "1ST_POP_TIME",
    )
)  # fmt: skip
_OTHER_NAMES: Final = frozenset(
    name.encode()
    for name in (
        properties.CLUSTER, properties.MSG_REGION, properties.ORIGIN_MESSAGE_ID, properties.SHARDING_KEY,
        properties.TRANSACTION_ID, properties.TIMER_DELETE_KEY, properties.RECORD_CRC, properties.UNIQUE_KEY,
        properties.KEYS, properties.TAGS,
    )
)  # fmt: skip
KEPT_PROPERTIES: Final = _NAMED | _NUMBERED
"""Properties that the broker needs: their values stay where they are names or numbers."""
KNOWN_PROPERTIES: Final = KEPT_PROPERTIES | _OTHER_NAMES
"""Properties whose names stay."""
_NAME: Final = re.compile(rb"[%|a-zA-Z0-9_\-.$/,@: ]{1,255}\Z")
_NUMBER: Final = re.compile(rb"([-+]?\d{1,20}(,\d{1,20})*|true|false)\Z", re.IGNORECASE)
_OFFSETS: Final = re.compile(rb"[\d,]*\Z")
_OPERATION_TAG: Final = b"d"
_POP_FIELDS: Final = frozenset(name for short, long, _, _ in pop.FIELD_DOCS for name in (short, long)) | {"cid"}


def masked(raw: bytes) -> bytes:
    """The bytes, of which each that is not zero is an x."""
    return raw.translate(_MASK)


def redact_record(raw: bytes, pseudonyms: Pseudonyms, physical_offset: int | None) -> bytes:
    """The bytes of a message record with a good frame, redacted; as many as before.

    Args:
        physical_offset: of the record; None where it may name any.
    """
    _, magic = _FRAME.unpack_from(raw)
    topic_width = 2 if magic == commitlog.MAGIC_V2 else 1
    body_at = _head_size(raw)
    if body_at + topic_width + 2 > len(raw):
        return raw[:8] + masked(raw[8:])
    body_end = body_at + max(0, int.from_bytes(raw[body_at - 4 : body_at], "big", signed=True))
    if body_end > len(raw):
        head = _redacted_head(raw[:body_at], pseudonyms.names, physical_offset, hides_crc=True)
        return head[:-4] + len(raw).to_bytes(4, "big") + masked(raw[body_at:])  # a body that is too long, too
    topic_end = body_end + topic_width + int.from_bytes(raw[body_end : body_end + topic_width], "big", signed=True)
    block_at = topic_end + 2
    block_length = max(0, int.from_bytes(raw[topic_end:block_at], "big", signed=True)) if topic_end > body_end else -1
    body = raw[body_at:body_end]
    is_right = not body or _CRC.unpack_from(raw, BODY_CRC_AT)[0] == masked_crc(body)
    header = bytearray(_redacted_head(raw[:body_at], pseudonyms.names, physical_offset, hides_crc=not is_right))
    if block_at + block_length != len(raw) or topic_end < body_end + topic_width:
        new_body = masked(body)
        tail = raw[body_end : body_end + topic_width] + masked(raw[body_end + topic_width :])  # their sum stays wrong
    else:
        topic = raw[body_end + topic_width : topic_end]
        block = redact_properties(raw[block_at:], pseudonyms, topic)
        new_body = _redacted_body(body, topic, raw[block_at:], pseudonyms)
        shown = pseudonyms.names.name(topic)
        tail = raw[body_end : body_end + topic_width] + shown + raw[topic_end:block_at] + block
    if body:
        difference = masked_crc(body) ^ masked_crc(new_body)
        _CRC.pack_into(header, BODY_CRC_AT, _CRC.unpack_from(header, BODY_CRC_AT)[0] ^ difference)
    return _with_record_crc(raw, bytes(header) + new_body + tail)


def redact_frame(raw: bytes, physical_offset: int, remaining: int, pseudonyms: Pseudonyms) -> bytes:
    """The start of a range that begins with no good message: frame and header as far as they surely are a broker's.

    Args:
        raw: the range, or as much of it as may hold a header.
        remaining: bytes from there to the end of the file.
    """
    size, magic = int.from_bytes(raw[:4], "big", signed=True), int.from_bytes(raw[4:8], "big", signed=True)
    if size == magic == 0:
        return masked(raw)
    if magic == commitlog.MAGIC_BLANK:
        return raw[:8] + masked(raw[8:])
    own_offset = int.from_bytes(raw[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big")
    if len(raw) >= PHYSICAL_OFFSET_AT + 8 and own_offset == physical_offset:
        head_size = min(_head_size(raw), len(raw))
        head = _redacted_head(raw[:head_size], pseudonyms.names, physical_offset, hides_crc=True)
        flipped_bits = min(((magic ^ other) & 0xFFFFFFFF).bit_count() for other in MESSAGE_MAGICS)
        if flipped_bits > _FLIPPED_BITS_MAX:
            head = head[:4] + masked(head[4:8]) + head[8:]
        return head + masked(raw[head_size:])
    if magic in MESSAGE_MAGICS:
        return raw[:8] + masked(raw[8:])
    if size < 0 or size > remaining:
        size = (1 << 31) - 1
    elif size:
        size = min(MASKED, remaining)
    return size.to_bytes(4, "big") + masked(raw[4:])


def redact_properties(block: bytes, pseudonyms: Pseudonyms, topic: bytes = b"") -> bytes:
    """A property block with other values, and other names where the name is not one of RocketMQ."""
    segments = []
    for segment in block.split(b"\x02"):
        name, separator, value = segment.partition(b"\x01")
        parts = [_redacted_value(name, part, pseudonyms, topic) for part in value.split(b"\x01")]
        kept = name if separator and name in KNOWN_PROPERTIES else pseudonyms.letters(name)
        segments.append(kept + separator + b"\x01".join(parts))
    redacted = b"\x02".join(segments)
    if 0 in block:  # zeros show that the last bytes were overwritten
        redacted = bytes(new if old else 0 for new, old in zip(redacted, block, strict=True))
    return redacted


def _redacted_value(name: bytes, value: bytes, pseudonyms: Pseudonyms, topic: bytes) -> bytes:
    if not value:
        return value
    if name == properties.RECORD_CRC.encode() and value.isdigit() and len(value) == PROPERTY_SIZE - len(name) - 2:
        return value  # set afresh over the new bytes
    if name in _NUMBERED and _NUMBER.match(value):
        return value
    if name in _NAMED and _NAME.match(value):
        return pseudonyms.names.each(value)
    if name == _TAGS and value in _broker_tags(topic):
        return value
    if name in _HASHED:
        return pseudonyms.same_hash(value)
    if name == _KEYS:
        return b" ".join(pseudonyms.same_hash(key) if key else key for key in value.split(b" "))
    return pseudonyms.letters(value)


def _broker_tags(topic: bytes) -> tuple[bytes, ...]:
    """Tags that the broker itself gives to records of this topic."""
    if topic == properties.OPERATION_TOPIC.encode():
        return (_OPERATION_TAG,)
    return tuple(tag.encode() for tag in pop.TAGS) if topic.startswith(pop.REVIVE_TOPIC.encode()) else ()


def _redacted_body(body: bytes, topic: bytes, block: bytes, pseudonyms: Pseudonyms) -> bytes:
    """Redact a body; one stays that the broker wrote and that holds numbers and names only."""
    tags = dict(properties.split_properties(block)).get(_TAGS, b"")
    if tags in _broker_tags(topic):
        is_kept = _OFFSETS.match(body) is not None if tags == _OPERATION_TAG else _is_pop_body(tags.decode(), body)
        if is_kept:
            return pseudonyms.names.strings(body)
    return pseudonyms.filler(body)


def _is_pop_body(tag: str, body: bytes) -> bool:
    try:
        decode_pop_body(tag, body)
        fields = parse_relaxed_json(body.decode())
    except (ValueError, JsonError):
        return False
    return isinstance(fields, dict) and all(
        isinstance(name, str)
        and name in _POP_FIELDS
        and (_NAME.match(value.encode()) if isinstance(value, str) else _is_numbers(value))
        for name, value in fields.items()
    )


def _is_numbers(value: object) -> bool:
    return value is None or isinstance(value, int) or (isinstance(value, list) and all(map(_is_numbers, value)))


def _with_record_crc(raw: bytes, redacted: bytes) -> bytes:
    """The record with its whole-record CRC over the new bytes, wrong in the same bits as it was."""
    stored = stored_record_crc(raw)
    if stored is None:
        return redacted
    old, new = masked_crc(raw[:-PROPERTY_SIZE]), masked_crc(redacted[:-PROPERTY_SIZE])
    value = stored ^ old ^ new if stored <= CRC_MASK else stored
    head = redacted[: 1 - PROPERTY_SIZE + len(properties.RECORD_CRC)]
    return head + record_crc_digits(value) + b"\x02"


def _head_size(raw: bytes) -> int:
    """Bytes before the body, by the flags that widen hosts."""
    return commitlog.head_size(int.from_bytes(raw[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big"))


def _redacted_head(raw: bytes, names: BundleNames, physical_offset: int | None, *, hides_crc: bool) -> bytes:
    """The bytes before a body, with masks for fields that no broker writes, and then also for those of any value.

    With `hides_crc`, the checksum tells nothing of the body.
    """
    flags = int.from_bytes(raw[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")
    head, values, hidden = bytearray(raw), dict[str, int](), set[str]()
    fields = [field for field in _fields(flags & system_flag.HOSTS_V6) if field[1].stop <= len(raw)]
    wide = [match.span() for match in WIDE_TEXT.finditer(raw)]
    for name, place, bound in fields:
        values[name] = int.from_bytes(raw[place], "big", signed=True)
        is_wide = any(first < place.stop and place.start < last for first, last in wide)
        is_later = name == _TRANSACTION and physical_offset is not None and values[name] > physical_offset
        if name not in _STRUCTURE and (
            is_later or is_wide or (bound is not None and not is_plausible(values[name], bound))
        ):
            hidden.add(name)
    is_elsewhere = physical_offset is not None and values.get("physical_offset") != physical_offset
    difference_ms = values.get("born_timestamp_ms", 0) - values.get("store_timestamp_ms", 0)
    is_odd = bool(hidden) or is_elsewhere or abs(difference_ms) > _DAY_MS
    for name, place, _ in fields:
        if name in _HOSTS:
            head[place] = raw[place].translate(MASK) if is_odd else names.address(raw[place])
        elif name == "sys_flag" and name in hidden:
            head[place] = (values[name] & _FLAGS_KNOWN | _FLAGS_UNKNOWN).to_bytes(4, "big")
        elif name in hidden or (name == "body_crc" and is_odd and hides_crc):
            head[place] = raw[place].translate(MASK)
    return bytes(head)


@cache
def _fields(hosts: int) -> tuple[tuple[str, slice, Bound | None], ...]:
    """Fields before a body: name, place, and allowed values; None for an IPv6 address."""
    bounds = BOUNDS[commitlog.MESSAGE_V1.name]
    return tuple(
        (
            field.name,
            slice(field.position, field.position + field.size),
            bounds[field.name] if field.size <= 8 else None,
        )
        for field in fields_of(commitlog.message_variant(commitlog.MAGIC_V1, hosts))
        if field.position is not None and field.size is not None and field.name in bounds
    )
