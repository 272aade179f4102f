"""What is wrong with the bytes that a broker hands out as a message: it does not look, a person wants to know."""

from __future__ import annotations

from rmqtool.engine.reading.stored_message import StoredMessage
from rmqtool.errors import UnreadableError
from rmqtool.formats import commitlog
from rmqtool.scan.judge import judge_frame
from rmqtool.scan.rules import FINDING_IDS, Verdict

_FRAME_SIZE = 8


def message_finding(message: StoredMessage) -> str | None:
    """Id of the first finding about a message; None for a sound one, and for a blank."""
    try:
        record = message.record
        if record is None:
            return _frame_finding(message)
        if not record.body_crc_ok:
            return FINDING_IDS[Verdict.BODY_CRC_MISMATCH]
    except UnreadableError:
        return FINDING_IDS[Verdict.UNREADABLE_RANGE]
    if record.physical_offset != message.physical_offset:
        return FINDING_IDS[Verdict.SELF_OFFSET_MISMATCH]
    return None


def _frame_finding(message: StoredMessage) -> str | None:
    head = message.raw(_FRAME_SIZE)
    if len(head) < _FRAME_SIZE:
        return FINDING_IDS[Verdict.BAD_SIZE]
    verdict, _, magic = judge_frame(head, message.place.readable_length)
    if verdict != Verdict.GOOD:
        return FINDING_IDS[verdict]
    return None if magic == commitlog.MAGIC_BLANK else FINDING_IDS[Verdict.BAD_LENGTHS]
