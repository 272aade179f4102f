"""Bytes that a broker delivers from a position, which need not be a record, let alone the right one.

The broker does not look what is wrong with them; a person wants to know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from rmqtool.engine.queues.unit import QueueUnit
from rmqtool.engine.reading.record import Record, decode_record
from rmqtool.engine.segments.log import Log, RecordLocation
from rmqtool.errors import UnreadableError
from rmqtool.formats import commitlog
from rmqtool.scan.judge import judge_frame
from rmqtool.scan.rules import FINDING_IDS, Verdict


@dataclass(frozen=True)
class StoredMessage:
    """One message as it is handed out.

    Every method raises UnreadableError where the disk does not give what it reads.
    """

    size: int
    """Number of delivered bytes, from the queue's unit or the record itself."""
    place: RecordLocation
    unit: QueueUnit | None
    """The queue's unit that led to it; None where it was found in another way."""
    _log: Log = field(repr=False, compare=False)

    @property
    def physical_offset(self) -> int:
        """Where it lies; the unit may say 0 where the log begins later."""
        return self.place.physical_offset

    @cached_property
    def record(self) -> Record | None:
        """The record at the place; None if there is none."""
        return decode_record(self._log, self.place)

    def range(self, start: int, length_max: int) -> bytes:
        """The bytes handed out from `start` on, `length_max` of them at most."""
        return self._log.read(self.place, start, max(0, min(self.size - start, length_max)))


def message_of_unit(log: Log, unit: QueueUnit) -> StoredMessage | None:
    """Message of a unit; None where it cannot be delivered (`CommitLog#getMessage`)."""
    place = log.selectable(unit.physical_offset, unit.record_size)
    if place is None:
        return None
    return StoredMessage(unit.record_size, place, unit, log)


def message_at(log: Log, physical_offset: int, *, first_file_for_zero: bool = True) -> StoredMessage | None:
    """Bytes at a physical offset, as long as their first four bytes say.

    None where it cannot be handed out (`DefaultMessageStore#selectOneMessageByOffset`).

    Raises:
        UnreadableError: the disk does not give those bytes.
    """
    place = log.place(physical_offset, first_file_for_zero=first_file_for_zero)
    if place is None or place.readable_length < 4:
        return None
    size = int.from_bytes(log.read(place, 0, 4), "big", signed=True)
    return StoredMessage(size, place, None, log) if 0 <= size <= place.readable_length else None


_FRAME_SIZE = 8


def message_finding(message: StoredMessage) -> str | None:
    """Id of the first finding about a message; None for a sound one, and for a blank."""
    try:
        record = message.record
        if record is None:
            verdict = _frame_verdict(message)
        elif not record.body_crc_ok:
            verdict = Verdict.BODY_CRC_MISMATCH
        else:
            is_there = record.physical_offset == message.physical_offset
            verdict = Verdict.GOOD if is_there else Verdict.SELF_OFFSET_MISMATCH
    except UnreadableError:
        verdict = Verdict.UNREADABLE_RANGE
    return FINDING_IDS.get(verdict)


def _frame_verdict(message: StoredMessage) -> Verdict:
    """Verdict on bytes that are not a record; none where they are a blank."""
    head = message.range(0, _FRAME_SIZE)
    if len(head) < _FRAME_SIZE:
        return Verdict.BAD_SIZE
    verdict, size, magic = judge_frame(head, message.place.readable_length)
    is_message = verdict == Verdict.GOOD and magic != commitlog.MAGIC_BLANK
    tail = message.range(size - _FRAME_SIZE, _FRAME_SIZE) if is_message else b""
    if not any(head) or (tail and not any(tail)):
        return Verdict.HOLE  # all of it, or its end: see `Walk`, which calls a range so
    return Verdict.BAD_LENGTHS if is_message else Verdict(verdict)
