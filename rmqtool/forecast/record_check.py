"""The broker's check of one record where it differs from the judge's, and why the scan of a file ends.

The judge knows one right shape of a record. Brokers accept more: a wrong own offset, a blank of any size; and some
accept less: no second magic, no IPv6 hosts. Broker: `CommitLog#checkMessageAndReturnSize`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.forecast.load import LoadFailure
from rmqtool.forecast.options import ForecastOptions
from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.commitlog import BODY_LENGTH_AT, MESSAGE_MAGICS, SYS_FLAG_AT
from rmqtool.formats.properties import INNER_BASE, INNER_COUNT, decode_properties
from rmqtool.formats.record_crc import CRC_MASK, PROPERTY_SIZE, stored_record_crc
from rmqtool.formats.system_flag import HOSTS_V6
from rmqtool.formats.tags import parse_java_int
from rmqtool.scan import columns
from rmqtool.scan.columns import Row
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import Walk

NO_RECORD: Final = -1
_V6_BITS: Final = (system_flag.BORN_HOST_V6, system_flag.STORE_HOST_V6)


@dataclass(frozen=True)
class Checked:
    """The broker's answer about one place.

    Attributes:
        success: whether it continues after it, or (size 0) with the next file.
        size: bytes of the record; 0 for a blank; -1 for no record at all.
        row: the record's fields where it is one.
        verdict: what the judge says of the place.
    """

    success: bool
    size: int
    row: Row | None
    verdict: Verdict


class RecordCheck:
    """The check of one broker version with its options.

    Args:
        lenient: as after the start, when dispatch continues: without checksum, without body.

    Attributes:
        checks_crc: whether a wrong checksum ends the log.
        needs_record_crc: whether one over all of a record must be right, and its body's checksum does not count.
    """

    def __init__(self, rules: BrokerRules, options: ForecastOptions, *, lenient: bool) -> None:
        self.rules = rules
        self.options = options
        self.lenient = lenient
        self.checks_crc = options.check_crc and not lenient
        self.needs_record_crc = options.record_crc and rules.record_crc and self.checks_crc

    def check(self, walk: Walk, position: int) -> Checked:
        """Check the record at a file position."""
        if position >= walk.split.source.size:
            return Checked(False, NO_RECORD, None, Verdict.MISSING_END_BLANK)
        row = walk.judge(position)
        verdict = Verdict(row.verdict)
        remaining = walk.split.source.size - position
        if row.magic == commitlog.MAGIC_BLANK and verdict in (Verdict.GOOD, Verdict.BAD_SIZE):
            is_refused = self.rules.checks_remaining_bytes and row.size > remaining
            is_refused |= self.rules.refuses_negative_size and row.size < 0
            return Checked(not is_refused, NO_RECORD if is_refused else 0, None, verdict)
        if row.magic in MESSAGE_MAGICS and verdict not in (Verdict.BAD_SIZE, Verdict.UNREADABLE_RANGE):
            if not self.rules.ipv6_hosts and _number(walk, position + SYS_FLAG_AT, 4) & HOSTS_V6:
                row = walk.judge_with_narrow_hosts(position)
                verdict = Verdict(row.verdict)
        elif row.magic in MESSAGE_MAGICS and verdict == Verdict.BAD_SIZE and not self.rules.checks_remaining_bytes:
            heap_bytes = self.options.heap_bytes  # an array of the claimed size is made before anything else
            if row.size > heap_bytes:
                text = f"out of memory: a record has the size {row.size}, and the broker allocates it"
                raise LoadFailure(text, walk.split.physical_offset + position)
        accepted = {Verdict.GOOD, Verdict.SELF_OFFSET_MISMATCH}
        if not self.checks_crc:
            accepted |= {Verdict.BODY_CRC_MISMATCH, Verdict.RECORD_CRC_MISMATCH}
        elif self.needs_record_crc:
            accepted |= {Verdict.BODY_CRC_MISMATCH}
        if verdict in accepted and row.topic_length > 0:
            good = self._accepts(walk, position, row)
            return Checked(good, row.size if good else NO_RECORD, row if good else None, verdict)
        return Checked(False, self._claimed_size(walk, position, row, verdict), None, verdict)

    def _accepts(self, walk: Walk, position: int, row: Row) -> bool:
        rules, options = self.rules, self.options
        if row.magic == commitlog.MAGIC_V2 and not rules.reads_v2:
            return False
        if self.needs_record_crc:
            crc_at = position + row.size - PROPERTY_SIZE
            stored = stored_record_crc(bytes(walk.window.bytes_at(crc_at, PROPERTY_SIZE)))
            if stored is None or (stored == 0 and not rules.record_crc_zero_valid):
                return False
            if stored != walk.checksum_of(position, crc_at) & CRC_MASK:
                return False
        if rules.checks_inner_batch_numbers and row.features & columns.INNER_BATCH_NUMBERS:
            length = row.properties_length
            values = decode_properties(bytes(walk.window.bytes_at(position + row.size - length, length)))
            try:
                parse_java_int(values[INNER_COUNT])
                int(values[INNER_BASE])
            except ValueError:
                return False
        if options.check_physical_offset and rules.log_offset_check_option and not self.lenient:
            start = walk.split.physical_offset
            return start <= row.own_offset <= start + walk.split.source.size
        return True

    def _claimed_size(self, walk: Walk, position: int, row: Row, verdict: Verdict) -> int:
        """The size where all fields can be read though the lengths disagree, else -1; only dispatch needs it."""
        if not self.lenient or row.magic not in MESSAGE_MAGICS or row.size <= 0 or verdict == Verdict.UNREADABLE_RANGE:
            return NO_RECORD
        if row.magic == commitlog.MAGIC_V2 and not self.rules.reads_v2:
            return NO_RECORD
        sys_flag = int.from_bytes(walk.window.bytes_at(position + SYS_FLAG_AT, 4), "big")
        extra = sum(commitlog.V6_EXTRA for bit in _V6_BITS if self.rules.ipv6_hosts and sys_flag & bit)
        body_at = position + BODY_LENGTH_AT + extra
        body_length = max(0, _number(walk, body_at, 4))
        topic_width = 2 if row.magic == commitlog.MAGIC_V2 else 1
        topic_at = body_at + 4 + body_length
        topic_length = _number(walk, topic_at, topic_width)
        if topic_length < 0 or topic_length > row.size:
            return NO_RECORD
        properties_at = topic_at + topic_width + topic_length
        properties_length = max(0, _number(walk, properties_at, 2))
        end = properties_at + 2 + properties_length
        if end > walk.split.source.size or properties_length > row.size:
            return NO_RECORD
        return row.size if end != position + row.size else NO_RECORD


def _number(walk: Walk, position: int, width: int) -> int:
    raw = bytes(walk.window.bytes_at(position, width))
    return int.from_bytes(raw, "big", signed=True) if len(raw) == width else -1
