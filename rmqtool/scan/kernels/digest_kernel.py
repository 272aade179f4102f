"""The compiled digests of records, defined in `digest`, whose plain functions give the same numbers."""

# The compiler infers the types of what it compiles; annotations would say less, and not be checked against it.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"
# ruff: noqa: ANN001, ANN201
from __future__ import annotations

import numpy
from numba import uint64

from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.commitlog import BORN_HOST_AT
from rmqtool.formats.properties import RECORD_CRC
from rmqtool.formats.record_crc import PROPERTY_SIZE
from rmqtool.scan.kernels.jit import BYTES, DIGESTS, FLAG, LONG, ROWS, compiled, kernel

FACTOR = uint64(0x9FB21C651E98DF25)
FINISH = uint64(0xD6E8FEB86659FD93)
HALF = uint64(32)
BORN_V6, V4_HOST_SIZE, V6_EXTRA = system_flag.BORN_HOST_V6, commitlog.V4_HOST_SIZE, commitlog.V6_EXTRA
MAGIC_V2 = commitlog.MAGIC_V2
CRC_NAME = numpy.frombuffer(RECORD_CRC.encode() + b"\x01", numpy.uint8)
HOST_BITS = system_flag.BORN_HOST_V6 | system_flag.STORE_HOST_V6


@compiled
def mixed(state, word):
    """The state after one more word."""
    state = (state ^ word) * FACTOR
    return state ^ (state >> HALF)


@compiled
def finished(state):
    """The state spread over all bits."""
    state = (state ^ (state >> HALF)) * FINISH
    return state ^ (state >> HALF)


@compiled
def text_digest(buffer, start, length):
    """Digest of bytes: their length, then eight at a time, high byte first, the last ones filled up with zeros."""
    state = mixed(uint64(0), uint64(length))
    at = uint64(start)
    for _ in range(length >> 3):
        word = uint64(0)
        for k in range(8):
            word = (word << uint64(8)) | uint64(buffer[at + uint64(k)])
        state = mixed(state, word)
        at += uint64(8)
    rest = length & 7
    if rest:
        word = uint64(0)
        for k in range(rest):
            word = (word << uint64(8)) | uint64(buffer[at + uint64(k)])
        state = mixed(state, word << uint64(8 * (8 - rest)))
    return finished(state)


@compiled
def crc_length(buffer, end, properties_length):
    """Bytes that the whole-record CRC takes at the end of a property block; 0 where there is none."""
    if properties_length < PROPERTY_SIZE:
        return 0
    start = uint64(end - PROPERTY_SIZE)
    for k in range(CRC_NAME.size):
        if buffer[start + uint64(k)] != CRC_NAME[k]:
            return 0
    return PROPERTY_SIZE


@kernel(BYTES, LONG, ROWS, FLAG, FLAG, DIGESTS, DIGESTS, DIGESTS)
def record_digests(buffer, base, rows, by_content, record_crc, identity, content, whole):
    """Digests of good messages that lie in the buffer, whose first byte has the physical offset `base`."""
    for k in range(rows.size):
        row = rows[k]
        at = row.physical_offset - base
        end = at + row.size
        properties = end - row.properties_length
        topic = properties - 2 - row.topic_length
        tail = topic - (2 if row.magic == MAGIC_V2 else 1)
        kept = row.properties_length - (crc_length(buffer, end, row.properties_length) if record_crc else 0)
        topic_digest = text_digest(buffer, topic, row.topic_length)
        state = mixed(topic_digest, text_digest(buffer, properties, kept))
        state = mixed(state, (uint64(row.body_length) << HALF) | uint64(row.computed_crc))
        state = mixed(state, uint64(row.flag) << HALF | uint64(row.sys_flag & ~HOST_BITS))
        content[k] = finished(state)
        if row.unique_key_length > 0 and not by_content:
            key = text_digest(buffer, at + row.unique_key_position, row.unique_key_length)
            identity[k] = finished(mixed(topic_digest, key))
        else:
            host = V4_HOST_SIZE + (V6_EXTRA if row.sys_flag & BORN_V6 else 0)
            born = mixed(uint64(row.born_timestamp_ms), text_digest(buffer, at + BORN_HOST_AT, host))
            identity[k] = finished(mixed(born, content[k]))
        head = text_digest(buffer, at, tail - row.body_length - at)
        crc = text_digest(buffer, properties + kept, row.properties_length - kept)
        whole[k] = finished(mixed(mixed(mixed(head, content[k]), crc), uint64(row.physical_offset)))
