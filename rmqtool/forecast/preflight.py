"""Changes when a store goes from one broker version to another: reasons, each with its cost.

What a reason costs is the difference between two forecasts: the start of the later broker, and the same start if it
were like the earlier broker in this alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.reading.version_evidence import SIZES, renamed_sizes
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.changes import VERSION_CHANGES, ChangeHarm, Feature, VersionChange
from rmqtool.engine.rules.settings import read_settings
from rmqtool.engine.rules.versions import NEWEST, rules_for
from rmqtool.engine.segments.open_files import ReadCache
from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.forecast.forecast import SharedStarts, forecast_store
from rmqtool.forecast.options import COUNT_WHOLE_LOG_UP_TO, ForecastOptions
from rmqtool.forecast.result import Forecast
from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.checkpoint import FIELDS_SIZE, parse_checkpoint
from rmqtool.formats.pop import REVIVE_TOPIC
from rmqtool.formats.properties import TIMER_TOPIC
from rmqtool.formats.system_flag import HOSTS_V6
from rmqtool.scan.columns import MULTI_DISPATCH
from rmqtool.scan.log import ScanOptions, carries_record_crc, open_log
from rmqtool.scan.rules import Verdict
from rmqtool.sides.timer.waiting import waiting_messages
from rmqtool.sides.unread import ReadBy, UnreadFiles, read_by_after
from rmqtool.store.config.broker_conf import BrokerConf
from rmqtool.store.config.config_json import compacted_topics, topics
from rmqtool.store.config.config_kinds import TOPICS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.databases.rocksdb_files import is_rocksdb_used
from rmqtool.store.directory import Segment, Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.location import log_directories
from rmqtool.store.source import read_range
from rmqtool.store.view import Entry

Rows = NDArray[np.void]


@dataclass(frozen=True)
class FeatureCount:
    """Number of occurrences of a feature in a store.

    Attributes:
        count: None where that could not be counted.
        file: of the first one; None where it is not in one file.
        physical_offset: of the first one, where it is a record.
        problem: what could not be counted or looked at.
        read_by: what would look at it.
    """

    count: int | None
    file: str | None = None
    physical_offset: int | None = None
    problem: str | None = None
    read_by: ReadBy = ReadBy.BROKER


NOTHING: Final = FeatureCount(0)


_IN_RECORDS: Final[Mapping[Feature, Callable[[Rows], NDArray[np.bool_]]]] = MappingProxyType(
    {
        Feature.V2_RECORDS: lambda rows: rows["magic"] == commitlog.MAGIC_V2,
        Feature.IPV6_RECORDS: lambda rows: (rows["sys_flag"] & HOSTS_V6) != 0,
        Feature.INNER_BATCHES: lambda rows: (rows["sys_flag"] & system_flag.INNER_BATCH) != 0,
        Feature.OTHER_COMPRESSION: lambda rows: (
            ((rows["sys_flag"] & system_flag.COMPRESSED) != 0)
            & np.isin(rows["sys_flag"] & system_flag.COMPRESSION_MASK, (0x100, 0x200))
        ),
        Feature.MULTI_DISPATCHED: lambda rows: (rows["features"] & MULTI_DISPATCH) != 0,
        Feature.TAGGED_MESSAGES: lambda rows: rows["tags_length"] > 0,
    }
)


@dataclass(frozen=True)
class ChangeReason:
    """One reason why the start of the later broker differs.

    Attributes:
        feature: what one of the counted things is called; None where nothing is counted.
        count: None where that could not be counted.
        amount: both as a part of a sentence.
        file, physical_offset: of the first one.
        harm: what it means beside the losses: none, undelivered, not-served or misread.
        why: what the later broker does, as a sentence.
        lost_messages: that this alone loses.
        prevents_start: whether the broker would start without this.
        unindexed_messages: that cannot be found by key because of this alone.
        way_around: what to do, as a sentence; `command` is typed after `rmqtool`.
    """

    id: str
    feature: str | None
    count: int | None
    amount: str | None
    file: str | None
    physical_offset: int | None
    harm: str
    why: str
    lost_messages: int
    prevents_start: bool
    unindexed_messages: int
    way_around: str
    command: str | None

    @property
    def sentence(self) -> str:
        """What there is, and how the later broker handles it, as a sentence."""
        return self.why if self.amount is None else f"{self.amount}: {self.why}"

    @property
    def is_harmless(self) -> bool:
        """True if no message is affected, as far as that was counted."""
        return self.harm == ChangeHarm.MEASURED.value and not (self.lost_messages or self.prevents_start)


@dataclass(frozen=True)
class Preflight:
    """The reasons, those that cost most first.

    Attributes:
        not_looked_at: what could not be counted.
    """

    before: str
    after: str
    reasons: tuple[ChangeReason, ...]
    not_looked_at: tuple[UnreadFiles, ...] = ()

    @property
    def harmful(self) -> tuple[ChangeReason, ...]:
        """The reasons that affect messages besides the losses in the forecast."""
        return tuple(reason for reason in self.reasons if reason.harm != ChangeHarm.MEASURED.value)

    def changes_json(self) -> list[dict[str, Any]]:
        rows = []
        for reason in self.reasons:
            row = dict(vars(reason))
            file, physical_offset = row.pop("file"), row.pop("physical_offset")
            row["first"] = None if file is None else {"file": file, "physical_offset": physical_offset}
            rows.append(row)
        return rows


def preflight(
    store: Store,
    before: BrokerRules,
    after: BrokerRules,
    options: ForecastOptions,
    forecasts: Mapping[str, Forecast],
    conf: BrokerConf | None = None,
) -> Preflight:
    """Find the changes, and their reasons.

    Args:
        store: as the later broker looks at it.
        before, after: the rules of the broker that the store comes from, and of the one that is to start on it.
        forecasts: of the two versions, by version, as far as they could be made.
        conf: the broker's properties file, as the later one reads it.
    """
    # The files of the log over which the forecasts count losses, and of a small log all.
    segments = store.loadable_log
    if sum(segment.entry.allocated_bytes for segment in segments) > COUNT_WHOLE_LOG_UP_TO:
        begins = [forecast.counted_from for forecast in forecasts.values() if forecast.counted_from is not None]
        segments = tuple(segment for segment in segments if segment.start >= min(begins, default=0))
    concerned = [change for change in VERSION_CHANGES if change.concerns(before, after)]
    scan = ScanOptions(options.delays_ms, cache=options.cache)
    features = {change.feature for change in concerned if change.feature is not None}
    # The log is read only where one of them is in its records.
    marks = {feature: is_one for feature, is_one in _IN_RECORDS.items() if feature in features}
    in_log = _in_log(store, segments, marks, scan) if marks else {}
    counts = {
        feature: in_log[feature] if feature in in_log else _outside_records(store, segments, before, after, feature)
        for feature in features
    }
    starts = _Starts(store, before, after, options, forecasts.get(after.version))
    reasons = [] if conf is None else list(starts.reasons_of_settings(conf))
    for change in concerned:
        count = counts[change.feature] if change.feature is not None else None
        if count is not None and count.count == 0:
            continue
        reason = starts.reason(change, count or NOTHING)
        if count is not None or reason.lost_messages or reason.prevents_start:
            reasons.append(reason)
    earlier, later = forecasts.get(before.version), forecasts.get(after.version)
    is_worse = False
    if earlier is not None and later is not None and earlier.starts:
        is_worse = not later.starts or _lost(later) > _lost(earlier)
    if is_worse and not any(reason.lost_messages or reason.prevents_start for reason in reasons):
        text = f"{after.version} differs in several things that lose messages only together"
        command = f"recover --broker-version {after.version}"
        reasons.append(
            ChangeReason(
                "start.several-differences", None, None, None, None, None, ChangeHarm.MEASURED.value, text, 0, False, 0,
                "Repair the store before the change.", command,
            )
        )  # fmt: skip
    reasons.sort(key=lambda reason: (not reason.prevents_start, -reason.lost_messages, reason.is_harmless))
    problems = tuple(
        UnreadFiles(count.file or "commitlog", feature.noun, count.problem, count.read_by)
        for feature, count in counts.items()
        if count.problem is not None
    )
    return Preflight(before.version, after.version, tuple(reasons), problems)


@dataclass(frozen=True)
class _Starts:
    """Starts of the later broker as it is, and as it would be if it were like others in one thing."""

    store: Store
    before: BrokerRules
    after: BrokerRules
    options: ForecastOptions
    start: Forecast | None
    reads: ReadCache = field(default_factory=ReadCache)

    def reason(self, change: VersionChange, count: FeatureCount) -> ChangeReason:
        lost, prevents, unindexed = self._cost(self._without(change))
        command = change.command.format(to=self.after.version) if change.command is not None else None
        feature = change.feature
        return ChangeReason(
            change.id,
            feature.noun if feature is not None else None,
            count.count if feature is not None else None,
            feature.counted(count.count) if feature is not None else None,
            count.file,
            count.physical_offset,
            change.harm.value,
            change.text.format(to=self.after.version),
            lost,
            prevents,
            unindexed,
            change.way_around,
            command,
        )

    def reasons_of_settings(self, conf: BrokerConf) -> Iterator[ChangeReason]:
        """Settings that the later broker reads differently, or not at all, in the earlier one's properties file."""
        was, settings = conf.read_as(read_settings(self.before)).settings(), conf.settings()
        fields = [
            name
            for name in SIZES
            if None is not getattr(was, name) != getattr(settings, name) == getattr(self.store.settings, name)
        ]
        if not fields:
            return
        sizes = {name: getattr(was, name) for name in fields}
        like_before = replace(self.store, settings=replace(self.store.settings, **sizes))
        unread = renamed_sizes(fields, conf, self.after)
        lost, prevents, unindexed = self._cost(forecast_store(like_before, self.after, self.options))
        yield ChangeReason(
            "settings.other-sizes", None, None, None, conf.path, None, ChangeHarm.MEASURED.value, unread.why, lost,
            prevents, unindexed, f"{unread.way_around[0].upper()}{unread.way_around[1:]}.", None,
        )  # fmt: skip

    def _cost(self, without: Forecast | None) -> tuple[int, bool, int]:
        """Lost messages, True if the start is prevented, and messages not indexed, only because of one difference."""
        start = self.start
        if start is None or without is None:
            return 0, False, 0
        if not (start.starts and without.starts):
            return 0, without.starts and not start.starts, 0
        unindexed = start.unindexed_messages - without.unindexed_messages
        return max(0, _lost(start) - _lost(without)), False, max(0, unindexed)

    def _without(self, change: VersionChange) -> Forecast | None:
        """The start of a broker that differs in this alone; None where the start as it is costs nothing."""
        start = self.start
        if start is None or (start.starts and not _lost(start) and not start.unindexed_messages):
            return None
        like = {name: getattr(self.before, name) for name in change.rules}
        if all(getattr(self.after, name) == value for name, value in like.items()):
            like = {name: getattr(rules_for(NEWEST), name) for name in change.rules}
        # What is remembered of a start goes by the version's name, which is not the same broker's any more.
        name = f"{self.after.version} without {change.id}"
        rules = replace(self.after, version=name, **like)
        try:
            return forecast_store(self.store, rules, replace(self.options, cache=None), SharedStarts(self.reads))
        except UnsupportedError:
            return None


def _lost(forecast: Forecast) -> int:
    return forecast.lost.messages + forecast.messages_without_log


def _in_log(
    store: Store,
    segments: Sequence[Segment],
    marks: Mapping[Feature, Callable[[Rows], NDArray[np.bool_]]],
    scan: ScanOptions,
) -> dict[Feature, FeatureCount]:
    counts = dict.fromkeys(marks, NOTHING)
    by_start = {segment.start: segment for segment in segments}
    with open_log(store.view.open, by_start.values(), scan) as table:
        for batch in table.batches():
            rows: Any = batch.as_array()
            rows = rows[(rows["verdict"] == Verdict.GOOD) & (rows["magic"] != commitlog.MAGIC_BLANK)]
            for feature, is_one in marks.items():
                numbers = np.flatnonzero(is_one(rows))
                if numbers.size:
                    at = int(rows["physical_offset"][numbers[0]])
                    path = by_start[batch.split.physical_offset].path
                    known = counts[feature]
                    counts[feature] = (
                        replace(known, count=(known.count or 0) + numbers.size)
                        if known.count
                        else FeatureCount(int(numbers.size), path, at)
                    )
    return counts


def _outside_records(
    store: Store, segments: Sequence[Segment], before: BrokerRules, after: BrokerRules, feature: Feature
) -> FeatureCount:
    match feature:
        case Feature.RECORD_CRCS:
            # Files whose first messages carry a checksum: who writes one writes it into every record.
            with open_log(store.view.open, segments) as table:
                paths = {segment.start: segment.path for segment in segments}
                having = [split.physical_offset for split in table.splits if carries_record_crc((split,))]
            return FeatureCount(len(having), paths[having[0]], having[0]) if having else NOTHING

        case Feature.BATCH_QUEUES:
            return _first_of(queue.directory for queue in store.batch_queues.values())

        case Feature.ROCKSDB_QUEUES:
            entries = store.files.get(FileKind.CONSUMEQUEUE_ROCKSDB, ())
            known = after.rocksdb_queue_directories if after.rocksdb_queues else ()
            unread = sorted({entry.path.partition("/")[0] for entry in entries}.difference(known))
            if not unread:
                return NOTHING
            database = store.queue_database
            if database is None:
                return FeatureCount(None, unread[0], problem="queues in RocksDB, beside those in files")
            if not database.is_read:
                return FeatureCount(None, unread[0], problem=database.reason, read_by=read_by_after(database.failure))
            return FeatureCount(len(database.names), unread[0])

        case Feature.ROCKSDB_SIDE_STORE:
            is_used = is_rocksdb_used(store.files.get(FileKind.ROCKSDB, ()))
            return FeatureCount(1, "rocksdbstore") if is_used else NOTHING

        case Feature.TIMERS:
            if not (store.files.get(FileKind.TIMER_WHEEL) or (TIMER_TOPIC, 0) in store.queues):
                return NOTHING
            try:
                with open_reader(store, before) as reader:
                    if (TIMER_TOPIC, 0) not in reader.queues():
                        return NOTHING
                    waiting = waiting_messages(reader, reader.queue(TIMER_TOPIC, 0)).messages
            except (UnsupportedError, UnreadableError) as error:
                return FeatureCount(None, problem=str(error))
            if not waiting:
                return NOTHING
            first = min(message.physical_offset for message in waiting)
            holding = (segment.path for segment in store.loadable_log if segment.start <= first < segment.end)
            return FeatureCount(len(waiting), next(holding, None), first)

        case Feature.REVIVE_TOPICS:
            directories = {
                queue.topic: queue.directory for queue in store.queues.values() if queue.topic.startswith(REVIVE_TOPIC)
            }
            return _first_of(directories.values(), problem="which popped messages were not acknowledged")

        case Feature.COMPACTED_TOPICS:
            files = store.files.get(FileKind.COMPACTION_LOG, ())
            names = {entry.path.split("/")[2] for entry in files}
            names |= compacted_topics(topics(read_config(store.view, TOPICS)))
            path = min((entry.path for entry in files), default=TOPICS)
            problem = "whether compaction/ has messages that the commit log no longer has" if files else None
            return FeatureCount(len(names), path, problem=problem) if names else NOTHING

        case Feature.DLEDGER_FILES:
            return _first_of(entry.path for entry in store.files.get(FileKind.DLEDGER, ()))

        case Feature.CHECKPOINT_FIELDS:  # those that the later broker does not know
            checkpoint, values = _checkpoint(store)
            count = sum(value != 0 for value in values[after.checkpoint_field_count :])
            return FeatureCount(count, checkpoint) if count else NOTHING

        case Feature.CHECKPOINT_GAPS:
            # Fields by which the later broker recovers after a crash, and which the earlier one did not write.
            checkpoint, values = _checkpoint(store)
            known_fields = slice(before.checkpoint_field_count, after.checkpoint_field_count)
            count = sum(value == 0 for value in values[known_fields]) if store.has_abort else 0
            return FeatureCount(count, checkpoint) if count else NOTHING

        case Feature.ROCKSDB_CONFIG:
            databases: dict[str, list[Entry]] = {}
            for entry in store.files.get(FileKind.CONFIG_ROCKSDB, ()):
                databases.setdefault(entry.path.rpartition("/")[0], []).append(entry)
            return _first_of(path for path, entries in databases.items() if is_rocksdb_used(entries))

        case Feature.LOG_DIRECTORIES:
            roots = log_directories(store)
            return FeatureCount(len(roots), roots[0]) if len(roots) > 1 else NOTHING

        case Feature.LOG_FILES:
            log, limit = store.loadable_log, after.recover_files_max
            is_beyond = limit is not None and len(log) > limit
            return FeatureCount(len(log), log[0].path, log[0].start) if is_beyond else NOTHING

        case Feature.LONG_TOPICS:
            limit = after.topic_length_max
            directories = {
                topic: queue.directory
                for queues in (store.queues, store.batch_queues)
                for (topic, _), queue in queues.items()
                if limit is not None and len(topic.encode(errors="replace")) > limit
            }
            return _first_of(directories.values())
    raise KeyError(feature)


def _first_of(paths: Iterable[str], problem: str | None = None) -> FeatureCount:
    in_order = sorted(paths)
    return FeatureCount(len(in_order), in_order[0], problem=problem) if in_order else NOTHING


def _checkpoint(store: Store) -> tuple[str | None, tuple[int, ...]]:
    entry = store.first(FileKind.CHECKPOINT)
    if entry is None or not entry.is_file:
        return None, ()
    with closing(store.view.open(entry.path)) as source:
        return entry.path, tuple(vars(parse_checkpoint(read_range(source, 0, FIELDS_SIZE))).values())
