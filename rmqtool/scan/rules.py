"""The rule table of the record judge: errors of a record, in the order of the broker's checks.

Broker: `CommitLog#checkMessageAndReturnSize`. The last rule is ours: the broker never compares a record's own offset
with its place. Both readers follow this table; tests/scan/test_compiled.py holds them equal on random damage.
"""

from enum import IntEnum
from typing import Final


class Verdict(IntEnum):
    """The first rule that a record breaks. From `HOLE` on: what only its surroundings show."""

    GOOD = 0
    BAD_SIZE = 1
    BAD_MAGIC = 2
    BAD_LENGTHS = 3
    BODY_CRC_MISMATCH = 4
    BAD_PROPERTY = 5
    RECORD_CRC_MISMATCH = 6
    SELF_OFFSET_MISMATCH = 7
    HOLE = 8
    MISSING_END_BLANK = 9
    TORN_RECORD = 10
    UNREADABLE_RANGE = 11
    STALE = 12


FINDING_IDS: Final = {
    Verdict.BAD_SIZE: "commitlog.bad-size",
    Verdict.BAD_MAGIC: "commitlog.bad-magic",
    Verdict.BAD_LENGTHS: "commitlog.bad-lengths",
    Verdict.BODY_CRC_MISMATCH: "commitlog.body-crc-mismatch",
    Verdict.BAD_PROPERTY: "commitlog.bad-property",
    Verdict.RECORD_CRC_MISMATCH: "commitlog.record-crc-mismatch",
    Verdict.SELF_OFFSET_MISMATCH: "commitlog.self-offset-mismatch",
    Verdict.HOLE: "commitlog.hole",
    Verdict.MISSING_END_BLANK: "commitlog.missing-end-blank",
    Verdict.TORN_RECORD: "commitlog.torn-record",
    Verdict.UNREADABLE_RANGE: "commitlog.unreadable-range",
    Verdict.STALE: "commitlog.stale-tail",
}

# The rules, in the order of judging:
# BAD_SIZE: the size is negative, or reaches past the end of the file; a blank's size is not the rest of the file.
# BAD_MAGIC: the magic is none of message version 1, version 2 and blank.
# BAD_SIZE: a message smaller than the smallest one.
# BAD_LENGTHS: header and body together reach past the end of the record.
# BODY_CRC_MISMATCH: the CRC of a body that is not empty differs from the stored one.
# BAD_LENGTHS: topic or properties reach past the end of the record, or all lengths together are not the size.
# BAD_PROPERTY: in the schedule topic, DELAY is not a number, which ends the log for the broker.
# RECORD_CRC_MISMATCH: the store writes whole-record CRCs, the record carries one, and it differs.
# SELF_OFFSET_MISMATCH: the record's stored physical offset is not its real one.

KEEPS_ITS_LENGTH: Final = frozenset(
    {Verdict.BODY_CRC_MISMATCH, Verdict.BAD_PROPERTY, Verdict.RECORD_CRC_MISMATCH, Verdict.SELF_OFFSET_MISMATCH}
)
"""Verdicts about a record whose size may still be right: the next one is looked for at its end first."""
