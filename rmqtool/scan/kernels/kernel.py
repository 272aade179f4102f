"""The compiled walk over one block: rows for records that are plainly good; all else it leaves to the plain judge."""

# The compiler infers the types of what it compiles; annotations would say less, and not be checked against it.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"
# ruff: noqa: ANN001, ANN201, ANN202, SIM110
from __future__ import annotations

import numpy
from numpy import int32, int64, uint8, uint32, uint64

from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.properties import DELAY_LEVEL, RECORD_CRC, SCHEDULE_TOPIC
from rmqtool.formats.record_crc import CRC_MASK, DIGITS, PROPERTY_SIZE
from rmqtool.scan.kernels.jit import (
    BYTES,
    CHECKSUM,
    FLAG,
    INTS,
    LONG,
    LONGS,
    ROWS,
    compiled,
    int_at,
    kernel,
    long_at,
    short_at,
)

MAGIC_V1, MAGIC_V2 = commitlog.MAGIC_V1, commitlog.MAGIC_V2
HEAD_SIZE, SIZE_MIN, V6_EXTRA = commitlog.HEAD_SIZE, commitlog.RECORD_SIZE_MIN, commitlog.V6_EXTRA
BORN_V6, STORE_V6 = system_flag.BORN_HOST_V6, system_flag.STORE_HOST_V6


def _at(name):
    return uint64(commitlog.MESSAGE_V1.position(name))


# Positions with both hosts IPv4; an IPv6 host before a field moves it.
AT_MAGIC, AT_BODY_CRC, AT_QUEUE_ID, AT_FLAG = _at("magic"), _at("body_crc"), _at("queue_id"), _at("flag")
AT_QUEUE_OFFSET, AT_OWN_OFFSET, AT_SYS_FLAG = _at("queue_offset"), _at("physical_offset"), _at("sys_flag")
AT_BORN, AT_STORED, AT_RECONSUMED = _at("born_timestamp_ms"), _at("store_timestamp_ms"), _at("reconsume_times")
AT_PREPARED, AT_BODY_LENGTH = _at("prepared_transaction_offset"), _at("body_length")

NAME_END, VALUE_END = uint8(1), uint8(2)
TAGS_NAME, KEYS_NAME = (numpy.frombuffer(name, uint8) for name in (b"TAGS", b"KEYS"))
UNIQUE_NAME, INNER_PREFIX = (numpy.frombuffer(name, uint8) for name in (b"UNIQ_KEY", b"INNER_"))
SCHEDULE_NAME = numpy.frombuffer(SCHEDULE_TOPIC.encode(), uint8)
CRC_NAME, DELAY_NAME = (numpy.frombuffer(name.encode() + b"\x01", uint8) for name in (RECORD_CRC, DELAY_LEVEL))
LEVEL_DIGITS_MAX = 9
"""More may be no int to the broker."""
HASH_FACTOR = uint64(0x9E3779B97F4A7C15)


@compiled
def is_at(buffer, at, text):
    """True if a text is at a position."""
    for k in range(text.size):
        if buffer[at + uint64(k)] != text[k]:
            return False
    return True


@compiled
def find_topic(buffer, at, length, arena, starts, slots):
    """Number of a known topic, -1 for one that is not."""
    mask = uint64(slots.size - 1)
    code = uint64(length)
    for k in range(length):
        code = (code ^ uint64(buffer[at + uint64(k)])) * HASH_FACTOR
    slot = (code >> uint64(32)) & mask
    while slots[slot] >= 0:
        number = slots[slot]
        if is_topic(buffer, at, length, arena, starts, number):
            return number
        slot = (slot + uint64(1)) & mask
    return -1


@compiled
def is_topic(buffer, at, length, arena, starts, number):
    """True if the name at a position is that of a numbered topic."""
    start = starts[number]
    if starts[number + 1] - start != length:
        return False
    for k in range(length):
        if arena[start + k] != buffer[at + uint64(k)]:
            return False
    return True


@compiled
def enter_topic(number, arena, starts, slots):
    """Enter a topic whose bytes stand in the arena already."""
    mask = uint64(slots.size - 1)
    start, end = starts[number], starts[number + 1]
    code = uint64(end - start)
    for k in range(start, end):
        code = (code ^ uint64(arena[k])) * HASH_FACTOR
    slot = (code >> uint64(32)) & mask
    while slots[slot] >= 0:
        slot = (slot + uint64(1)) & mask
    slots[slot] = number


@kernel(LONG, LONG, BYTES, LONGS, INTS)
def insert_topics(first, end, arena, starts, slots):
    """Enter topics whose bytes stand in the arena already."""
    for number in range(first, end):
        enter_topic(number, arena, starts, slots)


@compiled
def has_room(length, known, arena, starts, slots):
    """True if one more topic can be entered."""
    return starts[known] + length <= arena.size and known + 2 <= starts.size and (known + int64(1)) * 2 <= slots.size


@compiled
def add_topic(buffer, at, length, known, arena, starts, slots):
    """Enter the topic at a place as the next one; there is room for it."""
    start = starts[known]
    for k in range(length):
        arena[start + k] = buffer[at + uint64(k)]
    starts[known + 1] = start + length
    enter_topic(known, arena, starts, slots)


@kernel(BYTES, CHECKSUM, LONG, LONG, LONG, LONG, LONG, FLAG, LONGS, LONG, BYTES, LONGS, INTS, LONG, LONG, ROWS)
def walk_block(
    buffer, checksum, address, begin, end, limit, base, record_crc, delays_ms, schedule_number, arena, starts, slots,
    known, last_topic, rows,
):  # fmt: skip
    """Fill rows with good records of `buffer[begin:end]`; (position after the last, number of rows, its topic).

    A record must begin before `limit`. `base` is the physical offset of `buffer[0]`, `address` where the buffer lies.
    Of the topics, the first `known` are entered; new ones are entered after them, and their number is given last.
    """
    at = begin
    count = 0
    while at + int64(HEAD_SIZE) <= end and at < limit and count < rows.size:
        row = rows[count]
        p = uint64(at)
        size = int64(int_at(buffer, p))
        if size < SIZE_MIN or at + size > end:
            break
        body, topic, properties = put_lengths(buffer, p, size, row)
        if properties == 0 or long_at(buffer, p + AT_OWN_OFFSET) != base + at:
            break
        row.body_crc = int_at(buffer, p + AT_BODY_CRC)
        row.computed_crc = 0
        if row.body_length > 0:
            row.computed_crc = checksum(uint64(0), address + at + body, uint64(row.body_length)) & uint64(CRC_MASK)
            if row.computed_crc != row.body_crc:
                break
        q = p + uint64(topic)
        length = int64(row.topic_length)
        if last_topic >= 0 and is_topic(buffer, q, length, arena, starts, last_topic):
            number = last_topic
        else:
            number = find_topic(buffer, q, length, arena, starts, slots)
        is_new = number < 0
        if is_new and (
            not has_room(length, known, arena, starts, slots)
            or (length == SCHEDULE_NAME.size and is_at(buffer, q, SCHEDULE_NAME))
        ):
            break
        if not put_texts(buffer, p, properties, size, row):
            break
        has_crc = record_crc and row.properties_length >= PROPERTY_SIZE
        if has_crc and not record_crc_right(buffer, checksum, address, at, size):
            break
        if is_new:
            number = known
            add_topic(buffer, q, length, known, arena, starts, slots)
            known += 1
        last_topic = number
        row.topic_number = number
        row.physical_offset = row.own_offset = base + at
        put_fixed(buffer, p, row)
        if number == schedule_number and not put_delivery(buffer, p, properties, size, delays_ms, row):
            break
        count += 1
        at += size
    return at, count, last_topic, known


@compiled
def put_lengths(buffer, p, size, row):
    """Places of body, topic and properties in a record, its lengths into the row; zeros if they do not agree."""
    magic = int_at(buffer, p + AT_MAGIC)
    if magic == MAGIC_V1:
        width = int64(1)
    elif magic == MAGIC_V2:
        width = int64(2)
    else:
        return 0, 0, 0
    sys_flag = int_at(buffer, p + AT_SYS_FLAG)
    extra = host_extra(sys_flag, BORN_V6) + host_extra(sys_flag, STORE_V6)
    body = int64(HEAD_SIZE) + int64(extra)
    if body + width + 2 > size:
        return 0, 0, 0
    body_length = max(int64(0), int64(int_at(buffer, p + AT_BODY_LENGTH + extra)))
    body_end = body + body_length
    if body_end + width + 2 > size:
        return 0, 0, 0
    q = p + uint64(body_end)
    topic_length = int64(numpy.int8(buffer[q])) if width == 1 else int64(short_at(buffer, q))
    topic = body_end + width
    properties = topic + topic_length + 2
    if topic_length < 0 or properties > size:
        return 0, 0, 0
    properties_length = max(int64(0), int64(short_at(buffer, p + uint64(properties - 2))))
    if properties + properties_length != size:
        return 0, 0, 0
    row.size = size
    row.magic = magic
    row.sys_flag = sys_flag
    row.body_length = body_length
    row.topic_length = topic_length
    row.properties_length = properties_length
    return body, topic, properties


@compiled
def host_extra(sys_flag, host_bit):
    """Bytes by which an IPv6 host moves the fields after it."""
    return uint64(V6_EXTRA) if sys_flag & host_bit else uint64(0)


@compiled
def put_fixed(buffer, p, row):
    """Fields of the header that nothing is judged by."""
    born_extra = host_extra(row.sys_flag, BORN_V6)
    extra = born_extra + host_extra(row.sys_flag, STORE_V6)
    row.queue_offset = long_at(buffer, p + AT_QUEUE_OFFSET)
    row.born_timestamp_ms = long_at(buffer, p + AT_BORN)
    row.store_timestamp_ms = long_at(buffer, p + AT_STORED + born_extra)
    row.prepared_transaction_offset = long_at(buffer, p + AT_PREPARED + extra)
    row.verdict = row.features = 0
    row.queue_id = int_at(buffer, p + AT_QUEUE_ID)
    row.flag = int_at(buffer, p + AT_FLAG)
    row.reconsume_times = int_at(buffer, p + AT_RECONSUMED + extra)


@compiled
def put_texts(buffer, p, start, end, row):
    """Places of TAGS, KEYS and UNIQ_KEY and the tag's hash into the row; False if the plain judge must look."""
    row.tags_position = row.keys_position = row.unique_key_position = 0
    row.tags_length = row.keys_length = row.unique_key_length = -1
    row.tags_code = 0
    at = start
    while at < end:
        # A name ends at its first 01; a segment without one, without name or without value does not count.
        name = p + uint64(at)
        value = at
        while value < end and buffer[p + uint64(value)] != NAME_END and buffer[p + uint64(value)] != VALUE_END:
            value += 1
        if value >= end or buffer[p + uint64(value)] == VALUE_END:
            at = value + 1
            continue
        length = value - at
        value += 1
        at = value
        if length == 4 and is_at(buffer, name, TAGS_NAME):
            code = uint32(0)
            while at < end and buffer[p + uint64(at)] != VALUE_END:
                c = buffer[p + uint64(at)]
                if c >= 128:
                    return False
                code = code * uint32(31) + uint32(c)
                at += 1
            if at > value:
                row.tags_position = value
                row.tags_length = at - value
                row.tags_code = int32(code)
        else:
            while at < end and buffer[p + uint64(at)] != VALUE_END:
                at += 1
            if at > value and length == 4 and is_at(buffer, name, KEYS_NAME):
                row.keys_position = value
                row.keys_length = at - value
            elif at > value and length == 8 and is_at(buffer, name, UNIQUE_NAME):
                row.unique_key_position = value
                row.unique_key_length = at - value
            elif at > value and length > 6 and is_at(buffer, name, INNER_PREFIX):
                return False  # which features it means, the plain judge tells
        at += 1
    return True


@compiled
def put_delivery(buffer, p, start, end, delays_ms, row):
    """The delivery time of a delayed record as its tags code; False if the plain judge must look at its level."""
    level = int64(0)
    at = start
    while at < end:
        is_level = at + DELAY_NAME.size < end and is_at(buffer, p + uint64(at), DELAY_NAME)
        value = at + DELAY_NAME.size
        while at < end and buffer[p + uint64(at)] != VALUE_END:
            at += 1
        if is_level and at > value:
            if at - value > LEVEL_DIGITS_MAX:
                return False
            level = int64(0)
            for k in range(value, at):
                digit = buffer[p + uint64(k)]
                if digit < 48 or digit > 57:
                    return False
                level = level * 10 + int64(digit - 48)
        at += 1
    if level > 0 and delays_ms.size > 0:
        row.tags_code = row.store_timestamp_ms + delays_ms[min(level, delays_ms.size) - 1]
    return True


@compiled
def record_crc_right(buffer, checksum, address, at, size):
    """True if a record has no whole-record CRC or a right one: name, 01, digits from the last to the first, 02.

    Zeros and bytes that may be no text are no right one: they may be what was lost of it.
    """
    p = uint64(at + size - PROPERTY_SIZE)
    for k in range(PROPERTY_SIZE):
        if buffer[p + uint64(k)] == 0 or buffer[p + uint64(k)] >= 128:
            return False
    if not is_at(buffer, p, CRC_NAME) or buffer[p + uint64(PROPERTY_SIZE - 1)] != VALUE_END:
        return True
    stored = int64(0)
    for k in range(DIGITS):
        digit = buffer[p + uint64(CRC_NAME.size + DIGITS - 1 - k)]
        if digit < 48 or digit > 57:
            return True
        stored = stored * 10 + int64(digit - 48)
    return stored == int64(checksum(uint64(0), address + at, uint64(size - PROPERTY_SIZE)) & uint64(CRC_MASK))
