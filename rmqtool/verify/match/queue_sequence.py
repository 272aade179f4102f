"""The log is the truth: when a record's own place in its queue is believed, and when it may be called wrong.

**The rule.** A record that passes its own checks and continues its queue's sequence in the log is never changed,
hidden or cut on the word of anything derived from the log: units, index, checkpoint, another store. A unit that
contradicts such a record is wrong, and the queue is built again.

A broker numbers the messages of each queue one by one. A record continues that sequence where the record of its queue
before it or the one after it is the neighbor by number too, unless those two already follow each other without
it. A record is misplaced only if it does not, if the log itself lacks exactly one message of the other queue at this
very place, with nothing damaged there that could have held it, and if one field explains it: the queue offset, or the
topic or queue id. Damage is no objection where the record's own place is impossible: its neighbors follow each other
without it, its queue offset is negative or greater than the bytes before it, or its topic is no UTF-8, as which
brokers encode all topics. The unit only tells which of the log's gaps the record fills; it never makes a gap. Records
without a unit are judged by the log's order alone (`misplaced`).

Verify decides by this rule whether it blames the record or the unit; salvage, recover, rebuild and diff follow its
findings, or read the log alone.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqtool.quantities import OFFSETS_END


class Neighbors(NamedTuple):
    """What the log has of one queue around a physical offset, a record there left out.

    Attributes:
        end_before: the queue offset after the nearest record before; None where none is known.
        start_after: the queue offset of the nearest record after it; None where none is known.
        is_damaged: whether something between the two cannot be read, or a tombstone was put there or is one of them.
    """

    end_before: int | None
    start_after: int | None
    is_damaged: bool = False

    @property
    def are_known(self) -> bool:
        """Whether there is a record on either side."""
        return self.end_before is not None or self.start_after is not None

    @property
    def are_joined(self) -> bool:
        """Whether the two follow each other, so that nothing belongs between them."""
        return self.end_before is not None and self.end_before == self.start_after

    def is_continued_by(self, first: int, end: int) -> bool:
        """Whether a record with the queue offsets [first, end) continues the sequence."""
        return not self.are_joined and (self.end_before == first or self.start_after == end)

    def leave_room_for(self, first: int, end: int) -> bool:
        """Whether the queue offsets [first, end) lie between the two."""
        return (self.end_before or 0) <= first and (self.start_after is None or end <= self.start_after)

    def may_lack(self, first: int, end: int) -> bool:
        """Whether damage between the records may have held the queue offsets [first, end)."""
        return self.are_known and self.is_damaged and self.leave_room_for(first, end)

    def lack(self, first: int, end: int) -> bool:
        """Whether exactly the queue offsets [first, end) are missing between the records, and no damage held them."""
        fits = self.end_before in (None, first) and self.start_after in (None, end)
        return self.are_known and fits and not self.is_damaged


def is_misplaced(
    own: Neighbors,
    place: tuple[int, int],
    claimed: Neighbors,
    claim: tuple[int, int],
    *,
    is_text: bool = True,
    bytes_before: int = OFFSETS_END,
) -> bool:
    """Whether the log itself says that a record belongs to another place; see the rule above.

    Args:
        own: around the record in the queue that it names.
        place: the queue offsets [first, end) that it says.
        claimed: around the record in the queue that has a unit for it.
        claim: the queue offsets [first, end) which that unit gives it.
        is_text: whether the topic that the record names is UTF-8.
        bytes_before: how many bytes of log were ever written before the record.
    """
    if is_text and own.is_continued_by(*place):
        return False
    if not claimed.lack(*claim):
        is_impossible = own.are_joined or not 0 <= place[0] <= bytes_before or not is_text
        return is_impossible and claimed.may_lack(*claim)
    # One that is alone in its queue, or stands apart in it by damage, contradicts nothing: the gap must be certain.
    is_odd = not is_text or (own.are_known and not (own.is_damaged and own.leave_room_for(*place)))
    return is_odd or None not in claimed[:2]
