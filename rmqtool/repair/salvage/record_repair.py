"""Damaged records that are kept: where the bytes prove their content, or a person wants them as they are.

Fields of a header that no checksum covers and all else contradicts are set to what queue or neighbors say. Of a record
whose first eight bytes are wrong and nothing else, its own lengths tell the size, and its CRC proves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Final

from rmqtool.engine.reading.record import Record, SingleRecord, decode_record, read_record
from rmqtool.engine.segments.log import Log, RecordLocation
from rmqtool.errors import UnreadableError
from rmqtool.findings.finding import Finding
from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.commitlog import MESSAGE_MAGICS, SYS_FLAG_AT
from rmqtool.formats.properties import MULTI_DISPATCH
from rmqtool.formats.queue_name import topic_bytes, topic_text
from rmqtool.formats.record_crc import (
    CRC_MASK,
    is_record_crc_lost,
    masked_crc,
    record_crc_matches,
    stored_record_crc,
    with_record_crc,
)
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.scan.judge import TopicTable, judge_record
from rmqtool.scan.rules import Verdict
from rmqtool.store.source import ByteSource, read_range
from rmqtool.verify.match.flipped_bit import flipped_bits
from rmqtool.verify.match.queue_order import MisplacedRecord

DOUBTFUL: Final = "commitlog.doubtful-header"

MENDED_MAX: Final = 64 << 20
"""Bytes of a record that is repaired; no broker takes a message anywhere near as long."""


class RepairedRecord(Enum):
    """Repair of a record; the value is in JSON."""

    FRAME = "frame"
    """Size or magic were wrong; lengths, CRC and own offset prove the right ones."""
    OWN_OFFSET = "own-offset"
    HEAD = "head"
    """A field that no checksum covers and that the queue contradicts."""
    FLIPPED_BIT = "flipped-bit"
    AS_IS = "as-is"
    """A damaged body under an intact header, with a new CRC."""


NEEDS_CONSENT: Final = frozenset({RepairedRecord.FLIPPED_BIT, RepairedRecord.AS_IS})
"""Repairs that are made only on request."""


def possible_repairs(
    source: ByteSource, file_position: int, physical_offset: int, head: Record, *, record_crc: bool
) -> Iterator[tuple[RepairedRecord, bytes]]:
    """The ways in which a damaged record could be kept, the surest first, each with the record's bytes then.

    Args:
        head: of a record all of whose lengths agree.
    """
    if head.size > MENDED_MAX:
        return
    try:
        raw = read_range(source, file_position, head.size)
        body_is_right = head.body_crc_ok
    except UnreadableError:
        return
    if len(raw) < head.size:
        return
    has_crc = record_crc and (stored_record_crc(raw) is not None or is_record_crc_lost(raw))
    if not body_is_right:
        yield from _with_another_body(raw, head, has_crc=has_crc)
        return
    repaired = with_fields(raw, {"physical_offset": physical_offset})
    if repaired != raw and (not has_crc or record_crc_matches(repaired)):
        yield RepairedRecord.OWN_OFFSET, repaired
    elif has_crc:
        yield RepairedRecord.AS_IS, with_record_crc(repaired)


def with_fields(record: bytes, values: Mapping[str, int]) -> bytes:
    """A record with other values in fixed fields of its header; checksums stay as they are."""
    changed = bytearray(record)
    for field in commitlog.MESSAGE_V1.fixed_fields:
        if field.name in values and field.position is not None and field.size is not None:
            end = field.position + field.size
            changed[field.position : end] = values[field.name].to_bytes(field.size, "big", signed=True)
    return bytes(changed)


def _with_another_body(raw: bytes, head: Record, *, has_crc: bool) -> Iterator[tuple[RepairedRecord, bytes]]:
    body = raw[head.body_position : head.body_position + head.body_length]
    candidate_bits = flipped_bits(head.body_crc & CRC_MASK, masked_crc(body), head.body_length)
    kept = with_fields(raw, {"body_crc": masked_crc(body)})
    if head.body_crc & CRC_MASK == masked_crc(body):
        # The top bit, which a broker never sets (`UtilAll#crc32`).
        yield RepairedRecord.FLIPPED_BIT, kept
    elif len(candidate_bits) == 1:
        repaired = bytearray(raw)
        if candidate_bits[0].byte >= 0:
            repaired[head.body_position + candidate_bits[0].byte] ^= 1 << candidate_bits[0].bit
        unflipped = bytes(repaired) if candidate_bits[0].byte >= 0 else kept
        if not has_crc or record_crc_matches(unflipped):
            yield RepairedRecord.FLIPPED_BIT, unflipped
    yield RepairedRecord.AS_IS, with_record_crc(kept) if has_crc else kept


def corrected_record(log: Log, finding: Finding, *, record_crc: bool) -> bytes | None:
    """The record of a `commitlog.doubtful-header` with its header corrected; None where the right one is unknown.

    Verify says what is right where the log does (`verify.match.queue_sequence`), or the record's own property, which
    brokers dispatch batches by.
    """
    if finding.expected is None or finding.physical_offset is None:
        return None
    if finding.topic is None or finding.queue_id is None or finding.queue_offset is None:
        return None
    topic = topic_bytes(finding.topic)
    misplaced = MisplacedRecord(finding.physical_offset, topic, finding.queue_id, finding.queue_offset)
    moved = moved_record(log, misplaced, record_crc=record_crc)
    return moved or _changed(log, finding.physical_offset, _without_transaction, record_crc=record_crc)


def _without_transaction(raw: bytes, record: Record) -> bytes | None:
    """A message of no transaction with 0 for the offset of a half message, as brokers write it."""
    begin = record.prepared_transaction_offset
    is_possible = 0 <= begin <= record.physical_offset or begin == TOMBSTONE
    if is_possible or record.sys_flag & system_flag.TRANSACTION_MASK:
        return None
    return with_fields(raw, {"prepared_transaction_offset": 0})


def moved_record(log: Log, misplaced: MisplacedRecord, *, record_crc: bool) -> bytes | None:
    """A record whose header says the topic, queue and queue offset that it must have; None where that cannot be."""

    def by_queue(raw: bytes, record: Record) -> bytes | None:
        if topic_text(misplaced.topic) in record.properties.get(MULTI_DISPATCH, "").split(","):
            return None  # a property names this queue and the place in it, and not the header
        if len(record.topic_raw) != len(misplaced.topic):
            return None
        topic_end = record.size - 2 - len(record.properties_raw)
        changed = raw[: topic_end - len(misplaced.topic)] + misplaced.topic + raw[topic_end:]
        fields = {"queue_id": misplaced.queue_id, "queue_offset": misplaced.queue_offset}
        sys_flag = record.sys_flag
        if not system_flag.takes_queue_entry(sys_flag):  # who stands in a queue is not prepared or rolled back
            was = system_flag.TRANSACTION_COMMIT if record.prepared_transaction_offset else 0
            sys_flag = sys_flag & ~system_flag.TRANSACTION_MASK | was
        return with_fields(changed, {**fields, "sys_flag": sys_flag})

    return _changed(log, misplaced.physical_offset, by_queue, record_crc=record_crc)


def _changed(
    log: Log, physical_offset: int, change: Callable[[bytes, Record], bytes | None], *, record_crc: bool
) -> bytes | None:
    try:
        record = read_record(log, physical_offset)
        if record is None or record.size > MENDED_MAX:
            return None
        raw = log.read(record.place, 0, record.size)
    except UnreadableError:
        return None
    changed = change(raw, record)
    if changed is None or changed == raw:
        return None
    return with_record_crc(changed) if record_crc and stored_record_crc(raw) is not None else changed


def restored(
    log: Log, place: RecordLocation, limit: int, *, record_crc: bool, known_size: int | None = None
) -> tuple[Record, bytes] | None:
    """A record with the size and magic that all else in it speaks for, and its bytes; None where nothing does.

    Its lengths may be damaged as well, so that something else has to begin where they make it end.

    Args:
        limit: bytes from the place on in which it has to end, and where a good record may follow.
        known_size: what its queue says.
    """
    for magic in MESSAGE_MAGICS:
        try:
            size = _size_by_lengths(log, place, limit, 2 if magic == commitlog.MAGIC_V2 else 1)
            raw = log.read(place, 0, size) if size else b""
        except UnreadableError:
            return None
        if not size or len(raw) < size:
            continue
        raw = size.to_bytes(4, "big") + magic.to_bytes(4, "big", signed=True) + raw[8:]
        row = judge_record(memoryview(raw), place.physical_offset, TopicTable(), (), record_crc)
        is_whole = row.verdict == Verdict.GOOD and row.topic_length > 0 and row.body_length > 0
        if is_whole and (size in (limit, known_size) or _begins_at(log, place, size)):
            record = decode_record(SingleRecord(log.rules, _reader(raw)), place)
            return None if record is None else (record, raw)
    return None


def _begins_at(log: Log, place: RecordLocation, size: int) -> bool:
    """True if a record with the right offset begins this number of bytes after another."""
    behind = log.place(place.physical_offset + size)
    if behind is None:
        return False
    try:
        record = decode_record(log, behind)
    except UnreadableError:
        return False
    return record is not None and record.physical_offset == behind.physical_offset


def _size_by_lengths(log: Log, place: RecordLocation, limit: int, topic_width: int) -> int | None:
    """Size to which the lengths inside a record add up; None where they exceed the limit."""
    head = log.read(place, 0, commitlog.HEAD_SIZE_MAX)
    if len(head) < commitlog.HEAD_SIZE:
        return None
    sys_flag = int.from_bytes(head[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")
    at = commitlog.HEAD_SIZE
    at += commitlog.host_extra(sys_flag, system_flag.BORN_HOST_V6)
    at += commitlog.host_extra(sys_flag, system_flag.STORE_HOST_V6)
    at += int.from_bytes(head[at - 4 : at], "big", signed=True)
    for width in (topic_width, 2):
        if not commitlog.HEAD_SIZE <= at <= min(limit, MENDED_MAX) - width:
            return None
        at += width + int.from_bytes(log.read(place, at, width), "big", signed=True)
    return at if commitlog.RECORD_SIZE_MIN <= at <= min(limit, MENDED_MAX) else None


def _reader(raw: bytes) -> Callable[[int, int], bytes]:
    return lambda start, length: raw[start : start + length]
