"""Compares a chunk of the log with the units that point into it, one queue after the other.

What agrees is settled for thousands of units at once; only what does not is looked at one by one. Chunks follow from
the memory, and findings must not: so a finding continues with the last one about its queue's file, in whichever chunk
that was, and each queue has its own limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np

from rmqtool.engine.dispatch.queue_entries import QueueEntries
from rmqtool.engine.queues.extension import QueueExtension
from rmqtool.engine.rules.topic_names import is_kept_out
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError
from rmqtool.findings.finding import Finding, Severity
from rmqtool.findings.registry import finding
from rmqtool.formats import system_flag
from rmqtool.formats.consumequeue import EXTENSION_ADDRESS_MAX, EXTENSION_HEAD_SIZE
from rmqtool.formats.properties import SCHEDULE_TOPIC
from rmqtool.formats.queue_name import QueueKey, TypedQueueKey, topic_text
from rmqtool.scan.rules import Verdict
from rmqtool.verify.match.log_chunk import RowsLookup, is_message
from rmqtool.verify.match.record_places import RecordPlaces
from rmqtool.verify.survey.context import VerifyContext
from rmqtool.verify.survey.queue_map import Array, QueueMap
from rmqtool.verify.survey.result import Missing

OF_QUEUE_MAX: Final = 1000
OF_SPLIT_MAX: Final = 20_000
"""Units of one queue, and of all, that are described; the others are counted, and said to be."""
_QUEUES: Final = "consumequeue."


@dataclass
class QueueFindings:
    """Findings in the order of the log, for each queue, and `all` that was added."""

    all: list[Finding] = field(default_factory=list)
    _last: dict[tuple[str, str, str | None, int | None], int] = field(default_factory=dict)
    """The number of the last finding of a kind about a file of a queue."""
    _rests: dict[tuple[str, int, bool], int] = field(default_factory=dict)
    """The number of the finding that counts a queue's units that are not described."""
    _described: Counter[tuple[str, int, bool]] = field(default_factory=Counter)
    _described_in_all: int = 0

    def describes(self, queue: QueueMap) -> bool:
        """True if one more unit of a queue is described."""
        name = queue.topic, queue.queue_id, queue.is_batch
        if self._described[name] >= OF_QUEUE_MAX or self._described_in_all >= OF_SPLIT_MAX:
            return False
        self._described[name] += 1
        self._described_in_all += 1
        return True

    def add(self, new_finding: Finding) -> None:
        """Add a finding; one about the next unit of a queue continues with the one before."""
        if not new_finding.id.startswith(_QUEUES) or new_finding.queue_offset is None:
            self.all.append(new_finding)
            return
        key = new_finding.id, new_finding.file, new_finding.topic, new_finding.queue_id
        number = self._last.get(key, -1)
        before = self.all[number] if number >= 0 else None
        is_next = before is not None and new_finding.queue_offset == (before.queue_offset or 0) + before.count
        if before is not None and is_next and before.file_position is not None:
            length = (before.length or 0) + (new_finding.length or 0)
            self.all[number] = replace(before, count=before.count + new_finding.count, length=length)
            return
        self._last[key] = len(self.all)
        self.all.append(new_finding)

    def add_rest(self, queue: QueueMap, first: Finding) -> None:
        """Count units of a queue that are not described; `first` says of the first one that it and how many are not."""
        number = self._rests.setdefault((queue.topic, queue.queue_id, queue.is_batch), len(self.all))
        if number == len(self.all):
            self.all.append(first)
            return
        before = self.all[number]
        count = before.count + first.count
        self.all[number] = replace(before, count=count, message=rest_message(count))


def rest_message(count: int) -> str:
    """Message about units that are only counted."""
    return f"{count} more units that do not match" if count > 1 else "one more unit that does not match"


DELAY_MAX_MS: Final = 400 * 86_400_000
"""Longest delay that a level is believed to have."""


@dataclass
class Mismatch:
    """A unit that does not agree with the log, with the number and queue offset of the expected entry for its record,
    or -1; in further queues the record's own offset is another one.
    """

    queue: QueueMap
    place: int
    unit: Any
    entry: int = -1
    queue_offset: int = -1


@dataclass
class QueueMatch:
    """The comparison of one chunk.

    Attributes:
        findings: of the whole split.
        lost: units that point into damage, by number of the damaged row: what was lost there.
        doubtful: physical offsets of records whose header is wrong, by all that is known.
        agrees: whether each message has its unit, and no unit says anything else.
    """

    context: VerifyContext
    lookup: RowsLookup
    findings: QueueFindings
    missing: list[Missing] = field(default_factory=list)
    lost: dict[int, list[str]] = field(default_factory=dict)
    doubtful: list[int] = field(default_factory=list)
    agrees: bool = False
    _unmatched: dict[TypedQueueKey, tuple[QueueEntries, Array]] = field(default_factory=dict)
    """Of each queue its entries, and which of them have no unit."""
    _places: RecordPlaces = field(init=False)

    def run(self, expected: dict[TypedQueueKey, QueueEntries]) -> None:
        """Compare all queues; expected entries without a unit become `missing`."""
        all_mismatches: list[Mismatch] = []
        open_file = self.context.open_file
        present = set[TypedQueueKey]()
        for key, queue in self._queues(expected):
            present.add(key)
            entries = expected.get(key)
            differing = queue.differing(open_file, self.lookup.begin, self.lookup.end, entries)
            if differing is None:
                continue
            places, units = differing
            if not queue.is_batch and (units["tags_code"] <= EXTENSION_ADDRESS_MAX).any():
                units = self._resolved(queue, units)
            if (
                entries is not None
                and np.array_equal(units["physical_offset"], entries.physical_offsets)
                and _equal(queue, places, units, entries, np.arange(len(units))).all()
            ):
                continue
            without_unit, mismatches = self._compare(queue, places, units, entries)
            if entries is not None and without_unit.any():
                self._unmatched[key] = entries, without_unit
            if queue.topic == SCHEDULE_TOPIC:
                mismatches = self._without_other_delay(mismatches)
            all_mismatches += mismatches
        for key, entries in expected.items():
            if key not in present:
                self._unmatched[key] = entries, np.ones(len(entries.queue_offsets), np.bool_)
        self.agrees = not (all_mismatches or self._unmatched)
        with OpenFiles(self.context.store.view) as files:
            self._places = RecordPlaces(self.context, self.lookup, expected, files)
            self._settle(all_mismatches)
        for key, (entries, open_entries) in self._unmatched.items():
            self._note_missing(key, entries, np.flatnonzero(open_entries))

    def _queues(self, expected: Iterable[TypedQueueKey]) -> Iterator[tuple[TypedQueueKey, QueueMap]]:
        """Queues with files that have units into the chunk, or should have; one map at a time is in memory."""
        known = set[TypedQueueKey]()
        for name, queue in self.context.queues_into(self.lookup.begin, self.lookup.end):
            if queue.units.touches(self.lookup.begin, self.lookup.end):
                key = (*name, queue.is_batch)
                known.add(key)
                yield key, queue
        for key in expected:
            without_units = self.context.queue(key) if key not in known else None
            if without_units is not None:
                yield key, without_units

    def _resolved(self, queue: QueueMap, units: Array) -> Array:
        """Units with the tags code of the queue's extension where they have an address that leads to one."""
        extension_files = self.context.store.extensions.get((queue.topic, queue.queue_id))
        if extension_files is None:
            return units
        resolved = units.copy()
        with OpenFiles(self.context.store.view) as files:
            extension = QueueExtension(extension_files, self.context.store.extension_file_size, files)
            for index in np.flatnonzero(units["tags_code"] <= EXTENSION_ADDRESS_MAX).tolist():
                try:
                    unit = extension.unit(int(units["tags_code"][index]))
                except UnreadableError:
                    continue
                if unit is not None and unit.size == EXTENSION_HEAD_SIZE + unit.bitmap_length:
                    resolved["tags_code"][index] = unit.tags_code
        return resolved

    def _without_other_delay(self, mismatches: list[Mismatch]) -> list[Mismatch]:
        """Units of a delay level, but none if all have one other delay, to which the broker was set."""
        delays = set()
        for mismatch in mismatches:
            row = self.lookup.at(int(mismatch.unit["physical_offset"]))
            as_dispatched = mismatch.entry >= 0 and int(row["queue_offset"]) == mismatch.place
            if not as_dispatched or int(mismatch.unit["record_size"]) != int(row["size"]):
                return mismatches
            delays.add(int(mismatch.unit["tags_code"]) - int(row["store_timestamp_ms"]))
        if len(delays) == 1 and 0 < (delay := delays.pop()) <= DELAY_MAX_MS and delay % 1000 == 0:
            return []
        return mismatches

    def _compare(
        self, queue: QueueMap, places: Array, units: Array, entries: QueueEntries | None
    ) -> tuple[Array, list[Mismatch]]:
        """Mask of the entries without a unit, and the units that do not agree with an entry."""
        offsets = units["physical_offset"].astype(np.int64)
        if entries is None:
            return np.empty(0, np.bool_), [
                Mismatch(queue, int(place), unit) for place, unit in zip(places, units, strict=True)
            ]
        at = np.searchsorted(entries.physical_offsets, offsets)
        at[at == len(entries.physical_offsets)] = 0
        met = entries.physical_offsets[at] == offsets
        without_unit = np.ones(len(entries.physical_offsets), np.bool_)
        without_unit[at[met]] = False
        right = met & _equal(queue, places, units, entries, at)
        mismatches = []
        for index in np.flatnonzero(~right).tolist():
            mismatch = Mismatch(queue, int(places[index]), units[index])
            if met[index]:
                mismatch.entry, mismatch.queue_offset = int(at[index]), int(entries.queue_offsets[at[index]])
            mismatches.append(mismatch)
        return without_unit, mismatches

    def _settle(self, mismatches: list[Mismatch]) -> None:
        """Report the error of each unit that does not agree, or of its record."""
        rest: dict[int, tuple[Mismatch, int]] = {}
        for mismatch in mismatches:
            queue, unit = mismatch.queue, mismatch.unit
            if not self.findings.describes(queue):
                first, count = rest.get(id(queue), (mismatch, 0))
                rest[id(queue)] = first, count + 1
                continue
            row = self.lookup.at(int(unit["physical_offset"]))
            inside = int(unit["physical_offset"]) - int(row["physical_offset"])
            if is_message(row) and not inside:
                self.findings.add(self._of_message(mismatch, row))
            elif row["verdict"] == Verdict.STALE:
                text = f"points to {self.lookup.describe(row)}"
                self.findings.add(self._finding(mismatch, "consumequeue.stale-unit", text))
            elif row["verdict"] != Verdict.GOOD:
                # The message is lost with the damage, which is a finding of its own.
                number = self.lookup.index_at(int(unit["physical_offset"]))
                self.lost.setdefault(number, []).append(f"{queue.name} at queue offset {mismatch.place}")
            else:
                text = f"points {f'{inside} bytes into' if inside else 'to'} {self.lookup.describe(row)}"
                self.findings.add(self._finding(mismatch, "consumequeue.dangling-unit", text))
        for first, count in rest.values():
            of_rest = self._finding(first, "consumequeue.dangling-unit", rest_message(count), count=count)
            self.findings.add_rest(first.queue, of_rest)

    def _of_message(self, mismatch: Mismatch, row: Any) -> Finding:
        """Finding for a unit that points to the start of a good message."""
        unit, queue, place, queue_offset = mismatch.unit, mismatch.queue, mismatch.place, mismatch.queue_offset
        topic, kept_out = self.lookup.topic(row), self.context.dispatch.rules.put_keeps_out
        say = partial(self._finding, mismatch)
        # A dead letter has the properties of the message that nobody could consume. 5.5.0 gives it no offset of its own
        # there, and enters it all the same, one that says 0 at the end (`MixAll#topicAllowsLMQ`, `MultiDispatchUtils`).
        # Nothing is wrong with its unit, unless a message lacks its place.
        is_named_beside = mismatch.entry >= 0 and topic != queue.topic
        if is_named_beside and queue_offset == 0 < place and is_kept_out(topic, kept_out):
            text = "its message is a dead letter with the queue offset of the message that it is a copy of"
            of_copy = say("consumequeue.wrong-position", text, expected="0", found=str(place))
            is_place_lacking = any(
                (open_entries & (entries.queue_offsets == place)).any()
                for key, (entries, open_entries) in self._unmatched.items()
                if topic_text(key[0]) == queue.topic
            )
            return of_copy if is_place_lacking else replace(of_copy, severity=Severity.NOTE, repair=None)
        size, unit_size = int(row["size"]), int(unit["record_size"])
        is_elsewhere = mismatch.entry < 0 or (not queue.is_batch and queue_offset != place)
        if is_elsewhere and unit_size == size and self._blames_record(mismatch, row):
            physical_offset, text = int(row["physical_offset"]), self.lookup.describe(row)
            claimed = f"{queue.name} at queue offset {_claimed_offset(mismatch)}"
            self.doubtful.append(physical_offset)
            segment = self.context.log_segment(self.lookup.begin)
            return finding(
                "commitlog.doubtful-header",
                segment.path,
                f"{text}, but the log lacks {claimed} there, and its unit points here",
                file_position=physical_offset - segment.start,
                physical_offset=physical_offset,
                length=size,
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=_claimed_offset(mismatch),
                expected=claimed,
                found=text,
            )
        if mismatch.entry < 0:
            text = f"points to {self.lookup.describe(row)}"
            return say("consumequeue.wrong-record", text, expected=queue.name)
        if is_elsewhere:
            text = f"its message has queue offset {queue_offset}"
            return say("consumequeue.wrong-position", text, expected=str(queue_offset), found=str(place))
        if queue.is_batch:
            return say("consumequeue.bad-batch-unit", f"does not match {self.lookup.describe(row)}")
        if unit_size != size:
            text = f"says {unit_size} bytes, the record has {size}"
            return say("consumequeue.wrong-record-size", text, expected=str(size), found=str(unit_size))
        time_ms = int(row["store_timestamp_ms"])
        if "store_timestamp_ms" in unit.dtype.names and unit["store_timestamp_ms"] != time_ms:
            unit_ms = int(unit["store_timestamp_ms"])
            text = f"says {unit_ms}, the record was stored at {time_ms}"
            return say("rocksdb.wrong-time", text, expected=str(time_ms), found=str(unit_ms))
        code, record_code = int(unit["tags_code"]), int(row["tags_code"])
        if code <= EXTENSION_ADDRESS_MAX:
            return say("consumequeue.bad-extension", "its address points to no unit of the queue's extension")
        text = f"tags code {code}, the record's is {record_code}"
        return say("consumequeue.wrong-tags-code", text, expected=str(record_code), found=str(code))

    def _blames_record(self, mismatch: Mismatch, row: Any) -> bool:
        """True if the log itself shows that the unit is right and the record's header is not, as in `is_misplaced`.

        The record's own missing entry is settled with it.
        """
        queue, own_entries = mismatch.queue, []
        if queue.is_batch and (mismatch.entry >= 0 or _claimed_offset(mismatch) != int(row["queue_offset"])):
            return False  # a unit of another kind tells more of its record, which then has to agree
        if mismatch.entry < 0:
            for entries, open_entries in self._unmatched.values():
                at = np.flatnonzero(open_entries & (entries.physical_offsets == row["physical_offset"]))
                own_entries += [(open_entries, at)] if at.size else []
            if not own_entries and int(row["sys_flag"]) & system_flag.TRANSACTION_MASK == 0:
                return False  # its own queue has a unit for it
        queue_offset = mismatch.queue_offset if mismatch.entry >= 0 else None
        if not self._places.is_misplaced(queue, mismatch.unit, mismatch.place, row, queue_offset):
            return False
        for open_entries, at in own_entries:
            open_entries[at] = False
        return True

    def _note_missing(self, key: TypedQueueKey, entries: QueueEntries, numbers: Array) -> None:
        if not numbers.size:
            return
        offsets, places = entries.queue_offsets[numbers], entries.physical_offsets[numbers]
        sizes = entries.record_sizes[numbers]
        # Those of an earlier generation do not continue behind one that is there.
        breaks = np.flatnonzero((offsets[1:] != offsets[:-1] + 1) | (numbers[1:] != numbers[:-1] + 1)) + 1
        for low, high in zip([0, *breaks.tolist()], [*breaks.tolist(), len(offsets)], strict=True):
            size = int(sizes[low:high].sum(dtype=np.int64))
            is_first, is_last = int(numbers[low]) == 0, int(numbers[high - 1]) == entries.queue_offsets.size - 1
            first, last = int(places[low]), int(places[high - 1])
            run = Missing(*key, int(offsets[low]), high - low, first, last, size, is_first, is_last)
            self.missing.append(run)

    def _finding(self, wrong: Mismatch, kind: str, message: str, **details: Any) -> Finding:
        path, position = wrong.queue.position(wrong.place)
        return finding(
            kind,
            path,
            message,
            file_position=position,
            physical_offset=int(wrong.unit["physical_offset"]),
            length=wrong.queue.unit_size,
            topic=wrong.queue.topic,
            queue_id=wrong.queue.queue_id,
            queue_offset=None if wrong.queue.is_batch else wrong.place,
            **details,
        )


def _claimed_offset(mismatch: Mismatch) -> int:
    """Queue offset that a unit gives its record: in a batch unit its field, else its place."""
    return int(mismatch.unit["base_queue_offset"]) if mismatch.queue.is_batch else mismatch.place


def _equal(queue: QueueMap, places: Array, units: Array, entries: QueueEntries, at: Array) -> Array:
    """Mask of the units that equal the entry at their physical offset."""
    same = (units["record_size"] == entries.record_sizes[at]) & (units["tags_code"] == entries.tags_codes[at])
    if "store_timestamp_ms" in (units.dtype.names or ()):
        same &= units["store_timestamp_ms"] == entries.store_timestamps_ms[at]
    if not queue.is_batch:
        return np.asarray(same & (places == entries.queue_offsets[at]))
    same &= units["base_queue_offset"] == entries.queue_offsets[at]
    same &= units["batch_size"] == entries.batch_sizes[at]
    same &= units["compacted_offset"] == -1
    same &= units["reserved"] == 0
    return np.asarray(same)


def name_of(key: QueueKey) -> str:
    """A queue as a person reads it."""
    return f"{topic_text(key[0])}/{key[1]}"
