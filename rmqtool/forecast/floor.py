"""The floor: messages that consumers get before and after a plan, each as a start of one version would leave it.

What a broker serves today stays served: no repair takes a message from consumers, at the offset at which they get it.
Queue by queue the units that a client gets before and after are laid side by side. A message counts where its record
passes its own checks and is one of the queue's topic; a topic that the whole configuration does not have is served to
nobody. Where the version would not start on the store as it is, it starts as if only the obstacle were gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from rmqtool.engine.reading.record import read_record
from rmqtool.engine.rules.topic_names import is_deleted
from rmqtool.engine.segments.log import Log
from rmqtool.errors import UnreadableError
from rmqtool.forecast.database_state import DatabaseServedUnits
from rmqtool.forecast.record_arrays import Bools, Int64s, MovedRecords, ServedPlaces, joined_places
from rmqtool.forecast.result import Floor, TakenRun
from rmqtool.forecast.served_units import ServedUnits, served_by_queue
from rmqtool.forecast.simulate import Simulation
from rmqtool.formats.properties import MULTI_DISPATCH
from rmqtool.formats.queue_name import QueueName
from rmqtool.quantities import OFFSETS_END
from rmqtool.store.directory import survey
from rmqtool.store.dledger_files import with_dledger_log

BLOCK_UNITS: Final = 1 << 17
CHECKED_MAX: Final = 20_000
"""Missing records of a block that are read to see whether they count; more count as messages that are taken away."""
NAMED_MAX: Final = 1000
"""Runs of queue offsets that are named; the numbers count all."""


class Served:
    """Messages that consumers get from a simulated start; valid as long as the simulation is open."""

    def __init__(self, simulation: Simulation, moved: MovedRecords | None = None) -> None:
        """The simulation must have run.

        Args:
            moved: gives all records other physical offsets than they have there.
        """
        self._moved = moved
        log = simulation.log
        self._simulation, self._segments = simulation, sorted(log.segments, key=lambda one: one.start) if log else []
        self._starts = np.array([segment.start for segment in self._segments], np.int64)
        self._ends = np.array([segment.end for segment in self._segments], np.int64)
        self._log_end, self._log_minimum = (log.end, log.minimum) if log else (0, 0)

    @cached_property
    def queues(self) -> Mapping[QueueName, ServedUnits | DatabaseServedUnits]:
        return served_by_queue(self._simulation.queues, self._log_minimum)

    def is_configured(self, topic: str) -> bool:
        """True if clients can use the topic, as far as the configuration shows."""
        return not is_deleted(topic, self._simulation.whole_topics)

    def between(self, name: QueueName, first: int, end: int) -> ServedPlaces:
        """Messages that a client gets of a queue, of records that are in the log."""
        units = self.queues.get(name)
        places = units.between(first, end) if units is not None else joined_places(())
        if not self._segments:
            return places.some(np.zeros(places.sizes.size, np.bool_))
        numbers = np.searchsorted(self._starts, places.physical_offsets, side="right") - 1
        ends = places.physical_offsets + places.sizes
        is_inside: Bools = (numbers >= 0) & (ends <= np.minimum(self._ends[numbers], self._log_end))
        places = places if is_inside.all() else places.some(is_inside)
        if self._moved is None:
            return places
        return places._replace(physical_offsets=self._moved.to_now(places.physical_offsets))

    def as_stored(self, places: ServedPlaces) -> ServedPlaces:
        """Units with the physical offsets that the store has."""
        if self._moved is None:
            return places
        return places._replace(physical_offsets=self._moved.to_before(places.physical_offsets))

    def pass_checks(self, name: QueueName, physical_offsets: Int64s) -> Bools:
        """Mask of the records that pass their own checks and are of the queue's topic."""
        stored = physical_offsets if self._moved is None else self._moved.to_before(physical_offsets)
        return np.fromiter((self._passes(name, at) for at in stored.tolist()), np.bool_)

    def own_queue_offset(self, name: QueueName, physical_offset: int) -> int | None:
        """The queue offset that a record says of itself; None of one that only names the queue, or cannot be read."""
        if self._moved is not None:
            physical_offset = int(self._moved.to_before(np.array([physical_offset]))[0])
        try:
            record = read_record(self._log, physical_offset)
        except UnreadableError:
            return None
        return record.queue_offset if record is not None and record.topic == name[0] else None

    def _passes(self, name: QueueName, physical_offset: int) -> bool:
        try:
            record = read_record(self._log, physical_offset)
            if record is None or record.physical_offset != physical_offset or not record.body_crc_ok:
                return False
            if record.topic == name[0]:
                return record.queue_id == name[1]
            return name[0] in record.properties.get(MULTI_DISPATCH, "").split(",")
        except UnreadableError:
            return False

    @cached_property
    def _log(self) -> Log:
        simulation = self._simulation
        store = survey(simulation.overlay, simulation.store.settings, simulation.store)
        store = with_dledger_log(store) if simulation.store.has_dledger_log else store
        return Log(store, simulation.rules, simulation.files)


AreThere = Callable[[QueueName, ServedPlaces], Bools]
"""Tells which units a queue has before any start."""


class ChangedRange(NamedTuple):
    """Physical offsets [begin, end) of the log."""

    begin: int
    end: int


@dataclass
class _Comparison:
    before: Served
    after: Served
    changes: Sequence[ChangedRange]
    damage: Sequence[ChangedRange]
    are_there: AreThere
    again: Mapping[str, int]
    kept: int = 0
    added: int = 0
    taken_away: int = 0
    moved: int = 0
    restored: set[str] = field(default_factory=set)
    runs: list[TakenRun] = field(default_factory=list)

    def queue(self, name: QueueName) -> None:
        topic, was_served = name[0], self.before.is_configured(name[0])
        both = [served.queues[name] for served in (self.before, self.after) if name in served.queues]
        spans = [units.span for units in both if units.span[0] < units.span[1]]
        gone, astray = list[ServedPlaces](), list[Bools]()
        low, high = min((span[0] for span in spans), default=0), max((span[1] for span in spans), default=0)
        blocks = ([(low, high)] if any(units.is_batch for units in both) else self._blocks(name)) if spans else []
        for first, end in blocks:
            before, after = self.before.between(name, first, end), self.after.between(name, first, end)
            if not was_served:
                if after.sizes.size > before.sizes.size:
                    self.restored.add(topic)
                self.added += int(after.message_counts.sum()) if self.after.is_configured(topic) else 0
                continue
            is_same = _same(before, after)
            self.added += int(after.message_counts[~_same(after, before)].sum())
            is_damaged = _touch(before, self.damage)
            doubtful = np.flatnonzero(is_same & (is_damaged | _touch(before, self.changes)))
            if doubtful.size:
                offsets = before.physical_offsets[doubtful]
                good, good_after = self.before.pass_checks(name, offsets), self.after.pass_checks(name, offsets)
                good &= ~is_damaged[doubtful]
                self.added += int(before.message_counts[doubtful[~good & good_after]].sum())
                self.kept -= int(before.message_counts[doubtful[~good]].sum())
                is_same[doubtful[good & ~good_after]] = False
            self.kept += int(before.message_counts[is_same].sum())
            missing = before.some(~(is_same | is_damaged))
            is_good = np.ones(missing.sizes.size, np.bool_)
            is_good[:CHECKED_MAX] = self.before.pass_checks(name, missing.physical_offsets[:CHECKED_MAX])
            missing = missing.some(is_good)
            is_removed, is_astray = self._entered(name, missing, before)
            gone.append(missing.some(~is_removed))
            astray.append(is_astray[~is_removed])
        if gone and (lost := joined_places(gone)).sizes.size:
            self._gone(name, lost, np.concatenate(astray), blocks)

    def _blocks(self, name: QueueName) -> list[tuple[int, int]]:
        """Queue offsets [first, end) of a bounded number that have units before or after; gaps may be of any size."""
        blocks = list[tuple[int, int]]()
        at = -1
        both = [served.queues[name] for served in (self.before, self.after) if name in served.queues]
        for first, end in sorted(one for units in both for one in units.ranges(BLOCK_UNITS)):
            begins = range(max(first, at), end, BLOCK_UNITS)
            blocks += [(begin, min(end, begin + BLOCK_UNITS)) for begin in begins]
            at = max(at, end)
        return blocks

    def _entered(self, name: QueueName, places: ServedPlaces, before: ServedPlaces) -> tuple[Bools, Bools]:
        """Masks of the messages that consumers would get only because a start enters them first, of two kinds.

        Args:
            before: all that consumers get of this part of the queue.

        Returns:
            Those that somebody removed, which nobody gets today; and those that would get a place which is not their
            own, as a start gives it where others are missing.
        """
        is_entered = ~self.are_there(name, self.before.as_stored(places))
        is_removed = is_entered & (places.physical_offsets < self.again.get(name[0], 0))
        if is_removed.any():  # what comes after a message that the queue has continues it
            there = before.physical_offsets[self.are_there(name, self.before.as_stored(before))]
            is_removed &= places.physical_offsets < there.min(initial=OFFSETS_END - 1)
        is_astray = np.zeros(places.sizes.size, np.bool_)
        for number in np.flatnonzero(is_entered & ~is_removed)[:CHECKED_MAX].tolist():
            own = self.before.own_queue_offset(name, int(places.physical_offsets[number]))
            is_astray[number] = own not in (None, int(places.queue_offsets[number]))
        return is_removed, is_astray

    def _gone(self, name: QueueName, lost: ServedPlaces, is_astray: Bools, blocks: Sequence[tuple[int, int]]) -> None:
        """Messages that are not at their offset any more: find them elsewhere in the queue.

        Args:
            is_astray: which of them may move, for they were not at their own place.
            blocks: queue offsets [first, end) that have units.
        """
        order = np.argsort(lost.physical_offsets, kind="stable")
        in_order = lost.physical_offsets[order]
        moved_to, twice = np.full(lost.sizes.size, -1, np.int64), np.zeros(lost.sizes.size, np.bool_)
        for first, end in blocks:
            after = self.after.between(name, first, end)
            at = np.searchsorted(in_order, after.physical_offsets).clip(max=in_order.size - 1)
            # At the same place it is another record by now, which the plan has changed.
            hits = (in_order[at] == after.physical_offsets) & (lost.queue_offsets[order[at]] != after.queue_offsets)
            moved_to[order[at[hits]]] = after.queue_offsets[hits]
            # A record that was served at two offsets, and still is at one of them, is not lost.
            stays = hits & _same(after, self.before.between(name, first, end))
            twice[order[at[stays]]] = True
        may_move = is_astray & (moved_to >= 0) & ~twice
        self.added -= int(lost.message_counts[may_move].sum())
        lost, moved_to = lost.some(~(twice | may_move)), moved_to[~(twice | may_move)]
        counts = lost.message_counts
        is_moved = moved_to >= 0
        self.moved += int(counts[is_moved].sum())
        self.taken_away += int(counts[~is_moved].sum())
        # What moved was counted as added at its new place.
        self.added -= int(counts[is_moved].sum())
        if not counts.size:
            return
        offsets = lost.queue_offsets
        shifts = np.where(moved_to < 0, OFFSETS_END - 1, moved_to - offsets)
        follows = (offsets[1:] == offsets[:-1] + counts[:-1]) & (shifts[1:] == shifts[:-1])
        for begin, end in pairwise([0, *(np.flatnonzero(~follows) + 1).tolist(), offsets.size]):
            if len(self.runs) < NAMED_MAX:
                count, target = int(counts[begin:end].sum()), int(moved_to[begin])
                self.runs.append(TakenRun(*name, int(offsets[begin]), count, target if target >= 0 else None))


def _touch(places: ServedPlaces, ranges: Sequence[ChangedRange]) -> Bools:
    """Mask of the records that have bytes in one of some ranges."""
    touched = np.zeros(places.sizes.size, np.bool_)
    for begin, end in ranges:
        touched |= (places.physical_offsets < end) & (places.physical_offsets + places.sizes > begin)
    return touched


def _same(one: ServedPlaces, other: ServedPlaces) -> Bools:
    """Mask of the units of the one that are in the other too, with equal queue offset and record."""
    if not one.sizes.size or not other.sizes.size:
        return np.zeros(one.sizes.size, np.bool_)
    at = np.searchsorted(other.queue_offsets, one.queue_offsets).clip(max=other.sizes.size - 1)
    same: Bools = (other.queue_offsets[at] == one.queue_offsets) & (other.physical_offsets[at] == one.physical_offsets)
    return same


def compare_floors(
    before: Simulation,
    after: Simulation,
    changes: Sequence[ChangedRange] = (),
    damage: Sequence[ChangedRange] = (),
    are_there: AreThere | None = None,
    again: Mapping[str, int] | None = None,
    moved: MovedRecords | None = None,
) -> Floor:
    """Compare what consumers get before and after a plan.

    Args:
        before, after: simulated starts of the same version that have run.
        changes: where the plan changes the log: the same unit may lead to another record there.
        damage: records of the log that are damaged, whatever their own checks say; they do not count before.
        are_there: tells which units queues have before the start; all of them where there is none.
        again: where in the log topics begin again that somebody deleted, by topic.
        moved: where the plan moves all records, if it does.
    """
    are_there = are_there or (lambda _name, places: np.ones(places.sizes.size, np.bool_))
    comparison = _Comparison(Served(before, moved), Served(after), changes, damage, are_there, again or {})
    by_topic: defaultdict[str, set[int]] = defaultdict(set)
    for topic, queue_id in (*comparison.before.queues, *comparison.after.queues):
        by_topic[topic].add(queue_id)
    for topic in sorted(by_topic):
        for queue_id in sorted(by_topic[topic]):
            comparison.queue((topic, queue_id))
    return Floor(
        comparison.kept,
        comparison.added,
        comparison.taken_away,
        comparison.moved,
        tuple(sorted(comparison.restored)),
        tuple(comparison.runs),
    )
