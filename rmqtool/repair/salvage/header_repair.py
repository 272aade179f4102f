"""Headers of records: where no checksum covers them and all else contradicts them, set to what queue or neighbors say.

Of a record whose first eight bytes are wrong and nothing else, its own lengths tell the size, and its CRC proves it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rmqtool.engine.reading.record import Record, SingleRecord, decode_record, read_record
from rmqtool.engine.segments.log import Log, RecordLocation
from rmqtool.errors import UnreadableError
from rmqtool.findings.finding import Finding
from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.commitlog import MESSAGE_MAGICS, SYS_FLAG_AT
from rmqtool.formats.properties import MULTI_DISPATCH
from rmqtool.formats.queue_name import topic_bytes, topic_text
from rmqtool.formats.record_crc import stored_record_crc
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.repair.salvage.record_repair import MENDED_MAX, with_fields, with_record_crc
from rmqtool.scan.judge import TopicTable, judge_record
from rmqtool.scan.rules import Verdict
from rmqtool.verify.match.queue_order import MisplacedRecord

DOUBTFUL: Final = "commitlog.doubtful-header"


def corrected_record(log: Log, finding: Finding, *, record_crc: bool) -> bytes | None:
    """The record of a `commitlog.doubtful-header` with its header set right; None where nobody knows what is right.

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
        return with_fields(changed, {**fields, "sys_flag": _dispatched_flag(record)})

    return _changed(log, misplaced.physical_offset, by_queue, record_crc=record_crc)


def _dispatched_flag(record: Record) -> int:
    """The flags of a record that stands in a queue: it is neither a half message nor rolled back."""
    if system_flag.takes_queue_entry(record.sys_flag):
        return record.sys_flag
    was = system_flag.TRANSACTION_COMMIT if record.prepared_transaction_offset else 0
    return record.sys_flag & ~system_flag.TRANSACTION_MASK | was


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
    """Whether a record that knows its place begins so many bytes behind another."""
    behind = log.place(place.physical_offset + size)
    if behind is None:
        return False
    try:
        record = decode_record(log, behind)
    except UnreadableError:
        return False
    return record is not None and record.physical_offset == behind.physical_offset


def _size_by_lengths(log: Log, place: RecordLocation, limit: int, topic_width: int) -> int | None:
    """The size to which the lengths inside a record add up; None where they lead out of the limit."""
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
