"""The records of a store that go into a new one, and the queue offsets that they get there."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from rmqtool.dump.messages import DumpedMessages
from rmqtool.dump.waiting import DELAYED_TOPICS, DueTimes, waiting_of
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.topic_names import is_broker_topic
from rmqtool.errors import RefusedError, UnsupportedError
from rmqtool.formats import properties, system_flag
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.queue_name import QueueName
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.report.bodies import BodyChoice
from rmqtool.scan.columns import MULTI_DISPATCH
from rmqtool.scan.log import open_log
from rmqtool.scan.row_columns import message_rows
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import Batch
from rmqtool.store.directory import Store
from rmqtool.store.dledger_files import demand_plain_log

BAD_RANGE: Final = "bad-range"
WAITING: Final = "waiting"
TRANSACTION: Final = "transaction-record"
LOST_TOMBSTONE: Final = "tombstone"


@dataclass(frozen=True)
class Choice:
    """Choice of the messages for the new store.

    Attributes:
        topics: glob patterns; none means all but the brokers' own.
        from_ms, to_ms: store times, half open; None means any.
        keeps_offsets: whether each message keeps its queue offset; else each queue begins at 0.
    """

    topics: tuple[str, ...] = ()
    from_ms: int | None = None
    to_ms: int | None = None
    keeps_offsets: bool = True

    def takes(self, topic: str) -> bool:
        """True if messages of a topic are chosen; messages of the brokers' own topics belong to one store only."""
        if is_broker_topic(topic):
            return False
        return not self.topics or any(fnmatch.fnmatchcase(topic, pattern) for pattern in self.topics)


class ChosenRecord(NamedTuple):
    """A record, its offset in its queue in the new store, and other data needed to write it."""

    raw: bytes
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    prepared_transaction_offset: int
    store_timestamp_ms: int


@dataclass
class QueueRange:
    """Queue offsets [first, end) that a queue of the new store has."""

    first: int
    end: int
    messages: int = 0
    label: str = ""
    """The store of its last message."""


@dataclass
class ChosenRecords:
    """Chooses records, store after store.

    Attributes:
        queues: what was chosen, by topic and queue id.
        left_out: bad ranges, and messages of chosen topics that cannot be taken, by reason.
        problems: what could not be read of messages that wait, as sentences.
    """

    choice: Choice
    queues: dict[QueueName, QueueRange] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def of(self, store: Store, rules: BrokerRules) -> Iterator[ChosenRecord]:
        """The records of a store, in log order.

        Raises:
            RefusedError: offsets are to be kept, and a queue would have a gap or an offset twice.
            UnsupportedError: a message is of a kind that cannot be taken.
            UnreadableError: a file fails.
        """
        demand_plain_log(store)
        segments = store.commitlog
        self.left_out[BAD_RANGE] += sum(after.start > before.end for before, after in pairwise(segments))
        waiting = waiting_of(store, rules)
        self.problems += waiting.problems
        with open_log(store.view.open, segments, finds_crc=True) as table:
            for batch in table.batches():
                rows = batch.as_array()
                bad = (rows["verdict"] != Verdict.GOOD) & (rows["verdict"] != Verdict.STALE)
                self.left_out[BAD_RANGE] += int(bad.sum())
                good = message_rows(rows)
                if self.choice.from_ms is not None:
                    good = good[good["store_timestamp_ms"] >= self.choice.from_ms]
                if self.choice.to_ms is not None:
                    good = good[good["store_timestamp_ms"] < self.choice.to_ms]
                if len(good):
                    self._count_waiting(batch, good, rules, waiting)
                    yield from self._of_batch(batch, good, store.view.label)

    def _count_waiting(self, batch: Batch, rows: Any, rules: BrokerRules, waiting: DueTimes) -> None:
        """Count messages of chosen topics that wait for their time: they are in another topic until then."""
        numbers = [number for number, raw in enumerate(batch.topics) if decode_java_utf8(raw) in DELAYED_TOPICS]
        rows = rows[np.isin(rows["topic_number"], numbers)]
        rows = rows[np.isin(rows["physical_offset"], list(waiting))] if len(rows) else rows
        if len(rows):
            stored = DumpedMessages(batch, rows, rules, BodyChoice()).properties
            self.left_out[WAITING] += sum(self.choice.takes(values.get(properties.REAL_TOPIC, "")) for values in stored)

    def _of_batch(self, batch: Batch, rows: Any, label: str) -> Iterator[ChosenRecord]:
        names = [decode_java_utf8(raw) for raw in batch.topics]
        rows = rows[np.isin(rows["topic_number"], [at for at, name in enumerate(names) if self.choice.takes(name)])]
        takes_entry = np.array([system_flag.takes_queue_entry(flag) for flag in rows["sys_flag"].tolist()], np.bool_)
        self.left_out[TRANSACTION] += int((~takes_entry).sum())
        rows = rows[takes_entry]
        if not self.choice.keeps_offsets:
            is_lost = rows["prepared_transaction_offset"] == TOMBSTONE
            self.left_out[LOST_TOMBSTONE] += int(is_lost.sum())
            rows = rows[~is_lost]
        places, sizes = rows["physical_offset"].tolist(), rows["size"].tolist()
        for row, raw in zip(rows, batch.read_many(places, [0] * len(places), sizes), strict=True):
            name = names[row["topic_number"]]
            sys_flag = int(row["sys_flag"])
            if sys_flag & system_flag.INNER_BATCH:
                raise UnsupportedError(f"{label}: topic {name} has batches in one record, which are not extracted")
            if row["features"] & MULTI_DISPATCH and not self.choice.keeps_offsets:
                raise UnsupportedError(
                    f"{label}: messages of topic {name} are in light queues too: pass --keep-offsets, because each "
                    "names its offsets there"
                )
            queue_offset = self._next(name, int(row["queue_id"]), int(row["queue_offset"]), label)
            yield ChosenRecord(
                bytes(raw),
                name,
                int(row["queue_id"]),
                queue_offset,
                sys_flag,
                int(row["prepared_transaction_offset"]),
                int(row["store_timestamp_ms"]),
            )

    def _next(self, topic: str, queue_id: int, queue_offset: int, label: str) -> int:
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            first = queue_offset if self.choice.keeps_offsets else 0
            queue = self.queues[topic, queue_id] = QueueRange(first, first)
        elif self.choice.keeps_offsets and queue_offset != queue.end:
            before = f"{queue.label} ends at {queue.end}"
            raise RefusedError(
                f"queue {queue_id} of topic {topic}: {before}, and {label} continues at {queue_offset}: "
                + (
                    "the messages between would be missing"
                    if queue_offset > queue.end
                    else "two messages would have the same queue offset"
                )
            )
        queue.end += 1
        queue.messages += 1
        queue.label = label
        return queue.end - 1
