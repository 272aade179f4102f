"""Result of a build, and the steps that bring it into the store: files that differ, and those nobody needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from rmqtool.engine.dispatch.derived_writer import BATCH_QUEUES, EXTENSIONS, QUEUES
from rmqtool.engine.dispatch.index_writer import DIRECTORY as INDEX
from rmqtool.engine.dispatch.index_writer import number_behind
from rmqtool.engine.queues.kinds import shown_topics
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.topic_names import is_deleted, may_be_deleted
from rmqtool.errors import UnreadableError
from rmqtool.formats.checkpoint import (
    FIELDS_SIZE,
    FILE_SIZE,
    Checkpoint,
    build_checkpoint,
    impossible_fields,
    parse_checkpoint,
)
from rmqtool.formats.tags import parse_delay_levels
from rmqtool.quantities import OFFSETS_END
from rmqtool.repair.derived.log_pass import PART_BYTES
from rmqtool.repair.machine.digest import BuiltFile, digest_of, digest_of_content
from rmqtool.repair.machine.disk import within_range
from rmqtool.repair.machine.plan import ABORT_NAME
from rmqtool.repair.machine.steps import Create, Replace, Step, create_file, remove_file, replace_file
from rmqtool.scan.row_cache import RowCache
from rmqtool.store.config.config_json import compacted_topics, topics, whole_topics
from rmqtool.store.config.config_kinds import TOPICS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.databases.rocksdb import RocksFailure
from rmqtool.store.databases.rocksdb_files import is_rocksdb_used
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.source import Literal, read_range
from rmqtool.store.view import StoreView


@dataclass(frozen=True)
class BuildOptions:
    """Build options that the store's files do not show.

    Attributes:
        delays_ms: of the broker's delay levels.
        multi_dispatch, lmq: the broker's `enableMultiDispatch` and `enableLmq`.
        extension: whether queues have extensions; None looks at the store.
        record_crc: whether the broker is set to write whole-record CRCs; else the log's records tell.
        compiled: which reader scans; None leaves it to the size of the log.
        threads: that read the log; whatever their number, the same is built.
        part_bytes: of a file of the log that a thread reads at a time.
        cache: what is known of the log already, and is told what a build reads.
        keeps_keys: whether the cache is told what records put into the index, for a later check of it.
        shows_tombstones: leave the units of tombstones as any others, for consumers to see that messages are lost.
        restored: deleted topics whose messages are entered too; None: all of them.
    """

    delays_ms: tuple[int, ...] = field(default_factory=parse_delay_levels)
    multi_dispatch: bool = True
    lmq: bool = True
    extension: bool | None = None
    record_crc: bool = False
    compiled: bool | None = None
    threads: int = 2
    part_bytes: int = PART_BYTES
    cache: RowCache | None = field(default=None, compare=False, repr=False)
    keeps_keys: bool = True
    shows_tombstones: bool = False
    restored: frozenset[str] | None = frozenset()


@dataclass(frozen=True)
class RemovedTopics:
    """Up to where in the log the messages of topics were removed, because the topics were deleted.

    Attributes:
        whole: all topics that are configured; None where no whole configuration tells.
        shown: the topics of which nobody can doubt that they are there; None: no topic is in doubt.
        restored: see `BuildOptions`.
        again: where topics begin again whose names are used again.
    """

    whole: frozenset[str] | None = None
    restored: frozenset[str] | None = frozenset()
    again: Mapping[str, int] = field(default_factory=dict)
    shown: frozenset[str] | None = None

    @classmethod
    def of(cls, store: Store, restored: frozenset[str] | None, incomplete: frozenset[str]) -> Self:
        """Look at a store.

        Args:
            incomplete: topics of which a check has told that queues lack messages.
        """
        shown = shown_topics(store)
        whole = whole_topics(read_config(store.view, TOPICS))
        return cls(whole, restored, shown=None if shown is None else shown | incomplete)

    def end(self, topic: str) -> int:
        """Physical offset before which the messages of a topic were removed; 0 where none was."""
        if topic in self.again:
            return self.again[topic]
        is_restored = self.restored is None or topic in self.restored
        is_gone = is_deleted(topic, self.whole) or may_be_deleted(topic, self.shown)
        return OFFSETS_END if is_gone and not is_restored else 0


@dataclass(frozen=True)
class BuildRequest:
    """Parts to build.

    Attributes:
        queue: tells by (topic, queue id) which queues; None builds no queue at all.
        log_end: records from here on do not count; None reads to the end of the log.
        earlier: where files of the log begin that lie before the store's, if it is a window of a larger one: what
            queues and index have there stays as it is, and must reach up to the first record here.
        topics: of the wanted queues, where these are some of all.
    """

    queue: Callable[[str, int], bool] | None
    index: bool
    log_end: int | None = None
    earlier: tuple[int, ...] = ()
    topics: frozenset[str] = frozenset()


_NS_PER_MS: Final = 1_000_000
NAMED_MAX: Final = 5
"""Queues that a note names."""


@dataclass
class Generations:
    """Start of a topic's last generation, as its queues show it.

    All that was removed lies in the log before all that came after it. So a last record of a queue that alone steps
    back is new too if it lies behind the last removed one. The first record of a queue may be of either. Where no queue
    begins again with two records, two queues do with one each: the header of one alone may be wrong.

    Attributes:
        again: the first place where a queue begins again.
        old_end: the last record before the place where its queue begins again.
        starts: places of records that step back, alone or to where their queue had none.
        zeros: places of records that step back to queue offset 0, and of the next ones that follow.
    """

    again: int = OFFSETS_END
    old_end: int = -1
    starts: set[int] = field(default_factory=set)
    zeros: set[int] = field(default_factory=set)

    def add(self, other: Generations) -> None:
        self.again, self.old_end = min(self.again, other.again), max(self.old_end, other.old_end)
        self.starts |= other.starts
        self.zeros |= other.zeros

    @property
    def begin(self) -> int | None:
        """Physical offset of the first record of the last generation; None where there is but one."""
        if self.again == OFFSETS_END:
            return min(self.zeros) if len(self.zeros) > 1 else None
        return min((start for start in self.starts if self.old_end < start < self.again), default=self.again)


@dataclass
class BuiltQueues:
    """Result for the queues.

    Attributes:
        repeated: records that found their place in a queue taken.
        superseded: records whose places newer ones of their queue have.
        generations: what tells where topics begin again, by topic.
        gap_units: units for messages that the log does not have.
        displaced: records at another queue offset than they say, by queue.
        file_times_ms: store time of the last record in a queue file, by path.
        refused: why a queue is not written, as sentences.
    """

    repeated: int = 0
    superseded: int = 0
    generations: dict[str, Generations] = field(default_factory=dict)
    gap_units: int = 0
    displaced: dict[str, int] = field(default_factory=dict)
    file_times_ms: dict[str, int] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    @property
    def again(self) -> dict[str, int]:
        """Where in the log topics begin again of which a queue does, by topic."""
        begins = ((topic, generations.begin) for topic, generations in self.generations.items())
        return {topic: begin for topic, begin in begins if begin is not None}

    def add(self, others: BuiltQueues) -> None:
        self.repeated += others.repeated
        self.superseded += others.superseded
        for topic, generations in others.generations.items():
            self.generations.setdefault(topic, Generations()).add(generations)
        self.gap_units += others.gap_units
        self.displaced.update(others.displaced)
        self.file_times_ms.update(others.file_times_ms)
        self.refused = tuple(sorted((*self.refused, *others.refused)))


@dataclass
class BuildResult(BuiltQueues):
    """Result of a build; files are below `directory`, with the paths that they have in the store.

    Attributes:
        store, request: what was built, and from what.
        with_extensions: whether queues were built with their extensions; else those that are there stay.
        log_end: physical offset after the last record that was read.
        last_record: physical offset and store time of that record; None without one.
        newest_ms: the latest store time of all.
        bad: where a scan met something that is no record: (physical offset, length, finding).
        needs: of a window, physical offset to which it would have to reach: what a queue or the index has below it
            does not reach up to it. None where nothing is missing.
    """

    store: Store = field(kw_only=True)
    request: BuildRequest = field(kw_only=True)
    directory: Path = field(kw_only=True)
    with_extensions: bool = field(kw_only=True)
    log_end: int = 0
    last_record: tuple[int, int] | None = None
    newest_ms: int = 0
    bad: tuple[int, int, str] | None = None
    record_count: int = 0
    needs: int | None = None

    def steps(self, queue_why: str, index_why: str) -> Iterator[Step]:
        if self.request.queue is not None:
            for root, queues in (
                (QUEUES, self.store.queues),
                (EXTENSIONS, self.store.extensions),
                (BATCH_QUEUES, self.store.batch_queues),
            ):
                staged_files = _staged(self.directory, root)
                if root == EXTENSIONS and not self.with_extensions:
                    continue
                for path in sorted(staged_files):
                    _, topic, queue_id, _ = path.split("/")
                    if not self.request.queue(topic, int(queue_id)):
                        continue
                    time_ms = self.file_times_ms.get(path)
                    mtime_ns = None if time_ms is None else within_range(max(0, time_ms) * _NS_PER_MS)
                    yield from file_step(self.store.view, path, staged_files[path], queue_why, mtime_ns)
                for segment in (
                    segment
                    for queue in queues.values()
                    if self.request.queue(queue.topic, queue.queue_id)
                    for segment in queue.segments
                    if segment.path not in staged_files
                ):
                    why = "no record of the commit log belongs in this file"
                    yield remove_file(self.store.view, segment.path, why)
        if self.request.index:
            yield from self._index_steps(index_why)

    def notes(self) -> list[str]:
        notes = list(self.refused)
        if self.repeated:
            notes.append(
                f"Records with the same queue offset as another record of their queue: {self.repeated}. The one that "
                "consumers get today keeps it"
            )
        if self.superseded:
            notes.append(
                f"Records before the place where their queue began again: {self.superseded}. They are not entered"
            )
        if self.gap_units:
            notes.append(f"Units of messages that the commit log does not have: {self.gap_units}. Consumers skip them")
        if self.displaced:
            names = sorted(self.displaced)
            more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
            notes.append(
                f"Records of {', '.join(names[:NAMED_MAX])}{more} that get another queue offset than the one they "
                f"contain, as in the broker's own dispatch: {sum(self.displaced.values())}. Messages before them are "
                "missing, and in the first commit log file nothing can fill the gap"
            )
        if self.file_times_ms and not self.store.consumequeue_file_size:
            notes.append("no queue file shows the file size: using the broker's default, or the size in --broker-conf")
        return notes

    def _index_steps(self, why: str) -> Iterator[Step]:
        """Steps for index files, which count by their order: existing ones keep their names."""
        staged_files = _staged(self.directory, INDEX)
        there = [entry.path for entry in self.store.index_files]
        last = ""
        for number, name in enumerate(sorted(staged_files)):
            if number < len(there):
                yield from file_step(self.store.view, there[number], staged_files[name], why)
                last = there[number]
                continue
            # A broker continues with the file whose name is the last one.
            path = name if name > last else number_behind(last)
            yield from file_step(self.store.view, path, staged_files[name], why)
            last = path
        for path in there[len(staged_files) :]:
            yield remove_file(self.store.view, path, "the index does not need this file")


def file_step(
    view: StoreView, path: str, place: Path, why: str, mtime_ns: int | None = None, rows: str | None = None
) -> Iterator[Step]:
    """The step that replaces a file by the built one; no step where they are equal.

    Raises:
        UnreadableError: something else has the path, or the file may not be read.
    """
    content = BuiltFile.whole(place)
    entry = view.stat(path)
    if entry is None:
        yield Create(path, content, why, mtime_ns, rows)
        return
    if not entry.is_file:
        raise UnreadableError(f"{path}: not a file")
    with closing(view.open(path)) as source:
        before, after = digest_of(source, 0, source.size), digest_of_content(content)
    if before != after:
        yield Replace(path, content, before, after, why, rows)


def _staged(directory: Path, root: str) -> dict[str, Path]:
    top = directory / root
    return {str(path.relative_to(directory)): path for path in top.rglob("*") if path.is_file()}


CHECKPOINT_PATH = "checkpoint"


# The state in which every broker version starts a repaired store without changing it.
# Queues and index complete, nothing but zeros after the log's end, a checkpoint that tells the last record, and no
# `abort`: after a clean stop a broker dispatches nothing again and keeps every index file
# (`DefaultMessageStore#recover`, `IndexService#load`). Where a product of dispatch is not ours to write, `abort` stays:
# only a start after a crash makes such a broker catch up.


def abort_reason(store: Store, rules: BrokerRules) -> str | None:
    """Why `abort` has to stay; None where the repair writes all that dispatch would."""
    if store.queue_kind == "mixed":
        return "some consume queues are in RocksDB: only a broker's start after a crash adds missing messages"
    database = store.queue_database
    if database is not None and database.failure is RocksFailure.NO_LIBRARY:
        return "the consume queues are in RocksDB, and rmqtool[rocksdb], which writes them, is not installed"
    compacted = compacted_topics(topics(read_config(store.view, TOPICS)))
    if rules.compaction and (compacted or store.files.get(FileKind.COMPACTION_LOG)):
        return "topics are compacted: only a broker's start after a crash updates the compaction log"
    if is_rocksdb_used(store.files.get(FileKind.ROCKSDB, ())):
        return "rocksdbstore/ is in use: only a broker's start after a crash updates its tables"
    return None


def checkpoint_steps(
    store: Store, rules: BrokerRules, last_record: tuple[int, int] | None, log_end: int
) -> Iterator[Step]:
    """The step that writes the checkpoint of a store whose queues and index are complete; none if it is there.

    Args:
        last_record: physical offset and store time; without one only numbers that no broker writes are replaced.

    Raises:
        UnreadableError: the file is there and may not be read.
    """
    entry = store.first(FileKind.CHECKPOINT)
    if entry is None and last_record is None:
        return
    raw = b""
    if entry is not None:
        with closing(store.view.open(entry.path)) as source:
            raw = read_range(source, 0, FILE_SIZE + 1)
    known, count = parse_checkpoint(raw[:FIELDS_SIZE]), rules.checkpoint_field_count
    if last_record is None:
        checkpoint = replace(known, **dict.fromkeys(impossible_fields(known, log_end), 0))
        why = "set to 0 what no broker writes into the checkpoint"
    else:
        physical_offset, time_ms = last_record
        confirmed = known.confirm_physical_offset
        checkpoint = Checkpoint(
            commitlog_timestamp_ms=time_ms,
            consumequeue_timestamp_ms=time_ms,
            index_timestamp_ms=time_ms,
            confirm_physical_offset=confirmed if count > 4 and 0 <= confirmed <= log_end else 0,
            consumequeue_physical_offset=physical_offset if count > 5 else 0,
        )
        why = "update the checkpoint to the last record"
    content = build_checkpoint(checkpoint)
    if entry is None:
        if store.view.stat(CHECKPOINT_PATH) is not None:
            raise UnreadableError(f"{CHECKPOINT_PATH}: not a file")
        yield create_file(store.view, CHECKPOINT_PATH, Literal(content), why)
    elif raw != content:
        yield replace_file(store.view, entry.path, Literal(content), why)


def abort_steps(store: Store) -> Iterator[Step]:
    """The step that takes `abort` away."""
    if store.first(FileKind.ABORT) is not None:
        yield remove_file(store.view, ABORT_NAME, "mark the store as cleanly shut down")
