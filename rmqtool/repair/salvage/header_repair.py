"""Heads of good records that no checksum covers and that all else contradicts: set to what queue or neighbours say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rmqtool.engine.reading.record import Record, read_record
from rmqtool.engine.segments.log import Log
from rmqtool.errors import UnreadableError
from rmqtool.formats import system_flag
from rmqtool.formats.properties import MULTI_DISPATCH
from rmqtool.formats.record_crc import stored_record_crc
from rmqtool.repair.salvage.record_repair import MENDED_MAX, with_fields, with_record_crc
from rmqtool.verify.catalog.finding import Finding
from rmqtool.verify.match.queue_order import MisplacedRecord
from rmqtool.verify.survey.context import topic_text

DOUBTFUL: Final = "commitlog.doubtful-header"


def corrected_record(log: Log, finding: Finding, *, record_crc: bool) -> bytes | None:
    """The record of a `commitlog.doubtful-header` with its head set right; None where nobody knows what is right.

    Verify says what is right where the log does (`verify.match.queue_sequence`), or the record's own property, which
    brokers dispatch batches by.
    """
    if finding.expected is None or finding.physical_offset is None:
        return None
    if finding.topic is None or finding.queue_id is None or finding.queue_offset is None:
        return None
    topic = finding.topic.encode("utf-8", "surrogateescape")
    return moved_record(
        log,
        MisplacedRecord(finding.physical_offset, topic, finding.queue_id, finding.queue_offset),
        record_crc=record_crc,
    )


def moved_record(log: Log, misled: MisplacedRecord, *, record_crc: bool) -> bytes | None:
    """A record whose head says the topic, queue and queue offset that it must have; None where that cannot be."""

    def by_queue(raw: bytes, record: Record) -> bytes | None:
        if topic_text(misled.topic) in record.properties.get(MULTI_DISPATCH, "").split(","):
            return None  # a property names this queue and the place in it, and not the header
        if len(record.topic_raw) != len(misled.topic):
            return None
        topic_end = record.size - 2 - len(record.properties_raw)
        changed = raw[: topic_end - len(misled.topic)] + misled.topic + raw[topic_end:]
        fields = {"queue_id": misled.queue_id, "queue_offset": misled.queue_offset}
        return with_fields(changed, {**fields, "sys_flag": _dispatched_flag(record)})

    return _changed(log, misled.physical_offset, by_queue, record_crc=record_crc)


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
