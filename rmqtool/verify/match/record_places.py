"""Looks up the log around a record, in its own queue and in one whose unit claims it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from rmqtool.engine.dispatch.queue_entries import QueueEntries
from rmqtool.engine.reading.record import Record, read_record
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError
from rmqtool.formats import system_flag
from rmqtool.formats.commitlog import BLANK_SIZE_MIN, MAGIC_BLANK
from rmqtool.formats.queue_name import TypedQueueKey, queue_key, topic_bytes
from rmqtool.formats.record_crc import record_crc_matches, stored_record_crc
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.quantities import OFFSETS_END
from rmqtool.verify.match.log_chunk import RowsLookup
from rmqtool.verify.survey.context import VerifyContext
from rmqtool.verify.survey.queue_map import QueueMap

READS_MAX: Final = 10_000
"""Records outside a chunk that are looked at for damage; farther away than that all counts as damaged."""


class _Beyond(NamedTuple):
    """A part of the log outside the chunk, and, where sound records lie side by side in all of it, physical offset and
    queue offsets [first, end) of the first and the last record of a queue.
    """

    is_whole: bool
    first: tuple[int, int, int] | None
    last: tuple[int, int, int] | None


class RecordPlaces:
    """Judges records of one chunk of the log whose units contradict them.

    Neighbors are looked up in the chunk. Where it ends before one is met, the units next to the places in question
    show where to look; what counts is what the record there says of itself.
    """

    def __init__(
        self,
        context: VerifyContext,
        lookup: RowsLookup,
        expected: Mapping[TypedQueueKey, QueueEntries],
        files: OpenFiles,
    ) -> None:
        self._context, self._lookup, self._expected = context, lookup, expected
        self._log = Log(context.store, context.rules, files)
        self._reads_left = READS_MAX
        # A tombstone says what units or gaps told once: it is no evidence of its own.
        self._sound = lookup.good & (lookup.rows["prepared_transaction_offset"] != TOMBSTONE)

    def is_misplaced(self, queue: QueueMap, unit: Any, place: int, row: Any, queue_offset: int | None) -> bool:
        """True if the log shows that a record belongs where a unit claims it, as in `is_misplaced`.

        Args:
            place: of the unit, counted in units.
            queue_offset: what the record says of this very queue; None where it names another one.
        """
        physical_offset = int(row["physical_offset"])
        name = (*queue_key(queue.topic, queue.queue_id), queue.is_batch)
        claim = (place, place + 1)
        if queue.is_batch:
            claim = int(unit["base_queue_offset"]), int(unit["base_queue_offset"]) + int(unit["batch_size"])
        beside_own = [] if queue_offset is None else [queue_offset - 1, queue_offset + 1]
        claimed = self._around(name, physical_offset, [place - 1, place + 1, *beside_own])
        if not claimed.lack(*claim) and not claimed.may_lack(*claim):
            return False
        own = self._own(row) if queue_offset is None else name
        if own is None:  # a record that no queue takes, by its flags
            named = (topic_bytes(self._lookup.topic(row)), int(row["queue_id"]), int(row["queue_offset"]))
            return named == (*name[:2], claim[0]) and claimed.lack(*claim)
        own_claim = self._said(own, physical_offset)
        if own != name and own_claim[0] != claim[0]:
            return False  # two fields would be wrong at once
        # A unit in the record's own place points to it, or to the one that belongs where it is claimed.
        confirmed = self._at_unit(own, own_claim[0])
        if confirmed is not None:
            swapped = confirmed.topic_raw, confirmed.queue_id, confirmed.queue_offset
            if confirmed.place.physical_offset == physical_offset or swapped == (*name[:2], claim[0]):
                return False
        around = claimed
        if own != name:
            around = self._around(own, physical_offset, [own_claim[0] - 1, own_claim[0] + 1])
        is_text = not any("\ud800" <= letter <= "\udfff" for letter in self._lookup.topic(row))
        if not is_misplaced(around, own_claim, claimed, claim, is_text=is_text, bytes_before=physical_offset):
            return False
        return own != name or claim > own_claim or not self._has_another_for(name, claim[0], row)

    def _has_another_for(self, name: TypedQueueKey, queue_offset: int, row: Any) -> bool:
        """True if a record before one has a header that is off by one field from a message its queue lacks.

        Then that header is wrong, and what follows in the queue is right.
        """
        rows = self._lookup.rows[: self._lookup.index_at(int(row["physical_offset"]))]
        good = self._sound[: len(rows)] & (rows["queue_offset"] == queue_offset)
        topic, queue_id, _ = name
        for number in np.flatnonzero(good).tolist():
            other = rows[number]
            other_topic, other_id = queue_key(self._lookup.topic(other), int(other["queue_id"]))
            if (other_topic == topic) == (other_id == queue_id) or len(other_topic) != len(topic):
                continue
            own, at = self._own(other), int(other["physical_offset"])
            if own is None:
                return True
            first, end = self._said(own, at)
            around = self._around(own, at, [first - 1, end])
            if not around.is_continued_by(first, end):
                return True
            if queue_offset == 0 and around.start_after is None:  # alone in its queue
                return True
        return False

    def _own(self, row: Any) -> TypedQueueKey | None:
        key = queue_key(self._lookup.topic(row), int(row["queue_id"]))
        names: Iterable[TypedQueueKey] = ((*key, False), (*key, True), *self._expected)
        return next((name for name in names if self._entry(name, int(row["physical_offset"])) is not None), None)

    def _entry(self, name: TypedQueueKey, physical_offset: int) -> int | None:
        """Number of the entry that a record has in a queue as its own."""
        entries = self._expected.get(name)
        if entries is None:
            return None
        at = int(np.searchsorted(entries.physical_offsets, physical_offset))
        is_there = at < len(entries.physical_offsets) and entries.physical_offsets[at] == physical_offset
        return at if is_there else None

    def _said(self, name: TypedQueueKey, physical_offset: int) -> tuple[int, int]:
        """Queue offsets [first, end) in the record's header."""
        entries, at = self._expected[name], self._entry(name, physical_offset)
        first = int(entries.queue_offsets[at])
        return first, first + (int(entries.batch_sizes[at]) if entries.is_batch else 1)

    def _around(self, name: TypedQueueKey, physical_offset: int, places: Iterable[int]) -> Neighbors:
        """The neighbors of a record in a queue; `places` are where units may point to neighbors outside the chunk."""
        before, after = self._in_chunk(name, physical_offset)
        if before is None or after is None:
            next_to_known = [after[1] - 1] if after is not None else [before[1]] if before is not None else []
            for place in (*places, *next_to_known):
                record = self._at_unit(name, place)
                if record is None or not _is_in(name, record):
                    continue
                start, first = record.place.physical_offset, record.queue_offset
                if start < min(physical_offset, self._lookup.begin) and (before is None or before[0] < start):
                    before = start, first + 1
                elif start >= self._lookup.end and (after is None or start < after[0]):
                    after = start, first
        begin, end = self._lookup.begin, self._lookup.end
        low = self._lookup.index_at(max(before[0], begin)) if before is not None else 0
        high = self._lookup.index_at(min(after[0], end - 1)) + 1 if after is not None else None
        before_chunk = self._beyond(name, before[0] if before is not None else begin, begin)
        after_chunk = self._beyond(name, end, after[0] if after is not None else end)
        is_damaged = not (self._sound[low:high].all() and before_chunk.is_whole and after_chunk.is_whole)
        # Units need not lead to the nearest records of the queue: what lies on the way to those they lead to counts.
        if before_chunk.last is not None:
            before = before_chunk.last[0], before_chunk.last[2]
        if after_chunk.first is not None:
            after = after_chunk.first[:2]
        if before is None and self._lookup.begin == 0:
            before = 0, 0
        return Neighbors(before and before[1], after and after[1], is_damaged)

    def _beyond(self, name: TypedQueueKey, start: int, stop: int) -> _Beyond:
        """Summary of a part of the log outside the chunk; it is not whole if it is too long to be read."""
        at, first, last = start, None, None
        while at < stop and self._reads_left > 0:
            self._reads_left -= 1
            try:
                record = read_record(self._log, at)
                raw = self._log.read(record.place, 0, record.size) if record is not None else b""
                is_sound = record is not None and record.physical_offset == at and record.body_crc_ok
            except UnreadableError:
                break
            if record is None and self._is_blank(at):
                at = self._log.next_file_start(at)
            elif (
                record is None
                or not is_sound
                or record.prepared_transaction_offset == TOMBSTONE
                or (stored_record_crc(raw) is not None and not record_crc_matches(raw))
            ):
                break
            else:
                if _is_in(name, record):
                    last = at, record.queue_offset, record.queue_offset + 1
                    first = first or last
                at += record.size
        return _Beyond(at >= stop, first, last)

    def _is_blank(self, physical_offset: int) -> bool:
        place = self._log.place(physical_offset)
        head = self._log.read(place, 0, BLANK_SIZE_MIN) if place is not None else b""
        return head[4:8] == MAGIC_BLANK.to_bytes(4, "big", signed=True)

    def _in_chunk(
        self, name: TypedQueueKey, physical_offset: int
    ) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """Physical offset of the record before, with the queue offset after it; and of the next one, with its own."""
        entries = self._expected.get(name)
        if entries is None:
            return None, None
        starts, firsts = entries.physical_offsets, entries.queue_offsets
        low, high = np.searchsorted(starts, physical_offset), np.searchsorted(starts, physical_offset, "right")
        before = after = None
        if low:
            count = int(entries.batch_sizes[low - 1]) if entries.is_batch else 1
            before = int(starts[low - 1]), int(firsts[low - 1]) + count
        if high < len(starts):
            after = int(starts[high]), int(firsts[high])
        return before, after

    def _at_unit(self, name: TypedQueueKey, place: int) -> Record | None:
        queue = self._context.queues.get(name[:2])
        if name[2] or queue is None or place < 0:
            return None
        try:
            units = queue.read(self._context.open_file, place, place + 1)[1]
            record = read_record(self._log, int(units[0]["physical_offset"])) if len(units) else None
        except UnreadableError:
            return None
        is_record = record is not None and record.physical_offset == record.place.physical_offset
        return record if is_record else None


def _is_in(name: TypedQueueKey, record: Record) -> bool:
    """True if a plain queue takes a record; none takes one that was prepared or rolled back."""
    is_dispatched = not record.sys_flag & system_flag.TRANSACTION_PREPARED
    return is_dispatched and (record.topic_raw, record.queue_id, False) == name


# The log is the truth: when a record's own place in its queue is believed, and when it may be called wrong.


class Neighbors(NamedTuple):
    """The log's records of one queue around a physical offset, a record there left out.

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
        """True if there is a record on either side."""
        return self.end_before is not None or self.start_after is not None

    @property
    def are_joined(self) -> bool:
        """True if the two follow each other, so that nothing belongs between them."""
        return self.end_before is not None and self.end_before == self.start_after

    def is_continued_by(self, first: int, end: int) -> bool:
        """True if a record with the queue offsets [first, end) continues the sequence."""
        return not self.are_joined and (self.end_before == first or self.start_after == end)

    def leave_room_for(self, first: int, end: int) -> bool:
        """True if the queue offsets [first, end) are between the two."""
        return (self.end_before or 0) <= first and (self.start_after is None or end <= self.start_after)

    def may_lack(self, first: int, end: int) -> bool:
        """True if damage between the records may have held the queue offsets [first, end)."""
        return self.are_known and self.is_damaged and self.leave_room_for(first, end)

    def lack(self, first: int, end: int) -> bool:
        """True if exactly the queue offsets [first, end) are missing between the records, and no damage held them."""
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
    """True if the log itself shows that a record belongs to another place, by the rule above.

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
