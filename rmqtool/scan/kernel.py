"""The compiled walk over one block: rows for records that are plainly good. Whatever else it meets, it stops and leaves to the plain judge.

Import this module only through `compiled`, which first registers the CRC function that the kernel calls by name: a missing symbol is a crash.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"
from __future__ import annotations

import numba
import numpy as np
from numba import types

from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.properties import SCHEDULE_TOPIC
from rmqtool.formats.record_crc import CRC_MASK
from rmqtool.scan.crc_symbol import SYMBOL

CRC = types.ExternalFunction(SYMBOL, types.uint64(types.uint64, types.intp, types.uint64))

_AT = {field.name: np.uint64(field.position) for field in commitlog.MESSAGE_V1.fixed_fields}
MAGIC_V1, MAGIC_V2 = commitlog.MAGIC_V1, commitlog.MAGIC_V2
SIZE_MIN = commitlog.RECORD_SIZE_MIN
V6_EXTRA = commitlog.V6_EXTRA
BORN_V6, STORE_V6 = system_flag.BORN_HOST_V6, system_flag.STORE_HOST_V6
HEAD_SIZE = commitlog.HEAD_SIZE
SCHEDULE_LENGTH = len(SCHEDULE_TOPIC)
(AT_BODY_CRC, AT_QUEUE_ID, AT_FLAG, AT_QUEUE_OFFSET, AT_OWN_OFFSET, AT_SYS_FLAG, AT_BORN, AT_STORED, AT_RECONSUMED, AT_PREPARED, AT_BODY_LENGTH) = (
    _AT[name]
    for name in (
        "body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag", "born_timestamp_ms", "store_timestamp_ms",
        "reconsume_times", "prepared_transaction_offset", "body_length",
    )
)  # fmt: skip
NAME_MAX = 8
CRC_NAME = np.frombuffer(b"__CRC32#", np.uint8)
TOPIC_SLOTS_EMPTY = -1

inline = numba.njit(inline="always")


@inline
def load_i32(buffer, at):
    return np.int32(
        (np.uint32(buffer[at]) << np.uint32(24))
        | (np.uint32(buffer[at + np.uint64(1)]) << np.uint32(16))
        | (np.uint32(buffer[at + np.uint64(2)]) << np.uint32(8))
        | np.uint32(buffer[at + np.uint64(3)])
    )


@inline
def load_i64(buffer, at):
    high = np.uint64(np.uint32(load_i32(buffer, at)))
    low = np.uint64(np.uint32(load_i32(buffer, at + np.uint64(4))))
    return np.int64((high << np.uint64(32)) | low)


@numba.njit(nogil=True, cache=True)
def find_topic(buffer, at, length, arena, starts, slots):
    """Number of a known topic, -1 for one that is not."""
    mask = np.uint64(slots.size - 1)
    code = np.uint64(length)
    for k in range(length):
        code = (code ^ np.uint64(buffer[at + np.uint64(k)])) * np.uint64(0x9E3779B97F4A7C15)
    slot = (code >> np.uint64(32)) & mask
    while True:
        number = slots[slot]
        if number < 0:
            return -1
        start = starts[number]
        if starts[number + 1] - start == length:
            same = True
            for k in range(length):
                if arena[start + k] != buffer[at + np.uint64(k)]:
                    same = False
                    break
            if same:
                return number
        slot = (slot + np.uint64(1)) & mask


@numba.njit(nogil=True, cache=True)
def insert_topic(number, arena, starts, slots):
    """Enter a topic whose bytes stand in the arena already."""
    mask = np.uint64(slots.size - 1)
    start, end = starts[number], starts[number + 1]
    code = np.uint64(end - start)
    for k in range(start, end):
        code = (code ^ np.uint64(arena[k])) * np.uint64(0x9E3779B97F4A7C15)
    slot = (code >> np.uint64(32)) & mask
    while slots[slot] >= 0:
        slot = (slot + np.uint64(1)) & mask
    slots[slot] = number


@numba.njit(nogil=True, cache=True)
def walk_block(
    buffer, address, begin, end, limit, base, record_crc, schedule_number, arena, starts, slots, last_topic, rows
):
    """Fill rows with good records of `buffer[begin:end]`; (position behind the last one, number of rows, topic of the last one).

    A record must begin before `limit`. `base` is the physical offset of `buffer[0]`, `address` where the buffer lies in memory.
    """
    at = begin
    count = 0
    room = rows.size
    while at + np.int64(HEAD_SIZE) <= end and at < limit and count < room:
        p = np.uint64(at)
        size = np.int64(load_i32(buffer, p))
        magic = load_i32(buffer, p + np.uint64(4))
        if magic == MAGIC_V1:
            width = np.int64(1)
        elif magic == MAGIC_V2:
            width = np.int64(2)
        else:
            break
        if size < SIZE_MIN or at + size > end:
            break
        sys_flag = load_i32(buffer, p + AT_SYS_FLAG)
        born_extra = np.uint64(V6_EXTRA) if sys_flag & BORN_V6 else np.uint64(0)
        extra = born_extra + (np.uint64(V6_EXTRA) if sys_flag & STORE_V6 else np.uint64(0))
        body = np.int64(HEAD_SIZE) + np.int64(extra)
        if body + width + 2 > size:
            break
        body_length = max(np.int64(0), np.int64(load_i32(buffer, p + AT_BODY_LENGTH + extra)))
        body_end = body + body_length
        if body_end + width + 2 > size:
            break
        q = p + np.uint64(body_end)
        if width == 1:
            topic_length = np.int64(np.int8(buffer[q]))
        else:
            topic_length = np.int64(
                np.int16((np.uint16(buffer[q]) << np.uint16(8)) | np.uint16(buffer[q + np.uint64(1)]))
            )
        properties = body_end + width + topic_length + 2
        if topic_length < 0 or properties > size:
            break
        w = p + np.uint64(properties)
        properties_length = max(
            np.int64(0),
            np.int64(
                np.int16((np.uint16(buffer[w - np.uint64(2)]) << np.uint16(8)) | np.uint16(buffer[w - np.uint64(1)]))
            ),
        )
        if properties + properties_length != size or load_i64(buffer, p + AT_OWN_OFFSET) != base + at:
            break
        body_crc = load_i32(buffer, p + AT_BODY_CRC)
        computed = np.int32(0)
        if body_length > 0:
            computed = np.int32(CRC(np.uint64(0), address + at + body, np.uint64(body_length)) & np.uint64(CRC_MASK))
            if computed != body_crc:
                break
        topic_at = q + np.uint64(width)
        same = last_topic >= 0 and starts[last_topic + 1] - starts[last_topic] == topic_length
        if same:
            start = starts[last_topic]
            for k in range(topic_length):
                if arena[start + k] != buffer[topic_at + np.uint64(k)]:
                    same = False
                    break
        number = last_topic if same else find_topic(buffer, topic_at, topic_length, arena, starts, slots)
        if number < 0 or number == schedule_number:
            break
        row = rows[count]
        if not put_texts(buffer, p, properties, size, record_crc, row):
            break
        last_topic = number
        row.physical_offset = base + at
        row.size = size
        row.queue_offset = load_i64(buffer, p + AT_QUEUE_OFFSET)
        row.own_offset = base + at
        row.born_timestamp_ms = load_i64(buffer, p + AT_BORN)
        row.store_timestamp_ms = load_i64(buffer, p + AT_STORED + born_extra)
        row.prepared_transaction_offset = load_i64(buffer, p + AT_PREPARED + extra)
        row.verdict = 0
        row.magic = magic
        row.body_crc = body_crc
        row.computed_crc = computed
        row.queue_id = load_i32(buffer, p + AT_QUEUE_ID)
        row.flag = load_i32(buffer, p + AT_FLAG)
        row.sys_flag = sys_flag
        row.reconsume_times = load_i32(buffer, p + AT_RECONSUMED + extra)
        row.body_length = body_length
        row.topic_number = number
        row.topic_length = topic_length
        row.properties_length = properties_length
        row.features = 0
        count += 1
        at += size
    return at, count, last_topic


@numba.njit(nogil=True, cache=True)
def put_texts(buffer, p, start, end, record_crc, row):
    """Places of TAGS, KEYS and UNIQ_KEY and the tag's hash into the row; False if the plain judge must look."""
    row.tags_position = row.keys_position = row.unique_key_position = 0
    row.tags_length = row.keys_length = row.unique_key_length = -1
    tags_code = np.int32(0)
    at = start
    while at < end:
        # A name ends at its first 01; a segment without one, without name or without value does not count.
        name = at
        c = buffer[p + np.uint64(at)]
        while c != 1 and c != 2:
            at += 1
            if at >= end:
                break
            c = buffer[p + np.uint64(at)]
        if at >= end or c == 2:
            at += 1
            continue
        value = at + 1
        length = at - name
        first = buffer[p + np.uint64(name)] if length > 0 else np.uint8(0)
        is_tags = length == 4 and first == 84 and matches(buffer, p, name, 65, 71, 83)
        at = value
        if is_tags:
            code = np.uint32(0)
            while at < end and buffer[p + np.uint64(at)] != 2:
                c = buffer[p + np.uint64(at)]
                if c >= 128:
                    return False
                code = code * np.uint32(31) + np.uint32(c)
                at += 1
            if at > value:
                row.tags_position = value
                row.tags_length = at - value
                tags_code = np.int32(code)
        else:
            while at < end and buffer[p + np.uint64(at)] != 2:
                at += 1
            if at > value:
                if length == 4 and first == 75 and matches(buffer, p, name, 69, 89, 83):
                    row.keys_position = value
                    row.keys_length = at - value
                elif (
                    length == 8
                    and first == 85
                    and matches(buffer, p, name, 78, 73, 81)
                    and unique_rest(buffer, p + np.uint64(name + 4))
                ):
                    row.unique_key_position = value
                    row.unique_key_length = at - value
                elif record_crc and length == 8 and first == 95:
                    return False
                elif length > 6 and first == 73 and matches(buffer, p, name, 78, 78, 69):
                    return False  # INNER_...: which features it means, the plain judge tells
        at += 1
    row.tags_code = tags_code
    return True


@inline
def matches(buffer, p, name, second, third, fourth):
    at = p + np.uint64(name)
    return (
        buffer[at + np.uint64(1)] == second
        and buffer[at + np.uint64(2)] == third
        and buffer[at + np.uint64(3)] == fourth
    )


@inline
def unique_rest(buffer, at):
    return (
        buffer[at] == 95
        and buffer[at + np.uint64(1)] == 75
        and buffer[at + np.uint64(2)] == 69
        and buffer[at + np.uint64(3)] == 89
    )
