"""Digests of records: of a message's identity, of its content, and of every byte of its record.

Three numbers of 64 bits a record, made of its header, topic and properties and of the CRC-32 that the walk computed of
its body, so that no body is read twice. They find what accident and damage do, with a chance of missing it of 1 in 2^31
where only a body differs and of 1 in 2^64 elsewhere; they are no protection against somebody who looks for collisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.commitlog import BORN_HOST_AT
from rmqtool.formats.properties import MULTI_QUEUE_OFFSET, split_properties
from rmqtool.formats.record_crc import PROPERTY_SIZE, stored_record_crc
from rmqtool.formats.system_flag import HOSTS_V6
from rmqtool.scan import columns
from rmqtool.scan.checksum import crc32
from rmqtool.scan.columns import Row
from rmqtool.scan.compiled import is_worth, load_kernel
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import FRAME_SIZE, Batch

if TYPE_CHECKING:
    import numpy

COMPILED_FROM_ROWS: Final = 500
"""Rows of a batch, a block of 512 KiB as a rule, from which numba is loaded: a record takes Python 60 µs here."""
_MASK: Final = (1 << 64) - 1
_FACTOR: Final = 0x9FB21C651E98DF25
_FINISH: Final = 0xD6E8FEB86659FD93
_MULTI_QUEUE_OFFSET: Final = MULTI_QUEUE_OFFSET.encode()


class Digests(NamedTuple):
    """Of each row of a batch, as arrays of unsigned 64-bit numbers; of a blank or bad range only `whole` counts.

    Attributes:
        identity: of topic and unique key; without one of what the producer said, when and from where.
        content: of what a consumer gets: topic, flags, properties and body, but not where the broker put it.
        whole: of the record's bytes and place; of a blank's frame only, for brokers leave anything after it.
    """

    identity: numpy.ndarray[Any, Any]
    content: numpy.ndarray[Any, Any]
    whole: numpy.ndarray[Any, Any]


def batch_digests(batch: Batch, rows: numpy.ndarray[Any, Any], *, by_content: bool, record_crc: bool) -> Digests:
    """Digests of the rows of a batch, computed while its bytes are at hand.

    Args:
        rows: of the batch, as an array.
        by_content: leave unique keys out of the identity.
        record_crc: whether the store writes whole-record CRCs, which say where a message lies and not what it is.
    """
    import numpy

    digests = Digests(*(numpy.zeros(len(rows), numpy.uint64) for _ in Digests._fields))
    plain: Sequence[int] = range(len(rows))
    if is_worth(len(rows), COMPILED_FROM_ROWS):
        plain = _compiled(batch, rows, digests, by_content=by_content, record_crc=record_crc)
    for number in plain:
        row = Row._make(rows[number].item())
        values = _row_digests(batch, row, by_content=by_content, record_crc=record_crc)
        for column, value in zip(digests, values, strict=True):
            column[number] = value
    return digests


def text_digest(text: bytes) -> int:
    """Digest of bytes: their length, then eight at a time, high byte first, the last ones filled up with zeros."""
    state = mixed(0, len(text))
    padded = text + bytes(-len(text) % 8)
    for at in range(0, len(padded), 8):
        state = mixed(state, int.from_bytes(padded[at : at + 8], "big"))
    return finished(state)


def mixed(state: int, word: int) -> int:
    """The state after one more word of 64 bits."""
    state = (state ^ word & _MASK) * _FACTOR & _MASK
    return state ^ state >> 32


def finished(state: int) -> int:
    """The state spread over all bits."""
    state = (state ^ state >> 32) * _FINISH & _MASK
    return state ^ state >> 32


def _compiled(
    batch: Batch, rows: numpy.ndarray[Any, Any], digests: Digests, *, by_content: bool, record_crc: bool
) -> Sequence[int]:
    """Let the kernel fill in what it can; return the numbers of the rows that it cannot."""
    import numpy

    window, base = batch.window, batch.split.physical_offset + batch.window.start
    is_plain = (rows["verdict"] == Verdict.GOOD) & (rows["magic"] != commitlog.MAGIC_BLANK)
    is_plain &= (rows["features"] & columns.MULTI_DISPATCH) == 0
    is_plain &= (rows["physical_offset"] >= base) & (
        rows["physical_offset"] + rows["size"] <= base + window.end - window.start
    )
    kernel = load_kernel("rmqtool.scan.kernels.digest_kernel")
    buffer = numpy.frombuffer(window.storage, numpy.uint8)
    if is_plain.all():
        kernel.record_digests(buffer, base, rows, by_content, record_crc, *digests)
        return []
    chosen = numpy.flatnonzero(is_plain)
    part = Digests(*(numpy.zeros(chosen.size, numpy.uint64) for _ in Digests._fields))
    kernel.record_digests(buffer, base, rows[chosen], by_content, record_crc, *part)
    for column, values in zip(digests, part, strict=True):
        column[chosen] = values
    return numpy.flatnonzero(~is_plain).tolist()


def _row_digests(batch: Batch, row: Row, *, by_content: bool, record_crc: bool) -> tuple[int, int, int]:
    if row.verdict != Verdict.GOOD or row.magic == commitlog.MAGIC_BLANK:
        return 0, 0, _range_digest(batch, row)
    topic_width = 2 if row.magic == commitlog.MAGIC_V2 else 1
    tail = batch.read(row, row.size - row.properties_length - 2 - row.topic_length - topic_width, row.size)
    topic = tail[topic_width : topic_width + row.topic_length]
    properties = tail[topic_width + row.topic_length + 2 :]
    crc = properties[-PROPERTY_SIZE:] if record_crc and stored_record_crc(properties) is not None else b""
    kept = properties.removesuffix(crc)
    if row.features & columns.MULTI_DISPATCH:  # without the queue offsets that a broker puts into them
        texts = ((name, value) for name, value in split_properties(kept) if name != _MULTI_QUEUE_OFFSET)
        kept = b"".join(name + b"\x01" + value + b"\x02" for name, value in texts)
    topic_digest = text_digest(topic)
    state = mixed(topic_digest, text_digest(kept))
    state = mixed(state, row.body_length << 32 | row.computed_crc)
    state = mixed(state, row.flag << 32 | (row.sys_flag & ~HOSTS_V6 & _MASK))
    content = finished(state)
    head = batch.read(row, 0, row.size - row.body_length - len(tail))
    if row.unique_key_length > 0 and not by_content:
        key = batch.read(row, row.unique_key_position, row.unique_key_length)
        identity = finished(mixed(topic_digest, text_digest(key)))
    else:
        born_on_v6 = row.sys_flag & system_flag.BORN_HOST_V6
        host = head[BORN_HOST_AT:][: commitlog.V6_HOST_SIZE if born_on_v6 else commitlog.V4_HOST_SIZE]
        identity = finished(mixed(mixed(row.born_timestamp_ms, text_digest(host)), content))
    left_out = properties if row.features & columns.MULTI_DISPATCH else crc
    whole = mixed(mixed(mixed(text_digest(head), content), text_digest(left_out)), row.physical_offset)
    return identity, content, finished(whole)


def _range_digest(batch: Batch, row: Row) -> int:
    """Digest of a blank's frame, or of all bytes of a bad range; what the disk does not give counts as zeros."""
    start = row.physical_offset - batch.split.physical_offset
    is_blank = row.verdict == Verdict.GOOD
    value = 0
    for part in batch.window.chunks(start, start + (FRAME_SIZE if is_blank else row.size)):
        value = crc32(part, value)
    return finished(mixed(mixed(mixed(row.verdict, row.size), value), row.physical_offset))
