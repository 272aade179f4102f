"""Choice of the messages of a store that are sent, their form, and the reasons for all others."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

from rmqtool.dump.messages import DumpedMessages
from rmqtool.dump.waiting import DELAYED_TOPICS, DueTimes
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.topic_names import DEAD_LETTER_PREFIX, RETRY_PREFIX, is_broker_topic
from rmqtool.formats import commitlog, properties, system_flag
from rmqtool.formats.properties import TIMER_DELIVER_MS
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.report.bodies import BodyChoice
from rmqtool.scan.log import open_log
from rmqtool.scan.row_columns import message_rows
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import Batch
from rmqtool.store.directory import Store

REPLAY: Final = "RMQTOOL_REPLAY"
"""Property of a sent message: `REPLAY:STORE:PHYSICAL_OFFSET`, by which it is found again in its new queue."""
MESSAGE_ID: Final = "RMQTOOL_MESSAGE_ID"
STORE_TIME: Final = "RMQTOOL_STORE_TIME"
QUEUE_OFFSET: Final = "RMQTOOL_QUEUE_OFFSET"
SENT_FLAGS: Final = system_flag.COMPRESSED | system_flag.COMPRESSION_MASK | system_flag.MULTI_TAGS
_DROPPED: Final = frozenset(
    {
        "CLUSTER",
        "TRAN_MSG",
        properties.DELAY_LEVEL,
        properties.REAL_TOPIC,
        properties.REAL_QUEUE_ID,
        properties.RECORD_CRC,
        properties.MULTI_QUEUE_OFFSET,
    }
)
"""Properties that the old broker set, or that would make the new one delay the message or take it for a half one."""
_TIMER_PREFIX: Final = "TIMER_"
_INT_DIGITS_MAX: Final = 9


class UnsentReason(StrEnum):
    """Why a message is not sent."""

    BAD_RANGE = "bad-range"
    TOMBSTONE = "tombstone"
    TRANSACTION = "transaction-record"
    DELIVERED = "delivered-delayed"
    SYSTEM = "broker-topic"
    RETRY = "retry-or-dead-letter"
    BATCH = "inner-batch"
    EMPTY = "no-body"
    REFUSED = "refused"


LOST: Final = frozenset({UnsentReason.BAD_RANGE, UnsentReason.BATCH, UnsentReason.EMPTY, UnsentReason.REFUSED})
"""Reasons for which something that a consumer could have received does not arrive."""


@dataclass(frozen=True)
class Selection:
    """Request of a replay.

    Attributes:
        topics: glob patterns of the old names; none means all but those of consumer groups and brokers.
        renames: old to new name.
        from_ms, to_ms: store times, half open; None means any.
    """

    topics: tuple[str, ...] = ()
    renames: Mapping[str, str] = field(default_factory=dict)
    from_ms: int | None = None
    to_ms: int | None = None

    def takes(self, topic: str) -> bool:
        """True if a topic is requested."""
        return not self.topics or any(fnmatch.fnmatchcase(topic, pattern) for pattern in self.topics)

    def names(self, topic: str) -> bool:
        """True if a topic is requested by name, and not only among all others."""
        return topic in self.renames or (bool(self.topics) and self.takes(topic))


@dataclass(frozen=True)
class Outgoing:
    """A message to be sent. `topic` is the old one; `queue_id` is that to which its producer sent it."""

    physical_offset: int
    end: int
    topic: str
    queue_id: int
    body: bytes
    properties: Mapping[str, str]
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    reconsume_times: int


@dataclass(frozen=True)
class NotSent:
    """A message, or a range of the log, that is not sent."""

    physical_offset: int
    end: int
    reason: UnsentReason


def outgoing_messages(
    store: Store, rules: BrokerRules, selection: Selection, waiting: DueTimes, now_ms: int, start: int = 0
) -> Iterator[Outgoing | NotSent]:
    """The messages that are asked for, in log order, from a physical offset on.

    A message that waits is sent to its own topic: at once where its time has come, else to wait again. Messages of
    topics that are not asked for are skipped without a word.
    """
    segments = [segment for segment in store.commitlog if segment.end > start]
    gaps = iter([(before.end, after.start) for before, after in pairwise(segments) if after.start > before.end])
    gap = next(gaps, None)
    with open_log(store.view.open, segments, finds_crc=True) as table:
        for batch in table.batches():
            rows = batch.as_array()
            rows = rows[rows["physical_offset"] >= start]
            while gap is not None and len(rows) and rows["physical_offset"][-1] >= gap[1]:
                yield NotSent(*gap, UnsentReason.BAD_RANGE)
                gap = next(gaps, None)
            is_bad = (rows["verdict"] != Verdict.GOOD) & (rows["verdict"] != Verdict.STALE)
            for row in rows[is_bad]:
                end = int(row["physical_offset"] + row["size"])
                yield NotSent(int(row["physical_offset"]), end, UnsentReason.BAD_RANGE)
            good = message_rows(rows)
            if selection.from_ms is not None:
                good = good[good["store_timestamp_ms"] >= selection.from_ms]
            if selection.to_ms is not None:
                good = good[good["store_timestamp_ms"] < selection.to_ms]
            if len(good):
                yield from _of_batch(batch, good, rules, selection, waiting, now_ms)


def _of_batch(
    batch: Batch, good: Any, rules: BrokerRules, selection: Selection, waiting: DueTimes, now_ms: int
) -> Iterator[Outgoing | NotSent]:
    """The messages of a batch; bodies are read only of those that are sent."""
    dumped = DumpedMessages(batch, good, rules, BodyChoice())
    times_ms = dumped.numbers("store_timestamp_ms")
    columns = zip(good, dumped.column("topic"), dumped.properties, dumped.column("message_id"), times_ms, strict=True)
    for row, stored_topic, stored, message_id, store_ms in columns:
        place, size = int(row["physical_offset"]), int(row["size"])
        topic = stored.get(properties.REAL_TOPIC, "") if stored_topic in DELAYED_TOPICS else stored_topic
        if not selection.takes(topic):
            continue
        reason = unsent_reason(row, stored_topic, topic, selection, waiting)
        if reason is not None:
            yield NotSent(place, place + size, reason)
            continue
        kept = sent_properties(stored, message_id, store_ms)
        queue_id = int(row["queue_id"])
        if stored_topic in DELAYED_TOPICS:
            text = stored.get(properties.REAL_QUEUE_ID, "")
            queue_id = int(text) if text.isascii() and text.isdigit() and len(text) <= _INT_DIGITS_MAX else 0
            if waiting[place] > now_ms and properties.DELAY_LEVEL in stored:  # whose time begins again
                kept[properties.DELAY_LEVEL] = stored[properties.DELAY_LEVEL]
            elif waiting[place] > now_ms:  # brokers from 5.0.0 on
                kept[TIMER_DELIVER_MS] = str(waiting[place])
        else:
            kept.setdefault(QUEUE_OFFSET, f"{queue_id}:{row['queue_offset']}")
        sys_flag = int(row["sys_flag"])
        [body] = batch.read_many([place], [commitlog.head_size(sys_flag)], [int(row["body_length"])])
        yield Outgoing(
            place,
            place + size,
            topic,
            queue_id,
            bytes(body),
            kept,
            int(row["flag"]),
            sys_flag & SENT_FLAGS,
            int(row["born_timestamp_ms"]),
            int(row["reconsume_times"]),
        )


def sent_properties(stored: Mapping[str, str], message_id: str | None, store_ms: int | None) -> dict[str, str]:
    """The properties with which a message is sent, those that say where and when it was stored among them."""
    kept = {
        name: value for name, value in stored.items() if name not in _DROPPED and not name.startswith(_TIMER_PREFIX)
    }
    if message_id is not None:
        kept.setdefault(MESSAGE_ID, message_id)
    if store_ms is not None:
        kept.setdefault(STORE_TIME, str(store_ms))
    return kept


def unsent_reason(
    row: Any, stored_topic: str, topic: str, selection: Selection, waiting: DueTimes
) -> UnsentReason | None:
    """Reason why a message is not sent; None if it is.

    Args:
        row: has its physical offset, flags, prepared transaction offset and body length.
    """
    if row["prepared_transaction_offset"] == TOMBSTONE:
        return UnsentReason.TOMBSTONE
    if not system_flag.takes_queue_entry(int(row["sys_flag"])):
        return UnsentReason.TRANSACTION
    if stored_topic in (properties.HALF_TOPIC, properties.OPERATION_TOPIC):
        return UnsentReason.TRANSACTION
    if stored_topic in DELAYED_TOPICS and int(row["physical_offset"]) not in waiting:
        return UnsentReason.DELIVERED
    if is_broker_topic(topic):
        return UnsentReason.SYSTEM
    if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)) and not selection.names(topic):
        return UnsentReason.RETRY
    if row["sys_flag"] & system_flag.INNER_BATCH:
        return UnsentReason.BATCH
    return UnsentReason.EMPTY if row["body_length"] <= 0 else None
