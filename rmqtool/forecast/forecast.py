"""The forecast: the effects of a broker version's next start on a store, and its losses."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from hashlib import blake2b
from itertools import pairwise
from threading import Lock

from rmqtool.engine.reading.log_end import FILES_FROM_END, log_tail
from rmqtool.engine.reading.messages_without_log import messages_without_log
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.segments.open_files import ReadCache
from rmqtool.errors import UnknownSizeError, UnsupportedError
from rmqtool.forecast.load import topic_assumptions
from rmqtool.forecast.log_recovery import PlainRecords
from rmqtool.forecast.losses import CleanFiles, LossCounter, LossReport
from rmqtool.forecast.options import COUNT_WHOLE_LOG_UP_TO, ForecastOptions
from rmqtool.forecast.queue_state import QueueState
from rmqtool.forecast.result import Forecast, Lost, QueueForecast, StopsAt
from rmqtool.forecast.simulate import Simulation
from rmqtool.store.config.read_config import StoreConfigs
from rmqtool.store.directory import Store, size_assumptions
from rmqtool.store.overlay import UNKNOWN_CONTENT, Overlay


class SharedStarts:
    """Results that starts of several versions on one store share.

    Attributes:
        plain: how far the log holds records that all of them take for good.
        reads: what they read of the other files; starts on another store may share it.
        clean: files of the log of which nothing is lost; starts on a store that a plan makes of the same may share it.
    """

    def __init__(self, reads: ReadCache | None = None, clean: CleanFiles | None = None) -> None:
        self.plain: PlainRecords = {}
        self.reads = ReadCache() if reads is None else reads
        self.clean = CleanFiles() if clean is None else clean
        self._configs: StoreConfigs | None = None
        self._losses_by_key: dict[Hashable, LossReport] = {}
        self._queues: list[tuple[QueueForecast, ...]] = []
        self._lock = Lock()

    def configs(self, store: Store) -> StoreConfigs:
        with self._lock:
            self._configs = self._configs or StoreConfigs(store.view)
            return self._configs

    def losses(self, key: Hashable, count: Callable[[], LossReport]) -> LossReport:
        """Losses of a start that leaves the state of the key, counted if it is the first of its kind."""
        with self.clean.lock:
            if key not in self._losses_by_key:
                self._losses_by_key[key] = count()
            return self._losses_by_key[key]

    def queues(self, queues: tuple[QueueForecast, ...]) -> tuple[QueueForecast, ...]:
        """The queues, as one object for all starts that leave equal ones."""
        with self._lock:
            for known in self._queues:
                ends = zip(known, queues, strict=False)  # which the comparison of two queues leaves out
                if known == queues and all(one.last_physical_offset == two.last_physical_offset for one, two in ends):
                    return known
            self._queues.append(queues)
            return queues


def forecast_store(
    store: Store, rules: BrokerRules, options: ForecastOptions | None = None, shared: SharedStarts | None = None
) -> Forecast:
    """Forecast a broker's next start. The store is read, and nothing in it changes.

    Args:
        shared: with forecasts of other versions for the same store; what they count need not be counted again.

    Raises:
        UnsupportedError: the store is of a kind that is not simulated.
        WriteError: the temporary file for what the broker would write is full.
    """
    options = options or ForecastOptions()
    shared = SharedStarts() if shared is None else shared
    configs = shared.configs(store)
    with Simulation(store, rules, options, plain=shared.plain, reads=shared.reads, configs=configs) as simulation:
        simulation.run()
        return forecast_of(simulation, shared)


def scan_begin(store: Store, rules: BrokerRules, options: ForecastOptions) -> int | None:
    """Physical offset of the file in which a broker's recovery begins to read the log at its next start.

    Where a queue keeps it from loading, the file in which it would begin without that queue.

    Returns:
        None where the store is of a kind whose start is not simulated, or has no log, or one of unknown file size.
    """
    with Simulation(store, rules, options) as simulation:
        try:
            return simulation.find_scan_begin()
        except (UnsupportedError, UnknownSizeError):
            return None


def forecast_of(simulation: Simulation, shared: SharedStarts | None = None) -> Forecast:
    """Forecast from a simulation that has run."""
    store, scanned, options = simulation.store, simulation.scanned, simulation.options
    stops_at = StopsAt(scanned.end, scanned.finding) if scanned is not None else None
    if simulation.fails_at is not None:
        stops_at = StopsAt(simulation.fails_at, "commitlog.bad-size")
    log = store.loadable_log
    is_whole = bool(log) and log[-1].end >= simulation.queues_reach
    is_whole = is_whole and scanned is not None and scanned.end > log[0].start
    is_whole &= all(segment.size == store.commitlog_file_size for segment in log)
    is_whole &= all(before.end == segment.start for before, segment in pairwise(log))
    misplaces_new_messages = False
    if scanned is not None and not simulation.crashed:
        # A normal start may end the log in one of the files of zeros after its end.
        tail = log_tail(store, least=FILES_FROM_END)
        if tail is not None and tail.misleads(simulation.rules):
            misplaces_new_messages = scanned.end >= tail.files[0].start
    forecast = Forecast(
        broker_version=simulation.rules.version,
        starts=simulation.why_not is None,
        why_not=simulation.why_not,
        mode="abnormal" if simulation.crashed else "normal",
        scan_start_offset=scanned.begin if scanned else None,
        log_end_offset=simulation.log.end if simulation.log and scanned else None,
        stops_at=stops_at,
        deleted_files=tuple(path for path in simulation.overlay.unlinked() if path not in simulation.index.dropped),
        dropped_index_files=tuple(simulation.index.dropped),
        duplicate_index_entries=simulation.index.duplicate_entries,
        not_simulated=tuple(simulation.not_simulated),
        messages_without_log=0 if is_whole else messages_without_log(store, log),  # which reads the queues
        assumptions=(*size_assumptions(store), *topic_assumptions(simulation.topics_config, store, simulation.rules)),
        misplaces_new_messages=misplaces_new_messages,
    )
    if simulation.why_not is not None or simulation.log is None or scanned is None:
        return forecast

    count_from, whole = options.count_from, options.count_whole_log
    if whole is None:
        whole = sum(segment.entry.allocated_bytes for segment in log) <= COUNT_WHOLE_LOG_UP_TO
    if count_from is None:
        count_from = 0 if whole else scanned.begin
    segments = tuple(segment for segment in log if segment.start >= count_from)
    left = _what_is_left(simulation) if shared is not None else None
    if shared is None or left is None:
        losses = LossCounter(simulation).count(segments)
    else:
        key = tuple(segment.path for segment in segments), left
        losses = shared.losses(key, lambda: LossCounter(simulation, shared.clean, left).count(segments))
    queues = []
    for name, state in sorted(simulation.queues.items()) if options.lists_queues else ():
        following = simulation.next_queue_offsets.get(name, 0)
        known = max(state.known_maximum, losses.highest.get(name, -1) + 1)
        bounds = state.bounds(simulation.log.minimum)
        queues.append(QueueForecast(*name, *bounds, following, following < known, state.physical_end))
    return replace(
        forecast,
        lost=Lost(losses.messages, losses.bytes, dict(sorted(losses.by_topic.items()))),
        deleted_topics=dict(sorted(losses.removed.items())),
        unnoticed_damage=tuple(losses.damage),
        unnoticed_damage_count=losses.damage_count,
        queues=tuple(queues) if shared is None else shared.queues(tuple(queues)),
        filler_units=sum(queue.filler_units() for queue in simulation.queues.values()),
        unindexed_messages=losses.unindexed,
        counted_from=segments[0].start if segments else None,
    )


def _what_is_left(simulation: Simulation) -> Hashable:
    """All that losses of a file of the log depend on, for one store and a store that a plan makes of it.

    None where the start wrote into a queue, whose content counts too.
    """
    if simulation.sides.database is not None:
        return None
    log, options, overlay, view = simulation.log, simulation.options, simulation.overlay, simulation.store.view
    assert log is not None
    queues, has_part = blake2b(digest_size=32), False  # a store may have a million of them
    for name, state in sorted(simulation.queues.items()):
        assert isinstance(state, QueueState), "there is no database"
        files = tuple((segment.path, segment.start, segment.size) for segment in state.loaded.segments)
        paths = [path for path, _, _ in files]
        if any(overlay.change_of(path) is not None for path in paths):
            return None
        # What tells the content that a plan gives each file; None where the plan leaves it as it is.
        planned: tuple[Hashable, ...] = (None,) * len(paths)
        if isinstance(view, Overlay):
            contents = zip(paths, view.laid_over(paths), strict=True)
            planned = tuple(
                (id(simulation.store), path) if content is UNKNOWN_CONTENT else content for path, content in contents
            )
        one = name, state.is_batch, state.minimum, state.loaded.end, files, planned
        queues.update(f"{one!r}\n".encode())
        has_part |= any(length % state.loaded.kind.size for length in state.loaded.lengths())
    settings, covered = simulation.settings, simulation.index.covered
    return (
        tuple(segment.path for segment in log.segments),
        log.end,
        queues.digest(),
        (tuple(covered.starts), tuple(covered.ends)) if options.enters_index else None,
        settings.batch_topics if settings.rules.batch_queues else frozenset(),
        settings.rules.limits_before_skipping if simulation.store.extensions else None,
        settings.rules.part_of_unit_fails_pulls if has_part else None,
        tuple(options.delays_ms),
        options.record_crc,
        options.damage_max,
        simulation.whole_topics,
        simulation.tells_generations,
    )
