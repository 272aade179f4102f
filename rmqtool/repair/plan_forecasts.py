"""Completes a plan: its losses, and the forecast of every broker version before and after it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Final

import numpy as np

from rmqtool.engine.dispatch.derived_writer import QUEUES
from rmqtool.engine.queues.stored_units import StoredUnits
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.versions import EXAMINED, rules_for
from rmqtool.engine.segments.open_files import ReadCache
from rmqtool.errors import RmqtoolError
from rmqtool.findings.finding import Finding
from rmqtool.forecast.floor import ChangedRange, compare_floors
from rmqtool.forecast.forecast import SharedStarts, forecast_store, scan_begin
from rmqtool.forecast.options import COUNT_WHOLE_LOG_UP_TO, ForecastOptions
from rmqtool.forecast.record_arrays import Bools, ServedPlaces
from rmqtool.forecast.result import Floor
from rmqtool.forecast.simulate import Simulation
from rmqtool.formats.queue_name import QueueName
from rmqtool.memory import THREAD_BYTES, memory_budget
from rmqtool.repair.machine.plan import ForecastAfter, Loss, Plan, PlannedRepair
from rmqtool.repair.machine.steps import Step, WriteRange
from rmqtool.repair.missing_log import gone_messages, unmounted_text
from rmqtool.repair.recover.log_steps import damage_in
from rmqtool.store.directory import Store, size_assumptions
from rmqtool.store.dledger_files import with_dledger_log
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.source import Closable

COUNTED_WHOLE_MAX: Final = 256 << 20
"""Bytes of a log up to which losses are counted over all of it for every version, and not for the chosen one alone."""
START_FILE_BYTES: Final = 1536
"""Memory of a simulated start for each file of the consume queues."""


class PlanForecasts(Closable):
    """Forecasts of the store as it is and as a plan would leave it; a context manager."""

    def __init__(
        self,
        store: Store,
        after: Store,
        rules: BrokerRules,
        options: ForecastOptions,
        on_note: Callable[[str], None],
        repair: PlannedRepair,
        possible: Sequence[str],
    ) -> None:
        """For a repair of a store, for a broker version.

        Args:
            store, after: before the plan and as it would leave it.
            on_note: is given a sentence where a forecast cannot be made.
            repair: what the planner knows of the store as it is.
            possible: versions that may start on it, beside this one.
        """
        self._store, self._after, self._rules = store, after, rules
        self._options, self._on_note = options, on_note
        self._repair, self._possible = repair, possible
        self._shared = SharedStarts(ReadCache(notes=None if options.cache is None else options.cache.notes))
        self._pool = ThreadPoolExecutor(_starts_at_once(len(after.files.get(FileKind.CONSUMEQUEUE, ()))))
        self._now: Future[ForecastAfter | None] | None = None

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def look_now(self, begin: int | None) -> None:
        """Forecast a start of the store as it is, while the caller continues; see `completed`."""
        shared = SharedStarts(self._shared.reads, self._shared.clean)
        self._now = self._pool.submit(self._forecast, self._store, self._rules, begin, shared=shared)

    def completed(self, plan: Plan, begin: int | None) -> Plan:
        """The plan with its losses, and forecasts of every examined version.

        Args:
            begin: physical offset from which on the store was looked at; losses are counted from there. None: all.
        """
        versions = dict.fromkeys((*EXAMINED, *self._possible, self._rules.version))
        whole = sum(segment.entry.allocated_bytes for segment in self._after.commitlog) <= COUNTED_WHOLE_MAX
        if self._now is None:
            self.look_now(begin)
        assert self._now is not None, "the forecast has just begun"
        forecasts = self._pool.map(
            lambda version: self._forecast(
                self._after,
                rules_for(version),
                begin,
                whole=whole or version == self._rules.version,
                shared=self._shared,
            ),
            versions,
        )
        by_version = zip(versions, forecasts, strict=True)
        after = {version: forecast for version, forecast in by_version if forecast is not None}
        without = ", ".join(version for version in versions if version not in after)
        lacking = [f"not forecast: what a broker would do after the repair ({without})"] if without else []
        if not whole and begin is None:
            lacking.append("not counted: what other versions would lose in the files that their start does not read")
        gone = gone_messages(self._store, self._after, plan.steps)
        unmounted = (unmounted_text(self._store, gone.without_log),) if gone.without_log else ()
        return replace(
            plan,
            loss=plan.loss + gone,
            kept_beyond_broker=_kept(self._now.result(), after.get(self._rules.version), plan.loss),
            not_looked_at=(*unmounted, *plan.not_looked_at, *size_assumptions(self._store), *lacking),
            forecast_now=self._now.result(),
            forecast_after=after,
            possible_versions=tuple(
                version for version in dict.fromkeys((self._rules.version, *self._possible)) if version in after
            ),
            floor=self._floor(plan),
        )

    def _floor(self, plan: Plan) -> Floor | None:
        """Messages that consumers of the chosen version get before and after; None where a start cannot
        be simulated.
        """
        options = replace(self._options, count_index=False, lists_queues=False)
        try:
            with self._started(self._store, options) as before, self._started(self._after, options) as after:
                changes = tuple(changed_ranges(self._store, plan.steps))
                damage = [*damaged_ranges(self._repair.findings), *(changes if self._repair.corrects_log else ())]
                again, moved = self._repair.again, self._repair.moved
                return compare_floors(before, after, changes, damage, self._are_there, again, moved)
        except RmqtoolError as error:
            self._on_note(f"not compared: what consumers get before and after the repair: {error}")
            return None

    def _are_there(self, name: QueueName, places: ServedPlaces) -> Bools:
        """Mask of the units that a queue of files has now."""
        if name not in self._store.queues:
            return np.full(places.sizes.size, name in self._store.batch_queues)
        directory = f"{QUEUES}/{name[0]}/{name[1]}"
        return StoredUnits(self._store).lead_to(directory, places.queue_offsets, places.physical_offsets)

    def _started(self, store: Store, options: ForecastOptions) -> Simulation:
        """A simulated start that continues after errors that keep the broker from it."""
        store = with_dledger_log(store) if self._rules.dledger else store
        simulation = Simulation(store, self._rules, options, past_obstacles=True, reads=self._shared.reads)
        try:
            simulation.run()
        except BaseException:
            simulation.close()
            raise
        return simulation

    def _forecast(
        self, store: Store, rules: BrokerRules, begin: int | None, *, shared: SharedStarts, whole: bool = True
    ) -> ForecastAfter | None:
        """Forecast of a version; None where it cannot be made, or would read much more than was read so far."""
        options = replace(self._options, count_whole_log=None if whole else False, count_from=begin)
        options = replace(options, count_index=False, lists_queues=False)
        try:
            if begin is not None and rules.version != self._rules.version:
                starts_at = scan_begin(store, rules, options)
                read = (segment for segment in store.commitlog if starts_at is not None and starts_at <= segment.start)
                if sum(segment.entry.allocated_bytes for segment in read) > COUNT_WHOLE_LOG_UP_TO:
                    self._on_note(f"no forecast for {rules.version}: it would read the commit log from {starts_at}")
                    return None
            forecast = forecast_store(store, rules, options, shared)
        except RmqtoolError as error:
            self._on_note(f"no forecast for {rules.version}: {error}")
            return None
        lost, without_log = forecast.lost, forecast.messages_without_log
        return ForecastAfter(
            forecast.starts, lost.messages, lost.by_topic, forecast.why_not, without_log, forecast.deleted_topics
        )


def damaged_ranges(findings: Iterable[Finding]) -> Iterator[ChangedRange]:
    """Where the log is damaged inside."""
    for finding in damage_in(findings):
        if finding.physical_offset is not None:
            yield ChangedRange(finding.physical_offset, finding.physical_offset + max(1, finding.length or 0))


def changed_ranges(store: Store, steps: Sequence[Step]) -> Iterator[ChangedRange]:
    """Where a plan changes the log."""
    starts = {segment.path: segment for segment in store.commitlog}
    for step in steps:
        if (segment := starts.get(step.path)) is None:
            continue
        if isinstance(step, WriteRange):
            yield ChangedRange(segment.start + step.file_position, segment.start + step.end)
        else:
            yield ChangedRange(segment.start, segment.end)


def _starts_at_once(queue_files: int) -> int:
    """Number of starts that are simulated at a time: each holds data of every queue."""
    return memory_budget().threads(os.cpu_count() or 1, THREAD_BYTES + START_FILE_BYTES * queue_files)


def _kept(now: ForecastAfter | None, after: ForecastAfter | None, loss: Loss) -> dict[str, int]:
    """Messages by topic that a start now would lose, and that are served after the repair."""
    if now is None or after is None:
        return {}
    kept = Counter(now.lost_by_topic)
    kept.subtract(after.lost_by_topic)
    kept.subtract(loss.by_topic)
    kept.subtract(Counter(after.deleted_by_topic) - Counter(now.deleted_by_topic))  # told as lost, and not served then
    return {topic: count for topic, count in sorted(kept.items()) if count > 0}
