"""Where a starting broker has its consume queues: in files, in RocksDB, or in both of them.

Broker: `ConsumeQueueStore`, `RocksDBConsumeQueueStore`; `CombineConsumeQueueStore` has one of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rmqtool.engine.dispatch.queue_entries import QueueEntries
from rmqtool.engine.rules.topic_names import LMQ_PREFIX
from rmqtool.forecast.database_state import DatabaseQueueState, DatabaseState
from rmqtool.forecast.load import LoadFailure
from rmqtool.forecast.queue_state import NOTHING_ENTERED, QueueState
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.queue_name import QueueName
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.store.directory import QueueRoles

AnyQueueState = QueueState | DatabaseQueueState
MakeQueue = Callable[[QueueName, bool], AnyQueueState]
"""An empty queue of a name; the flag says whether it is a batch queue."""
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
        """Find the end of every queue.

        Raises:
            LoadFailure: the broker does not start on one.
        """
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

    def destroy(self) -> None:
        """Remove all units, as a broker does that finds no log."""
        for queue in self.queues.values():
            queue.destroy()

    def correct_minimum(self, log_minimum: int) -> None:
        """Leave out units below the log."""
        for queue in self.queues.values():
            queue.correct_minimum(log_minimum)

    def queue(self, name: QueueName, *, is_batch: bool) -> AnyQueueState:
        """A queue, made if there is none yet."""
        if name not in self.queues:
            self.queues[name] = self.make(name, is_batch)
        return self.queues[name]


@dataclass(frozen=True)
class QueueSides:
    """All sides that a broker loads, files first; `roles` say what each is for."""

    sides: tuple[LoadedSide, ...]
    roles: QueueRoles

    @property
    def assigning(self) -> LoadedSide:
        """The side that gives new messages their queue offsets."""
        return self._side(self.roles.assigns)

    @property
    def reading(self) -> LoadedSide:
        """The side that answers pulls."""
        return self._side(self.roles.reads)

    @property
    def second(self) -> LoadedSide | None:
        """The side that does not assign offsets; None where there is one only."""
        return next((side for side in self.sides if side is not self.assigning), None)

    @property
    def database(self) -> LoadedSide | None:
        """The side in RocksDB."""
        return next((side for side in self.sides if side.database is not None), None)

    def served(self) -> Mapping[QueueName, AnyQueueState]:
        """The queues that pulls are answered from."""
        return self._chosen(self.reading)

    def next_offsets(self) -> dict[QueueName, int]:
        """Queue offsets of the next messages."""
        return {name: queue.maximum() for name, queue in self._chosen(self.assigning).items()}

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

    def _side(self, kind: str) -> LoadedSide:
        return next((side for side in self.sides if (side.database is not None) == (kind == "rocksdb")), self.sides[0])

    def _chosen(self, side: LoadedSide) -> Mapping[QueueName, AnyQueueState]:
        """The queues of a side, light ones from the database where only that has them."""
        database = self.database
        if not self.roles.light_in_rocksdb or database is None or database is side:
            return side.queues
        own = {name: queue for name, queue in side.queues.items() if not name[0].startswith(LMQ_PREFIX)}
        return own | {name: queue for name, queue in database.queues.items() if name[0].startswith(LMQ_PREFIX)}
