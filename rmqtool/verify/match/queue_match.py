"""Compares a chunk of the log with the units that point into it, one queue after the other.

What agrees is settled for thousands of units at once; only what does not is looked at one by one. Chunks follow from
the memory, and findings must not: so a finding continues with the last one about its queue's file, in whichever chunk
that was, and each queue has its own limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
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
    """Findings in the order of the log, for each queue.

    Attributes:
        all: what was added.
    """

    all: list[Finding] = field(default_factory=list)
    _last: dict[tuple[str, str, str | None, int | None], int] = field(default_factory=dict)
    """The number of the last finding of a kind about a file of a queue."""
    _rests: dict[tuple[str, int, bool], int] = field(default_factory=dict)
    """The number of the finding that counts what is not described of a queue."""
    _described: Counter[tuple[str, int, bool]] = field(default_factory=Counter)
    _described_in_all: int = 0

    def describes(self, queue: QueueMap) -> bool:
        """Whether one more unit of a queue is described."""
        name = _name(queue)
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
        number = self._last.get(key)
        before = self.all[number] if number is not None else None
        if (
            before is not None
            and number is not None
            and before.file_position is not None
            and new_finding.queue_offset == (before.queue_offset or 0) + before.count
        ):
            length = (before.length or 0) + (new_finding.length or 0)
            self.all[number] = replace(before, count=before.count + new_finding.count, length=length)
            return
        self._last[key] = len(self.all)
        self.all.append(new_finding)

    def add_rest(self, queue: QueueMap, first: Finding) -> None:
        """Count units of a queue that are not described.

        Args:
            first: says it of the first of them, and how many they are.
        """
        number = self._rests.setdefault(_name(queue), len(self.all))
        if number == len(self.all):
            self.all.append(first)
            return
        before = self.all[number]
        count = before.count + first.count
        self.all[number] = replace(before, count=count, message=rest_message(count))


def rest_message(count: int) -> str:
    """What is said of units that are counted only."""
    return f"{count} more units that do not match" if count > 1 else "one more unit that does not match"


def _name(queue: QueueMap) -> tuple[str, int, bool]:
    return queue.topic, queue.queue_id, queue.is_batch


DELAY_MAX_MS: Final = 400 * 86_400_000
"""Longest delay that a level is believed to have."""


@dataclass
class Mismatch:
    """A unit that does not agree with the log.

    Attributes:
        entry: number of the expected entry for its record, or -1.
        queue_offset: that entry's; not the record's own, where it stands in further queues.
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
    _places: RecordPlaces = field(init=False)

    def run(self, expected: dict[TypedQueueKey, QueueEntries]) -> None:
        """Compare all queues; what is expected and has no unit becomes `missing`."""
        unmatched: dict[TypedQueueKey, tuple[QueueEntries, Array]] = {}
        doubtful: list[tuple[QueueMap, Mismatch]] = []
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
            if entries is not None and _agree(queue, places, units, entries):
                continue
            without_unit, mismatches = self._compare(queue, places, units, entries)
            if entries is not None and without_unit.any():
                unmatched[key] = entries, without_unit
            if queue.topic == SCHEDULE_TOPIC:
                mismatches = self._without_other_delay(mismatches)
            doubtful += [(queue, mismatch) for mismatch in mismatches]
        for key, entries in expected.items():
            if key not in present and self._map_of(key) is None:
                unmatched[key] = entries, np.ones(len(entries.queue_offsets), np.bool_)
        self.agrees = not (doubtful or unmatched)
        with OpenFiles(self.context.store.view) as files:
            self._places = RecordPlaces(self.context, self.lookup, expected, files)
            self._settle(doubtful, unmatched)
        for key, (entries, open_entries) in unmatched.items():
            self._note_missing(key, entries, np.flatnonzero(open_entries))

    def _queues(self, expected: Iterable[TypedQueueKey]) -> Iterator[tuple[TypedQueueKey, QueueMap]]:
        """The queues with files that have units into the chunk, or should have; one map at a time is in memory."""
        known = set[TypedQueueKey]()
        for key, queue in self.context.queues_into(self.lookup.begin, self.lookup.end):
            if queue.units.touches(self.lookup.begin, self.lookup.end):
                known.add((*key, queue.is_batch))
                yield (*key, queue.is_batch), queue
        for expected_key in expected:
            if expected_key not in known and (queue_of := self._map_of(expected_key)) is not None:
                yield expected_key, queue_of

    def _resolved(self, queue: QueueMap, units: Array) -> Array:
        """The units with the tags code of the queue's extension where they have an address that leads to one."""
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
        """The units of a delay level less those that all have one other delay: the broker was set to other delays."""
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

    def _map_of(self, key: TypedQueueKey) -> QueueMap | None:
        return (self.context.batch_queues if key[2] else self.context.queues).get(key[:2])

    def _compare(
        self, queue: QueueMap, places: Array, units: Array, entries: QueueEntries | None
    ) -> tuple[Array, list[Mismatch]]:
        """Which entries have no unit, and which units do not agree with an entry."""
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
        wrong = np.flatnonzero(~right)
        expected = entries.queue_offsets[at]
        return without_unit, [
            Mismatch(queue, int(places[index]), units[index], int(at[index]), int(expected[index]))
            if met[index]
            else Mismatch(queue, int(places[index]), units[index])
            for index in wrong.tolist()
        ]

    def _settle(
        self,
        mismatches: list[tuple[QueueMap, Mismatch]],
        unmatched: dict[TypedQueueKey, tuple[QueueEntries, Array]],
    ) -> None:
        """Say of each unit that does not agree what is wrong with it, or with its record."""
        rest: dict[int, tuple[Mismatch, int]] = {}
        for queue, mismatch in mismatches:
            if not self.findings.describes(queue):
                first, count = rest.get(id(queue), (mismatch, 0))
                rest[id(queue)] = first, count + 1
                continue
            row = self.lookup.at(int(mismatch.unit["physical_offset"]))
            if is_message(row) and row["physical_offset"] == mismatch.unit["physical_offset"]:
                new_finding = self._of_message(mismatch, row, unmatched)
            else:
                new_finding = self._of_no_message(mismatch, row)
            if new_finding is not None:
                self.findings.add(new_finding)
        for first, count in rest.values():
            of_rest = self._finding(first, "consumequeue.dangling-unit", rest_message(count), count=count)
            self.findings.add_rest(first.queue, of_rest)

    def _of_message(
        self,
        mismatch: Mismatch,
        row: Any,
        unmatched: dict[TypedQueueKey, tuple[QueueEntries, Array]],
    ) -> Finding | None:
        """What is wrong with a unit that points to the start of a good message."""
        unit, queue = mismatch.unit, mismatch.queue
        if self._keeps_older_offset(mismatch, row):
            return self._of_older_offset(mismatch, unmatched)
        if mismatch.entry < 0 or (not queue.is_batch and mismatch.queue_offset != mismatch.place):
            if int(unit["record_size"]) == int(row["size"]) and self._blames_record(mismatch, row, unmatched):
                text = self.lookup.describe(row)
                claimed = _claimed_offset(mismatch)
                self.doubtful.append(int(row["physical_offset"]))
                return finding(
                    "commitlog.doubtful-header",
                    self._log_path(),
                    f"{text}, but the log lacks {queue.name} at queue offset {claimed} there, and its unit points here",
                    file_position=self._log_position(int(row["physical_offset"])),
                    physical_offset=int(row["physical_offset"]),
                    length=int(row["size"]),
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    queue_offset=claimed,
                    expected=f"{queue.name} at queue offset {claimed}",
                    found=text,
                )
            if mismatch.entry < 0:
                kind = "consumequeue.wrong-record"
                return self._finding(mismatch, kind, f"points to {self.lookup.describe(row)}", expected=queue.name)
            return self._finding(
                mismatch,
                "consumequeue.wrong-position",
                f"its message has queue offset {mismatch.queue_offset}",
                expected=str(mismatch.queue_offset),
                found=str(mismatch.place),
            )
        if queue.is_batch:
            return self._finding(mismatch, "consumequeue.bad-batch-unit", f"does not match {self.lookup.describe(row)}")
        if int(unit["record_size"]) != int(row["size"]):
            return self._finding(
                mismatch,
                "consumequeue.wrong-record-size",
                f"says {int(unit['record_size'])} bytes, the record has {int(row['size'])}",
                expected=str(int(row["size"])),
                found=str(int(unit["record_size"])),
            )
        if "store_timestamp_ms" in unit.dtype.names and unit["store_timestamp_ms"] != row["store_timestamp_ms"]:
            return self._finding(
                mismatch,
                "rocksdb.wrong-time",
                f"says {int(unit['store_timestamp_ms'])}, the record was stored at {int(row['store_timestamp_ms'])}",
                expected=str(int(row["store_timestamp_ms"])),
                found=str(int(unit["store_timestamp_ms"])),
            )
        return self._of_tags(mismatch, row)

    def _keeps_older_offset(self, mismatch: Mismatch, row: Any) -> bool:
        """Whether a record names this queue with the offset of the message that it is a copy of.

        A dead letter has the properties of the message that nobody could consume. 5.5.0 gives it no offset of its own
        there, and enters it all the same, one that says 0 at the end (`MixAll#topicAllowsLMQ`, `MultiDispatchUtils`).
        """
        topic, rules = self.lookup.topic(row), self.context.dispatch.rules
        is_named = mismatch.entry >= 0 and topic != mismatch.queue.topic
        return is_named and mismatch.queue_offset == 0 < mismatch.place and is_kept_out(topic, rules.put_keeps_out)

    def _of_older_offset(
        self, mismatch: Mismatch, unmatched: dict[TypedQueueKey, tuple[QueueEntries, Array]]
    ) -> Finding:
        """What is wrong with the unit of such a record: nothing, unless a message lacks its place."""
        lacking = (
            open_entries & (entries.queue_offsets == mismatch.place)
            for key, (entries, open_entries) in unmatched.items()
            if topic_text(key[0]) == mismatch.queue.topic
        )
        text = "its message is a dead letter with the queue offset of the message that it is a copy of"
        one = self._finding(mismatch, "consumequeue.wrong-position", text, expected="0", found=str(mismatch.place))
        return one if any(map(np.any, lacking)) else replace(one, severity=Severity.NOTE, repair=None)

    def _of_tags(self, mismatch: Mismatch, row: Any) -> Finding:
        code, expected = int(mismatch.unit["tags_code"]), int(row["tags_code"])
        if code <= EXTENSION_ADDRESS_MAX:
            return self._finding(
                mismatch, "consumequeue.bad-extension", "its address points to no unit of the queue's extension"
            )
        return self._finding(
            mismatch,
            "consumequeue.wrong-tags-code",
            f"tags code {code}, the record's is {expected}",
            expected=str(expected),
            found=str(code),
        )

    def _blames_record(
        self, mismatch: Mismatch, row: Any, unmatched: dict[TypedQueueKey, tuple[QueueEntries, Array]]
    ) -> bool:
        """Whether the log itself says that the unit is right and the record's header is not; see `queue_sequence`.

        The record's own missing entry is settled with it.
        """
        queue, own_entries = mismatch.queue, []
        if queue.is_batch and (mismatch.entry >= 0 or _claimed_offset(mismatch) != int(row["queue_offset"])):
            return False  # a unit of another kind tells more of its record, which then has to agree
        if mismatch.entry < 0:
            for entries, open_entries in unmatched.values():
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

    def _of_no_message(self, mismatch: Mismatch, row: Any) -> Finding | None:
        """What is wrong with a unit that points to anything but the start of a good message."""
        offset = int(mismatch.unit["physical_offset"])
        if row["verdict"] == Verdict.STALE:
            return self._finding(mismatch, "consumequeue.stale-unit", f"points to {self.lookup.describe(row)}")
        if row["verdict"] != Verdict.GOOD:
            # The message is lost with the damage, which is a finding of its own.
            number = self.lookup.index_at(offset)
            self.lost.setdefault(number, []).append(f"{mismatch.queue.name} at queue offset {mismatch.place}")
            return None
        inside = offset - int(row["physical_offset"])
        where = f"{inside} bytes into " if inside else "to "
        return self._finding(mismatch, "consumequeue.dangling-unit", f"points {where}{self.lookup.describe(row)}")

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

    def _log_path(self) -> str:
        return self.context.log_path(self.lookup.begin)

    def _log_position(self, physical_offset: int) -> int:
        return physical_offset - self.context.log_start(self.lookup.begin)


def _claimed_offset(mismatch: Mismatch) -> int:
    """The queue offset that a unit gives its record: a batch unit says it, the others stand for it."""
    return int(mismatch.unit["base_queue_offset"]) if mismatch.queue.is_batch else mismatch.place


def _agree(queue: QueueMap, places: Array, units: Array, entries: QueueEntries) -> bool:
    """Whether the units are exactly the entries."""
    if len(units) != len(entries.physical_offsets):
        return False
    if not np.array_equal(units["physical_offset"], entries.physical_offsets):
        return False
    return bool(_equal(queue, places, units, entries, np.arange(len(units))).all())


def _equal(queue: QueueMap, places: Array, units: Array, entries: QueueEntries, at: Array) -> Array:
    """Which units say the same as the entry at the same physical offset."""
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
