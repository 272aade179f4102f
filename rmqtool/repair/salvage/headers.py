"""Heads of good records that no checksum covers and that all else contradicts: set to what the queue says."""

from __future__ import annotations

from typing import Final

from rmqtool.engine.log import Log
from rmqtool.engine.record import Record, read_record
from rmqtool.errors import UnreadableError
from rmqtool.formats.properties import INNER_BASE, MULTI_DISPATCH
from rmqtool.formats.record_crc import stored_record_crc
from rmqtool.repair.salvage.mending import MENDED_MAX, with_fields, with_record_crc
from rmqtool.verify.finding import Finding

DOUBTFUL: Final = "commitlog.doubtful-header"


def corrected_record(log: Log, found: Finding, *, record_crc: bool) -> bytes | None:
    """The record of a `commitlog.doubtful-header` with its head set right; None where nobody knows what is right.

    The queue's units and the neighbours tell topic, queue and queue offset; in a batch queue the record's own property
    does, which brokers dispatch by (`BatchConsumeQueue#putMessagePositionInfoWrapper`).
    """
    if found.physical_offset is None:
        return None
    try:
        record = read_record(log, found.physical_offset)
        if record is None or record.size > MENDED_MAX:
            return None
        raw = log.read(record.place, 0, record.size)
    except UnreadableError:
        return None
    changed = _by_queue(raw, record, found) if found.expected is not None else _by_property(raw, record)
    if changed is None or changed == raw:
        return None
    return with_record_crc(changed) if record_crc and stored_record_crc(raw) is not None else changed


def _by_queue(raw: bytes, record: Record, found: Finding) -> bytes | None:
    if found.topic is None or found.queue_id is None or found.queue_offset is None:
        return None
    if MULTI_DISPATCH in record.properties:  # which of its queues contradicts it, and which field is wrong, is open
        return None
    old, new = (name.encode("utf-8", "surrogateescape") for name in (record.topic, found.topic))
    topic_end = record.size - 2 - len(record.properties_raw)
    if len(old) != len(new) or raw[topic_end - len(old) : topic_end] != old:
        return None
    changed = raw[: topic_end - len(old)] + new + raw[topic_end:]
    return with_fields(changed, {"queue_id": found.queue_id, "queue_offset": found.queue_offset})


def _by_property(raw: bytes, record: Record) -> bytes | None:
    base = record.properties.get(INNER_BASE, "")
    return with_fields(raw, {"queue_offset": int(base)}) if base.isascii() and base.isdigit() else None
