"""What a store holds that broker versions treat in different ways: how many of each, and where the first one is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.changes import Feature
from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.checkpoint import FIELDS_SIZE, parse_checkpoint
from rmqtool.formats.pop import REVIVE_TOPIC
from rmqtool.formats.properties import TIMER_TOPIC
from rmqtool.formats.system_flag import HOSTS_V6
from rmqtool.scan.columns import MULTI_DISPATCH
from rmqtool.scan.log import ScanOptions, carries_record_crc, plan_segments, scan_log
from rmqtool.scan.rules import Verdict
from rmqtool.sides.timer.waiting import waiting_messages
from rmqtool.sides.unread import ReadBy, read_by_after
from rmqtool.store.config.config_json import TOPICS, compacted_topics, topics
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
    """How often a store has something.

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

    @property
    def is_there(self) -> bool:
        """Whether the store has it, as far as that is known."""
        return self.count is None or self.count > 0


NOTHING: Final = FeatureCount(0)


@dataclass(frozen=True)
class FeatureSearch:
    """Where to look: a store, the versions in question, and the files of the log that are counted over."""

    store: Store
    before: BrokerRules
    after: BrokerRules
    segments: tuple[Segment, ...]


def count_features(
    search: FeatureSearch, features: Collection[Feature], scan: ScanOptions
) -> dict[Feature, FeatureCount]:
    """Count what the store has of each feature; the log is read only where one of them lies in its records.

    Raises:
        UnreadableError: a file of the log cannot be read.
    """
    in_log = {feature: is_one for feature, is_one in _IN_RECORDS.items() if feature in features}
    counts = dict(_in_log(search, in_log, scan)) if in_log else {}
    return {feature: counts[feature] if feature in counts else _ELSEWHERE[feature](search) for feature in features}


def _in_log(
    search: FeatureSearch, marks: Mapping[Feature, Callable[[Rows], NDArray[np.bool_]]], scan: ScanOptions
) -> Iterator[tuple[Feature, FeatureCount]]:
    counts = dict.fromkeys(marks, NOTHING)
    by_start = {segment.start: segment for segment in search.segments}
    with closing(plan_segments(search.store.view.open, by_start.values())) as plan:
        for batch in scan_log(plan, scan) if by_start else ():
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
    yield from counts.items()


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


def _record_crcs(search: FeatureSearch) -> FeatureCount:
    """Files whose first messages carry a checksum; who writes one writes it into every record."""
    with closing(plan_segments(search.store.view.open, search.segments)) as plan:
        paths = {segment.start: segment.path for segment in search.segments}
        having = [split.physical_offset for split in plan.splits if carries_record_crc((split,))]
    return FeatureCount(len(having), paths[having[0]], having[0]) if having else NOTHING


def _batch_queues(search: FeatureSearch) -> FeatureCount:
    queues = sorted(queue.directory for queue in search.store.batch_queues.values())
    return FeatureCount(len(queues), queues[0]) if queues else NOTHING


def _rocksdb_queues(search: FeatureSearch) -> FeatureCount:
    entries = search.store.files.get(FileKind.CONSUMEQUEUE_ROCKSDB, ())
    directories = sorted({entry.path.partition("/")[0] for entry in entries})
    known = search.after.rocksdb_queue_directories if search.after.rocksdb_queues else ()
    unread = [directory for directory in directories if directory not in known]
    if not unread:
        return NOTHING
    database = search.store.queue_database
    if database is None:
        return FeatureCount(None, unread[0], problem="queues in RocksDB, beside those in files")
    if not database.is_read:
        return FeatureCount(None, unread[0], problem=database.reason, read_by=read_by_after(database.failure))
    return FeatureCount(len(database.names), unread[0])


def _timers(search: FeatureSearch) -> FeatureCount:
    store = search.store
    if not (store.files.get(FileKind.TIMER_WHEEL) or (TIMER_TOPIC, 0) in store.queues):
        return NOTHING
    try:
        with open_reader(store, search.before) as reader:
            if (TIMER_TOPIC, 0) not in reader.queues():
                return NOTHING
            waiting = waiting_messages(reader, reader.queue(TIMER_TOPIC, 0)).messages
    except (UnsupportedError, UnreadableError) as error:
        return FeatureCount(None, problem=str(error))
    if not waiting:
        return NOTHING
    at = min(message.physical_offset for message in waiting)
    return FeatureCount(len(waiting), _file_of(store, at), at)


def _compacted_topics(search: FeatureSearch) -> FeatureCount:
    store = search.store
    files = store.files.get(FileKind.COMPACTION_LOG, ())
    names = {entry.path.split("/")[2] for entry in files}
    names |= compacted_topics(topics(read_config(store.view, TOPICS)))
    first = min((entry.path for entry in files), default=TOPICS)
    problem = "whether compaction/ has messages that the commit log no longer has" if files else None
    return FeatureCount(len(names), first, problem=problem) if names else NOTHING


def _revive_topics(search: FeatureSearch) -> FeatureCount:
    store = search.store
    directories = {
        queue.topic: queue.directory for queue in store.queues.values() if queue.topic.startswith(REVIVE_TOPIC)
    }
    problem = "which popped messages were not acknowledged"
    return FeatureCount(len(directories), min(directories.values()), problem=problem) if directories else NOTHING


def _long_topics(search: FeatureSearch) -> FeatureCount:
    limit = search.after.topic_length_max
    if limit is None:
        return NOTHING
    directories = {
        topic: queue.directory
        for queues in (search.store.queues, search.store.batch_queues)
        for (topic, _), queue in queues.items()
        if len(topic.encode(errors="replace")) > limit
    }
    return FeatureCount(len(directories), min(directories.values())) if directories else NOTHING


def _checkpoint_fields(search: FeatureSearch) -> FeatureCount:
    """Fields that the later broker does not know."""
    path, values = _checkpoint(search.store)
    count = sum(value != 0 for value in values[search.after.checkpoint_field_count :])
    return FeatureCount(count, path) if count else NOTHING


def _checkpoint_gaps(search: FeatureSearch) -> FeatureCount:
    """Fields by which the later broker recovers after a crash, and which the earlier one did not write."""
    path, values = _checkpoint(search.store)
    known = slice(search.before.checkpoint_field_count, search.after.checkpoint_field_count)
    count = sum(value == 0 for value in values[known]) if search.store.has_abort else 0
    return FeatureCount(count, path) if count else NOTHING


def _checkpoint(store: Store) -> tuple[str | None, tuple[int, ...]]:
    entry = store.first(FileKind.CHECKPOINT)
    if entry is None or not entry.is_file:
        return None, ()
    with closing(store.view.open(entry.path)) as source:
        return entry.path, tuple(vars(parse_checkpoint(read_range(source, 0, FIELDS_SIZE))).values())


def _side_store(search: FeatureSearch) -> FeatureCount:
    entries = search.store.files.get(FileKind.ROCKSDB, ())
    return FeatureCount(1, "rocksdbstore") if is_rocksdb_used(entries) else NOTHING


def _config_databases(search: FeatureSearch) -> FeatureCount:
    databases: dict[str, list[Entry]] = {}
    for entry in search.store.files.get(FileKind.CONFIG_ROCKSDB, ()):
        databases.setdefault(entry.path.rpartition("/")[0], []).append(entry)
    used = sorted(path for path, entries in databases.items() if is_rocksdb_used(entries))
    return FeatureCount(len(used), used[0]) if used else NOTHING


def _dledger_files(search: FeatureSearch) -> FeatureCount:
    entries = search.store.files.get(FileKind.DLEDGER, ())
    return FeatureCount(len(entries), min(entry.path for entry in entries)) if entries else NOTHING


def _log_directories(search: FeatureSearch) -> FeatureCount:
    directories = log_directories(search.store)
    return FeatureCount(len(directories), directories[0]) if len(directories) > 1 else NOTHING


def _log_files(search: FeatureSearch) -> FeatureCount:
    files, limit = search.store.loadable_log, search.after.recover_files_max
    is_beyond = limit is not None and len(files) > limit
    return FeatureCount(len(files), files[0].path, files[0].start) if is_beyond else NOTHING


def _file_of(store: Store, physical_offset: int) -> str | None:
    holding = (segment.path for segment in store.loadable_log if segment.start <= physical_offset < segment.end)
    return next(holding, None)


_ELSEWHERE: Final[Mapping[Feature, Callable[[FeatureSearch], FeatureCount]]] = MappingProxyType(
    {
        Feature.RECORD_CRCS: _record_crcs,
        Feature.BATCH_QUEUES: _batch_queues,
        Feature.ROCKSDB_QUEUES: _rocksdb_queues,
        Feature.ROCKSDB_SIDE_STORE: _side_store,
        Feature.TIMERS: _timers,
        Feature.REVIVE_TOPICS: _revive_topics,
        Feature.COMPACTED_TOPICS: _compacted_topics,
        Feature.DLEDGER_FILES: _dledger_files,
        Feature.CHECKPOINT_FIELDS: _checkpoint_fields,
        Feature.CHECKPOINT_GAPS: _checkpoint_gaps,
        Feature.ROCKSDB_CONFIG: _config_databases,
        Feature.LOG_DIRECTORIES: _log_directories,
        Feature.LOG_FILES: _log_files,
        Feature.LONG_TOPICS: _long_topics,
    }
)
