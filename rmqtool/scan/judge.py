"""Judges one record in bytes by the rules; needs no numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.commitlog import MESSAGE_MAGICS, SYS_FLAG_AT
from rmqtool.formats.java_text import decode_java_utf8, java_hash_of_bytes
from rmqtool.formats.properties import (
    INNER_BASE,
    INNER_COUNT,
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    SCHEDULE_TOPIC,
    split_properties,
)
from rmqtool.formats.record_crc import CRC_MASK, PROPERTY_SIZE, is_record_crc_lost, stored_record_crc
from rmqtool.formats.system_flag import HOSTS_V6
from rmqtool.formats.tags import delivery_tags_code, parse_java_int
from rmqtool.scan import columns
from rmqtool.scan.checksum import crc32
from rmqtool.scan.columns import Row, bare_row
from rmqtool.scan.rules import Verdict

TAIL_READ: Final = 2 + 32767 + 2 + 32767
"""Bytes in which everything after the body lies."""

ROWS_MAX: Final = 512
"""Rows that are judged at a time: few, so that the first ones come at once."""

FRAME: Final = Struct(commitlog.BLANK.struct_code)
"""Size and magic, with which a record begins."""
_HEADS: Final = {
    flags: Struct(
        ">"
        + "".join(
            {
                "born_host.address": f"{16 if flags & system_flag.BORN_HOST_V6 else 4}x",
                "store_host.address": f"{16 if flags & system_flag.STORE_HOST_V6 else 4}x",
            }.get(field.name, "4x" if field.name.endswith(".port") else str(field.code))
            for field in commitlog.MESSAGE_V1.fixed_fields
        )
    )
    for flags in (0, system_flag.BORN_HOST_V6, system_flag.STORE_HOST_V6, HOSTS_V6)
}
_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()
_NEED: Final = {b"TAGS": 0, b"KEYS": 1, b"UNIQ_KEY": 2, b"DELAY": 3}
_INNER: Final = b"INNER_"
_FEATURES: Final = {
    frozenset((MULTI_DISPATCH.encode(), MULTI_QUEUE_OFFSET.encode())): columns.MULTI_DISPATCH,
    frozenset((INNER_COUNT.encode(), INNER_BASE.encode())): columns.INNER_BATCH_NUMBERS,
}
"""Names of properties that together mean a feature."""


@dataclass(eq=False)
class TopicTable:
    """Numbers for topics in the order of their first appearance; local to a split."""

    names: list[bytes] = field(default_factory=list)
    _numbers: dict[bytes, int] = field(default_factory=dict)

    def number(self, topic: bytes) -> int:
        number = self._numbers.get(topic)
        if number is None:
            number = self._numbers[topic] = len(self.names)
            self.names.append(topic)
        return number


def judge_frame(frame: bytes | bytearray | memoryview, remaining: int) -> tuple[Verdict, int, int]:
    """Judge size and magic. (verdict, size, magic); a good blank has magic `MAGIC_BLANK`.

    Args:
        frame: at least 8 bytes, the start of the record.
        remaining: bytes from there to the end of the file.
    """
    size, magic = FRAME.unpack_from(frame)
    if size < 0 or size > remaining:
        return Verdict.BAD_SIZE, size, magic
    if magic in MESSAGE_MAGICS:
        return (Verdict.GOOD if size >= commitlog.RECORD_SIZE_MIN else Verdict.BAD_SIZE), size, magic
    if magic == commitlog.MAGIC_BLANK:
        return (Verdict.GOOD if size == remaining else Verdict.BAD_SIZE), size, magic
    return Verdict.BAD_MAGIC, size, magic


def judge_record(
    record: memoryview, physical_offset: int, topics: TopicTable, delays_ms: Sequence[int], record_crc: bool
) -> Row:
    """Judge a message whose frame is good, all of whose bytes are at hand."""
    return judge_parts(
        record[: commitlog.HEAD_SIZE_MAX],
        lambda position, length: record[position : position + length],
        lambda start, end: crc32(record[start:end]),
        physical_offset,
        topics,
        delays_ms,
        record_crc,
    )


def judge_messages(
    buffer: memoryview,
    remaining: int,
    physical_offset: int,
    begins: range,
    topics: TopicTable,
    delays_ms: Sequence[int],
    record_crc: bool,
) -> tuple[int, list[Row]]:
    """Judge good messages that follow each other, up to the first frame or record that is anything else.

    Args:
        buffer: their bytes; a record that reaches beyond them is not judged.
        remaining: bytes from its start to the end of the file.
        physical_offset: that of its start.
        begins: places in it at which a record may begin.

    Returns:
        The place after the last of them, and their rows, at most `ROWS_MAX`.
    """
    rows: list[Row] = []
    at = begins.start
    while at < begins.stop and len(rows) < ROWS_MAX:
        verdict, length, magic = judge_frame(buffer[at : at + FRAME.size], remaining - at)
        if verdict != Verdict.GOOD or magic not in MESSAGE_MAGICS or at + length > len(buffer):
            break
        row = judge_record(buffer[at : at + length], physical_offset + at, topics, delays_ms, record_crc)
        if row.verdict != Verdict.GOOD:
            break
        rows.append(row)
        at += length
    return at, rows


def judge_parts(
    head: memoryview,
    read: Callable[[int, int], bytes | bytearray | memoryview],
    checksum: Callable[[int, int], int],
    physical_offset: int,
    topics: TopicTable,
    delays_ms: Sequence[int],
    record_crc: bool,
) -> Row:
    """Judge a message whose frame is good, however long it is.

    Args:
        head: its first bytes, `commitlog.HEAD_SIZE_MAX` or all of them if it is shorter.
        read: gives (position, length) bytes of the record.
        checksum: gives the CRC-32 of bytes [start, end) of the record.
        record_crc: whether a whole-record CRC counts.
    """
    size, magic = FRAME.unpack_from(head)
    sys_flag = int.from_bytes(head[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big", signed=True)
    layout = _HEADS[sys_flag & HOSTS_V6]
    topic_width = 2 if magic == commitlog.MAGIC_V2 else 1
    if layout.size + topic_width + 2 > size:
        return bare_row(physical_offset, size, Verdict.BAD_LENGTHS, magic)
    (_, _, body_crc, queue_id, flag, queue_offset, own_offset, _, born, stored, reconsumed, prepared, body_length) = (
        layout.unpack_from(head)
    )
    body_end = layout.size + max(0, body_length)
    if body_end > size:
        return bare_row(physical_offset, size, Verdict.BAD_LENGTHS, magic)
    computed = checksum(layout.size, body_end) & CRC_MASK if body_length > 0 else 0
    verdict = Verdict.BODY_CRC_MISMATCH if body_length > 0 and computed != body_crc else Verdict.GOOD
    tail = bytes(read(body_end, min(size - body_end, TAIL_READ)))
    topic_length = int.from_bytes(tail[:topic_width], "big", signed=True)
    topic_end = topic_width + topic_length
    properties_length = (
        max(0, int.from_bytes(tail[topic_end : topic_end + 2], "big", signed=True)) if topic_length >= 0 else 0
    )
    if topic_length < 0 or body_end + topic_end + 2 + properties_length != size:
        return bare_row(physical_offset, size, verdict or Verdict.BAD_LENGTHS, magic)
    topic = tail[topic_width:topic_end]
    (tags, keys, unique_key, delay) = _texts(tail, topic_end + 2, body_end)
    tags_code = java_hash_of_bytes(tail[tags[0] - body_end :][: tags[1]]) if tags[1] > 0 else 0
    if topic == _SCHEDULE_TOPIC and delay[1] >= 0:
        try:
            level = parse_java_int(decode_java_utf8(tail[delay[0] - body_end :][: delay[1]]))
            delivery = delivery_tags_code(stored, level, delays_ms)
            tags_code = tags_code if delivery is None else delivery
        except ValueError:
            verdict = verdict or Verdict.BAD_PROPERTY
    if record_crc and verdict == Verdict.GOOD and properties_length >= PROPERTY_SIZE:
        stored_crc = stored_record_crc(tail[-PROPERTY_SIZE:])
        is_wrong = stored_crc is not None and stored_crc != checksum(0, size - PROPERTY_SIZE) & CRC_MASK
        if is_wrong or is_record_crc_lost(tail):
            verdict = Verdict.RECORD_CRC_MISMATCH
    if verdict == Verdict.GOOD and own_offset != physical_offset:
        verdict = Verdict.SELF_OFFSET_MISMATCH
    return Row(
        physical_offset, size, queue_offset, own_offset, born, stored, prepared, tags_code,
        verdict, magic, body_crc, computed, queue_id, flag, sys_flag, reconsumed,
        max(0, body_length), topics.number(topic), topic_length, properties_length, *tags, *keys, *unique_key,
        _features(tail[topic_end + 2 :]),
    )  # fmt: skip


def _texts(tail: bytes, start: int, body_end: int) -> list[tuple[int, int]]:
    """Position in the record and length of the values of TAGS, KEYS, UNIQ_KEY and DELAY; (0, -1) for an absent one."""
    spans = [(0, -1), (0, -1), (0, -1), (0, -1)]
    at = start
    for segment in tail[start:].split(b"\x02"):
        name, _, value = segment.partition(b"\x01")
        if value and (which := _NEED.get(name)) is not None:
            spans[which] = (body_end + at + len(name) + 1, len(value))
        at += len(segment) + 1
    return spans


def _features(properties: bytes) -> int:
    """Feature bits of a property block, most of which have no such name."""
    if _INNER not in properties:
        return 0
    names = {name for name, _ in split_properties(properties)}
    return sum(bit for needed_names, bit in _FEATURES.items() if needed_names <= names)
