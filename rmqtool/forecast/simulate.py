"""The forecast of one start: load, recovery and start of a broker in its order, over an overlay that is thrown away.

Broker: `DefaultMessageStore#load`, `#recover`, `#start`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import numpy as np

from rmqtool.engine.dispatch.placed_messages import PlacedMessages
from rmqtool.engine.dispatch.queue_entries import DispatchSettings, EntryExtractor, QueueEntries, queue_entries
from rmqtool.engine.queues.extension import QueueExtension
from rmqtool.engine.queues.kinds import shown_topics
from rmqtool.engine.rules.broker_rules import BrokerRules, DispatchedEnd, NormalDispatch, ReputStart
from rmqtool.engine.rules.topic_names import LMQ_PREFIX
from rmqtool.engine.segments.open_files import OpenFiles, ReadCache
from rmqtool.forecast import load
from rmqtool.forecast.database_state import DatabaseQueueState, DatabaseState
from rmqtool.forecast.index_state import IndexState
from rmqtool.forecast.load import LoadedQueue, LoadFailure
from rmqtool.forecast.log_recovery import LogState, PlainRecords, Records, ScanResult, StartChoice
from rmqtool.forecast.options import ForecastOptions
from rmqtool.forecast.queue_state import NOTHING_ENTERED, QueueState
from rmqtool.forecast.unsimulated import demand_simulated
from rmqtool.formats.checkpoint import FIELDS_SIZE, Checkpoint, parse_checkpoint
from rmqtool.formats.consumequeue import BATCH_UNIT_SIZE, DEFAULT_FILE_UNITS, UNIT_SIZE
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.queue_name import QueueName, topic_bytes
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.store.config.config_json import topics, whole_topics
from rmqtool.store.config.config_kinds import TOPICS
from rmqtool.store.config.read_config import StoreConfigs
from rmqtool.store.databases.queue_database import QueueDatabase
from rmqtool.store.directory import QueueFiles, QueueRoles, Segment, Store
from rmqtool.store.dledger_files import dledger_log
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.location import log_directories
from rmqtool.store.overlay import Overlay
from rmqtool.store.sizes import DEFAULT_LOG_FILE_SIZE
from rmqtool.store.source import Closable, read_range

CHECKPOINT_FIELDS: Final = tuple(Checkpoint.__dataclass_fields__)


AnyQueueState = QueueState | DatabaseQueueState
MakeQueue = Callable[[QueueName, bool], AnyQueueState]
"""An empty queue of a name; the flag says whether it is a batch queue."""
_Value = TypeVar("_Value")
ONLY_FILES: Final = QueueRoles(reads="file", assigns="file")
ONLY_ROCKSDB: Final = QueueRoles(reads="rocksdb", assigns="rocksdb")


@dataclass
class LoadedSide:
    """The queues of one side; `database` is None where they are in files."""

    make: MakeQueue
    database: DatabaseState | None = None
    takes_light_queues: bool = True
    on_entered: Callable[[QueueEntries], None] | None = None
    queues: dict[QueueName, AnyQueueState] = field(default_factory=dict)
    _are_shut: bool = False

    @property
    def end(self) -> int:
        """Physical offset up to which records count as entered."""
        if self.database is not None:
            return self.database.dispatched
        return max((queue.physical_end for queue in self.queues.values()), default=NOTHING_ENTERED)

    def recover(self) -> None:
        """Find the end of every queue."""
        if self.database is not None and self.database.database.is_dispatched_short:
            directory = self.database.database.directory
            raise LoadFailure(f"{directory}: the value of CHECKPOINT_TOPIC has less than 8 bytes")
        for queue in self.queues.values():
            queue.recover()
            if isinstance(queue, QueueState):
                queue.recover_extension()

    def put(self, all_entries: Sequence[QueueEntries]) -> None:
        """Enter records up to the first whose topic holds a zero: no file can be made for it, and the queues are shut.

        The queues of later records are made all the same, and stay as they are (`RunningFlags#makeLogicsQueueError`).
        """
        limit = NOTHING_ENTERED if self._are_shut else JAVA_LONG_MAX
        for entries in all_entries:
            if b"\0" in entries.topic and entries.own.any() and self.database is None:
                self._are_shut = True
                limit = min(limit, int(entries.physical_offsets[entries.own].min()))
        for entries in all_entries:
            if not self.takes_light_queues and not entries.own.any():
                continue
            queue = self.queue((decode_java_utf8(entries.topic), entries.queue_id), is_batch=entries.is_batch)
            entered = entries if self.takes_light_queues else entries.some(entries.own)
            entered = entered.some(entered.physical_offsets < limit) if self._are_shut else entered
            if entered.physical_offsets.size and b"\0" not in entered.topic:
                queue.put(entered)
                if self.on_entered is not None:
                    self.on_entered(entered)

    def truncate(self, end_before: int, log_end: int) -> None:
        """Cut the queues where the log ends.

        Args:
            end_before: physical offset that the queues reached, by which the broker decides whether to cut.
        """
        if end_before >= log_end:
            for queue in self.queues.values():
                queue.truncate(log_end)

    def queue(self, name: QueueName, *, is_batch: bool) -> AnyQueueState:
        """A queue, made if there is none yet."""
        if name not in self.queues:
            self.queues[name] = self.make(name, is_batch)
        return self.queues[name]


class QueueSides:
    """All sides that a broker loads, files first; `roles` has the use of each.

    Attributes:
        assigning: the side that gives new messages their queue offsets.
        reading: the side that answers pulls.
        second: the side that does not assign offsets; None where there is one only.
        database: the side in RocksDB.
    """

    def __init__(self, sides: tuple[LoadedSide, ...], roles: QueueRoles) -> None:
        self.sides, self.roles = sides, roles
        by_kind = {"file" if side.database is None else "rocksdb": side for side in sides}
        self.database = by_kind.get("rocksdb")
        self.assigning = by_kind.get(roles.assigns, sides[0])
        self.reading = by_kind.get(roles.reads, sides[0])
        self.second = next((side for side in sides if side is not self.assigning), None)

    def initialize_second(self) -> None:
        """Give the second side the ends of the files where it has others, which hides what it has.

        The queues of a database are not known yet where that assigns the offsets, so the files stay as they are.
        Broker: `CombineConsumeQueueStore#verifyAndInitOffsetForAllStore`.

        Raises:
            LoadFailure: the side that is read has other messages, and the broker does not start.
        """
        second = self.second
        if second is None or second.database is None:
            return
        differing: list[QueueName] = []
        for name, queue in self.assigning.queues.items():
            maximum, other = queue.maximum(), second.queues.get(name)
            known = other.maximum() if other is not None else 0
            if maximum == known or (maximum <= 0 and known <= 0):
                continue
            if known > 0 and self.roles.light_in_rocksdb and name[0].startswith(LMQ_PREFIX):
                continue
            if known > 0:
                differing.append(name)
            state = second.queue(name, is_batch=False)
            assert isinstance(state, DatabaseQueueState), "its queues are in a database"
            state.set_end(maximum)
        if differing and self.reading is second:
            topic, queue_id = min(differing)
            raise LoadFailure(
                f"{topic}/{queue_id}: the queue in RocksDB, which is read, ends elsewhere than the one in files, which "
                f"assigns the queue offsets (queues: {len(differing)})"
            )

    def queues_of(self, side: LoadedSide) -> Mapping[QueueName, AnyQueueState]:
        """The queues of a side, light ones from the database where only that has them."""
        database = self.database
        if not self.roles.light_in_rocksdb or database is None or database is side:
            return side.queues
        own = {name: queue for name, queue in side.queues.items() if not name[0].startswith(LMQ_PREFIX)}
        return own | {name: queue for name, queue in database.queues.items() if name[0].startswith(LMQ_PREFIX)}


class Simulation(Closable):
    """One start of a broker; a context manager, for it keeps files open.

    Attributes:
        why_not: why the broker does not start; None while it does.
        fails_at: physical offset of the record that keeps it from starting; None where it is none.
        scanned: what recovery read of the log; None where it does not come to that.
        queues_reach: physical offset up to which the queues reach before recovery cuts them.
        entered: what the start enters into the queues that pulls are answered from, by where a log file begins.
        not_simulated: what is left out, as sentences.
        topics_config: `config/topics.json`.
        whole_topics: all topics that are configured; None where no whole configuration tells.
        tells_generations: whether a queue that began again tells of a deletion: a broker wrote a configuration.
    """

    def __init__(
        self,
        store: Store,
        rules: BrokerRules,
        options: ForecastOptions,
        *,
        keeps_index: bool = False,
        past_obstacles: bool = False,
        plain: PlainRecords | None = None,
        reads: ReadCache | None = None,
        configs: StoreConfigs | None = None,
    ) -> None:
        """`keeps_index` keeps new entries of the index, for asking the started broker by key.

        Args:
            past_obstacles: start as if whatever keeps the broker from it were gone; what it says then is no forecast.
            plain: what starts of other versions on the same store have seen of the log.
            reads: what starts of other versions have read of the other files.
        """
        self.store = store
        self.rules = rules
        self.options = options
        self.overlay = Overlay(store.view)
        self.files = OpenFiles(self.overlay, reads, self.overlay.change_of)
        self.crashed = store.has_abort
        self.why_not: str | None = None
        self.fails_at: int | None = None
        self.scanned: ScanResult | None = None
        self.queues_reach = NOTHING_ENTERED
        self.next_queue_offsets: dict[QueueName, int] = {}
        self.index = IndexState(store, self.overlay, rules, options, keeps_content=keeps_index)
        self.log: LogState | None = None
        self._plain, self._past_obstacles = plain, past_obstacles
        self.not_simulated: list[str] = []
        self._configs = StoreConfigs(store.view) if configs is None else configs
        self.topics_config = self._configs.of(TOPICS)[TOPICS]
        self._topics = topics(self.topics_config)
        self.whole_topics = whole_topics(self.topics_config)
        self.tells_generations = self.whole_topics is not None or shown_topics(store, self._configs) is not None
        self.sides = self._queue_sides()
        self._file_size = -(-(store.consumequeue_file_size or DEFAULT_FILE_UNITS * UNIT_SIZE) // UNIT_SIZE) * UNIT_SIZE
        self._batch_file_size = store.batch_file_size or DEFAULT_FILE_UNITS * BATCH_UNIT_SIZE
        self._batch_topics = frozenset[str]()
        if rules.batch_queues and self.sides.assigning.database is None:
            self._batch_topics = load.configured_batch_topics(self.topics_config, store)
        self.settings = DispatchSettings(
            rules, options.multi_dispatch, options.lmq, frozenset(map(topic_bytes, self._batch_topics))
        )
        self._chunk = EntryExtractor(self.settings)
        self.entered: dict[int, PlacedMessages] = {}
        self.sides.reading.on_entered = self._note_entered

    def run(self) -> None:
        """Load, recover and start; afterwards the state is that of the running broker.

        Raises:
            UnsupportedError: the store is of a kind that is not simulated.
            UnknownSizeError: nothing shows the size of a log file.
        """
        self._demand_simulated()
        if self.options.why_not is not None:
            self.why_not = self.options.why_not
            return
        try:
            self._load()
            self._recover()
            self._start()
            with self._obstacle():
                self.sides.initialize_second()
        except LoadFailure as failure:
            self.why_not, self.fails_at = str(failure), failure.record_at
        if self.index.writer is not None:
            self.index.writer.flush()

    def find_scan_begin(self) -> int | None:
        """Physical offset at which recovery begins to read the log; the simulation cannot be run any more.

        Returns:
            None where there is no log that loads.

        Raises:
            UnsupportedError, UnreadableError: see `run`.
        """
        self._demand_simulated()
        with suppress(LoadFailure):  # what is wrong with a queue says nothing of the log
            self._load()
        if self.log is None or not self.log.segments:
            return None
        for side in self.sides.sides:
            for queue in side.queues.values():
                queue.recover()
        try:
            choice = self._start_choice(self.log)
            return self.log.segments[choice.file_number(self.log.segments, crashed=self.crashed)].start
        except LoadFailure:
            return None

    @property
    def queues(self) -> Mapping[QueueName, AnyQueueState]:
        """The queues that pulls are answered from."""
        return self.sides.queues_of(self.sides.reading)

    def close(self) -> None:
        """Release the queues too: their sides lead back here, and only the garbage collector would find them later."""
        self.files.close()
        self.overlay.close()
        vars(self).pop("sides", None)

    def _demand_simulated(self) -> None:
        store, rules = self.store, self.rules
        demand_simulated(store, rules)
        second = store.second_database if store.settings.queue_roles is not None else None
        if store.queue_kind == "mixed" and rules.rocksdb_queues and (second is None or not second.is_read):
            self.not_simulated.append("queues in RocksDB, beside those in files")
        if store.extensions:
            self.not_simulated.append("extensions of the consume queues")
        if rules.rocksdb_side_store and store.files.get(FileKind.ROCKSDB):
            self.not_simulated.append("index, timer and transactions in rocksdbstore/, if the broker uses them")

    def _load(self) -> None:
        store, rules = self.store, self.rules
        log_file_size = store.commitlog_file_size or DEFAULT_LOG_FILE_SIZE
        directories = log_directories(store)
        if len(directories) > 1 and not rules.multiple_log_paths:
            directories = ()  # the list is the name of one directory, which is not there
        if store.has_dledger_log:
            segments: Sequence[Segment] = store.commitlog
        else:
            segments = load.load_files(
                self.overlay, directories, log_file_size, rules, past_obstacles=self._past_obstacles
            )
        data_bytes = sum(segment.entry.allocated_bytes for segment in segments)
        self.checkpoint = self._read_checkpoint()
        self.log = LogState(segments, self.overlay, rules, self.options, data_bytes=data_bytes, plain=self._plain)
        with self._obstacle():
            load.demand_queue_database(store, rules)
        for side in self.sides.sides:
            if side.database is None:
                loaded_queues = load.load_queues(
                    self.overlay, self._file_size, self._batch_file_size, self.rules, self._batch_topics,
                    past_obstacles=self._past_obstacles,
                )  # fmt: skip
                has_extensions = self.options.extensions and self.overlay.stat(load.EXTENSIONS) is not None
                for queue in loaded_queues:
                    side.queues[queue.topic, queue.queue_id] = state = self._state(queue)
                    if has_extensions and not queue.is_batch:
                        self._load_extension(queue, state)
            else:
                side.database.log_minimum = self.log.minimum
                side.queues.update({name: side.make(name, False) for name in side.database.database.names})
        with self._obstacle():
            load.demand_side_stores(store, rules, self._configs)
        self.index.load(self.files, crashed=self.crashed, index_timestamp_ms=self.checkpoint.index_timestamp_ms)

    @contextmanager
    def _obstacle(self) -> Iterator[None]:
        """Continue after an error that keeps the broker from starting, where the options say so."""
        try:
            yield
        except LoadFailure:
            if not self._past_obstacles:
                raise

    def _load_extension(self, queue: LoadedQueue, state: QueueState) -> None:
        """Check the sizes of a queue's extension files (`ConsumeQueueExt#load`)."""
        directory = f"{load.EXTENSIONS}/{queue.topic}/{queue.queue_id}"
        if self.overlay.stat(directory) is not None:
            segments = load.load_files(self.overlay, (directory,), self.store.extension_file_size, self.rules)
            if queue.segments:
                files = QueueFiles(queue.topic, queue.queue_id, tuple(segments))
                state.extension = QueueExtension(files, self.store.extension_file_size, self.files)

    def _recover(self) -> None:
        assert self.log is not None
        for side in self.sides.sides:  # after the index was loaded
            side.recover()
        self.queues_reach = max(side.end for side in self.sides.sides)
        if not self.log.segments:
            self.log.end = 0
            self.scanned = ScanResult(0, 0, None)
            if self.crashed or self.rules.empty_log_destroys_queues_after_clean_stop:
                for side in self.sides.sides:
                    for queue in side.queues.values():
                        queue.destroy()
        elif self.store.has_dledger_log:
            # Nothing is dropped that a start may leave, and all entered that it may enter
            # (`DLedgerCommitLog#recoverNormally`, `#recoverAbnormally`).
            end = self.log.member_end()
            if self.crashed and self.rules.dledger_skips_headers:
                self._dispatch_all(self.log.member_records())
            self.scanned = ScanResult(self.log.minimum, end, None)
            for side in self.sides.sides:
                side.truncate(side.end, end)
            self.log.end = end
        else:
            ends = [side.end for side in self.sides.sides]
            self.scanned = self._dispatch_scanned(self.log)
            for side, end in zip(self.sides.sides, ends, strict=True):
                side.truncate(side.end if self.rules.queues_maximum_read_again else end, self.scanned.end)
            self.log.truncate(self.scanned.end)
        self._fill_queue_table()

    def _start_choice(self, log: LogState) -> StartChoice:
        choice, second = self._choice_of(log, self.sides.assigning), self.sides.second
        if second is None:
            return choice
        is_known = second.end > 0 or not self.rules.new_side_is_skipped
        return replace(
            choice,
            second=self._choice_of(log, second) if is_known else None,
            demands_second=self.sides.roles.light_in_rocksdb and second.database is not None,
            reads_second=self.sides.reading is second,
        )

    def _choice_of(self, log: LogState, side: LoadedSide) -> StartChoice:
        in_database, dispatched_end = side.database is not None, side.end
        by_checkpoint = self.rules.dispatched_end is DispatchedEnd.QUEUES_OR_CHECKPOINT
        if self.crashed and not in_database and by_checkpoint:
            dispatched_end = self.checkpoint.consumequeue_physical_offset
        return StartChoice(
            self.rules, self.options, self.checkpoint, log.first_record, side.end, dispatched_end, in_database
        )

    def _dispatch_scanned(self, log: LogState) -> ScanResult:
        choice = self._start_choice(log)
        known = -1  # physical offset up to which recovery dispatches nothing
        if not self.crashed and self.rules.normal_dispatch is NormalDispatch.NONE:
            known = JAVA_LONG_MAX
        elif not self.crashed:
            is_by_queues = self.rules.normal_dispatch is NormalDispatch.ABOVE_QUEUES
            known = choice.queues_end if is_by_queues else choice.dispatched_end
            if self.sides.second is not None:
                known = min(known, self.sides.second.end)
        scan = log.scan(choice.file_number(log.segments, crashed=self.crashed), known)
        return self._dispatch_all(scan, None if self.crashed else known)

    def _start(self) -> None:
        if self.index.why_not is not None and not self._past_obstacles:  # it has recovered all the same, and ends
            raise LoadFailure(self.index.why_not)
        log, kind = self.log, self.rules.reput_start
        assert log is not None
        from_queues = kind is ReputStart.QUEUES or (kind is ReputStart.CONFIRMED and self.options.recheck_queues)
        if self.store.has_dledger_log:
            begin = self.sides.reading.end
            if not from_queues:  # once a leader is elected (`DLedgerCommitLog#getConfirmOffset`)
                member_log = dledger_log(self.store)
                begin = member_log.committed_end() if member_log is not None else 0
            self._dispatch_all(log.member_records(begin))
        elif not log.segments or not from_queues:
            return
        elif (stays_at := self._dispatch_all(log.dispatched_after_start(self.sides.reading.end))) is not None:
            raise LoadFailure(f"dispatch waits forever at physical offset {stays_at}, where there is no record")
        self._fill_queue_table()

    def _dispatch_all(self, parts: Generator[Records, None, _Value], known: int | None = None) -> _Value:
        """Enter the records of a part of the log; return the generator's value.

        Args:
            known: those up to this physical offset, by their own account, are left out.
        """
        while True:
            try:
                records = next(parts)
            except StopIteration as stop:
                self._dispatch_gathered()
                value: _Value = stop.value
                return value
            above = None if known is None else records.rows["own_offset"] > known
            if above is None or above.all():
                self._dispatch(records)
            elif above.any():
                self._dispatch(records._replace(rows=records.rows[above]))

    def _dispatch(self, records: Records) -> None:
        """Enter records; those for queues once there are many, or `_dispatch_gathered` is called."""
        self.index.put(records)
        own_offset = records.own_offset
        if own_offset is not None or records.topics is not self._chunk.topics:
            self._dispatch_gathered()
        if own_offset is None:
            self._chunk.take(records.rows, records.topics, records.texts)
            if self._chunk.is_full:
                self._dispatch_gathered()
            return
        all_entries = [
            entries._replace(physical_offsets=np.full_like(entries.physical_offsets, own_offset))
            for entries in queue_entries(records.rows, records.topics, records.texts, self.settings)
        ]
        for side in self.sides.sides:
            side.put(all_entries)

    def _dispatch_gathered(self) -> None:
        entries = self._chunk.entries()
        for side in self.sides.sides:
            side.put(entries)
        self._chunk.clear()

    def _note_entered(self, entries: QueueEntries) -> None:
        assert self.log is not None
        first, last = entries.physical_offsets[[0, -1]].tolist()
        starts = {segment.start for segment in self.log.segments if segment.start <= first and last < segment.end}
        for start in starts:
            self.entered.setdefault(start, PlacedMessages()).take(entries)

    def _state(self, queue: LoadedQueue) -> QueueState:
        size = self._batch_file_size if queue.is_batch else self._file_size
        return QueueState(queue, size, self.overlay, self.files, self.rules)

    def _fill_queue_table(self) -> None:
        """Next queue offsets and minima (`DefaultMessageStore#recoverTopicQueueTable`)."""
        assert self.log is not None
        assigned = self.sides.queues_of(self.sides.assigning)
        self.next_queue_offsets = {name: queue.maximum() for name, queue in assigned.items()}
        for side in self.sides.sides:
            with self._obstacle():
                for queue in side.queues.values():
                    queue.correct_minimum(self.log.minimum)

    def _read_checkpoint(self) -> Checkpoint:
        entry = self.store.first(FileKind.CHECKPOINT)
        if entry is None:
            return Checkpoint()
        with closing(self.overlay.open(entry.path)) as source:
            checkpoint = parse_checkpoint(read_range(source, 0, FIELDS_SIZE))
        count = self.rules.checkpoint_field_count
        return Checkpoint(*(getattr(checkpoint, name) for name in CHECKPOINT_FIELDS[:count]))

    def _queue_sides(self) -> QueueSides:
        store, rules, roles = self.store, self.rules, self.store.settings.queue_roles
        if rules.rocksdb_queues and store.queue_database is not None:
            return QueueSides((self._database_side(store.queue_database),), ONLY_ROCKSDB)

        def empty_file_queue(name: QueueName, is_batch: bool) -> QueueState:
            root = load.BATCH_CONSUMEQUEUE if is_batch else load.CONSUMEQUEUE
            return self._state(LoadedQueue(*name, f"{root}/{name[0]}/{name[1]}", is_batch, ()))

        files = LoadedSide(empty_file_queue)
        if roles is None or not rules.combines_queue_sides or store.second_database is None:
            return QueueSides((files,), ONLY_FILES)
        roles = roles if rules.light_queues_in_rocksdb else roles._replace(light_in_rocksdb=False)
        files.takes_light_queues = not roles.light_in_rocksdb
        return QueueSides((files, self._database_side(store.second_database)), roles)

    def _database_side(self, database: QueueDatabase) -> LoadedSide:
        counts = {name: topic.write_queue_count or 0 for name, topic in self._topics.items()}
        truncates_all = self.rules.rocksdb_loads_all_ends
        state = DatabaseState(
            database,
            self.rules,
            lambda name: truncates_all or 0 <= name[1] < counts.get(name[0], 0),
            database.dispatched or 0,
        )
        return LoadedSide(lambda name, _is_batch: DatabaseQueueState(name, state), state)
