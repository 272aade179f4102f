"""A pull: the messages of a queue from an offset on, with the broker's status and next offset.

Its tag filter is a set of hashes in which the queue's tags code is looked up.

Broker: `DefaultMessageStore#getMessage`, `#isTheBatchFull`, `#nextOffsetCorrection`, `FilterAPI#buildSubscriptionData`,
`ExpressionMessageFilter#isMatchedByConsumeQueue`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.queues.unit import QueueUnit
from rmqtool.engine.reading.stored_message import StoredMessage, message_of_unit
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.segments.log import Log
from rmqtool.errors import UsageError
from rmqtool.formats.java_text import java_hash

ALL = "*"
SEPARATOR = "||"


@dataclass(frozen=True)
class TagFilter:
    """The tags asked for; None lets everything through."""

    tags: frozenset[str] | None
    codes: frozenset[int]

    def lets_through(self, unit: QueueUnit) -> bool:
        """Whether the broker hands the unit's message out; other tags of the same hash pass too.

        A code that stands in an extension that cannot be read lets its message through.
        """
        code = unit.tags_code
        if self.tags is None or code is None:
            return True
        low = code & 0xFFFFFFFF
        return (low - (1 << 32) if low & 0x80000000 else low) in self.codes


def parse_tag_filter(expression: str | None) -> TagFilter:
    """The filter of an expression: None, nothing or `*` for all, else tags between `||`.

    Raises:
        UsageError: it names no tag at all.
    """
    if not expression or expression == ALL:
        return TagFilter(None, frozenset())
    tags = frozenset(tag for part in expression.split(SEPARATOR) if (tag := part.strip()))
    if not tags:
        raise UsageError(f"no tag in the expression {expression!r}")
    return TagFilter(tags, frozenset(map(java_hash, tags)))


class GetMessageStatus(Enum):
    """How a pull ended (`GetMessageStatus`)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@dataclass(frozen=True)
class PullLimits:
    """What ends a pull early; the defaults are the broker's."""

    broker_memory_bytes: int | None = None
    """Memory of the broker's machine: what lies further back than 40 % of it counts as on disk. None: all in memory."""
    count_in_memory: int = 32
    bytes_in_memory: int = 262_144
    count_on_disk: int = 8
    bytes_on_disk: int = 65_536
    unit_bytes_examined: int = 16_000
    queue_files: int = 1
    """Queue files that one pull looks into while it has found nothing, where the version can look into several."""


MEMORY_RATIO = 0.4


@dataclass(frozen=True)
class GetMessageResult:
    """The answer to a pull."""

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: tuple[StoredMessage, ...]


def pull(
    queue: Queue,
    log: Log,
    rules: BrokerRules,
    queue_offset: int,
    max_count: int,
    tag_filter: TagFilter,
    limits: PullLimits,
    corrected: Callable[[int, int], int],
) -> GetMessageResult:
    """Answer a pull.

    Args:
        corrected: chooses between the offset asked for and the one the store suggests.

    Raises:
        UnreadableError: the disk does not give a queue's units.
    """
    minimum, maximum = queue.min_queue_offset, queue.max_queue_offset
    refused = _outside(queue_offset, minimum, maximum, rules, corrected)
    if refused is not None:
        return GetMessageResult(*refused, minimum, maximum, ())
    batch = _Batch(log, rules, limits, max_count)
    status = GetMessageStatus.NO_MATCHED_MESSAGE
    following = queue_offset
    examined_max = max(limits.unit_bytes_examined, max_count * queue.unit_size)
    for _ in range(limits.queue_files if rules.extra_files_per_pull else 1):
        if batch.bytes > 0 or following >= maximum:
            break
        units = queue.units_from(following, max_count)
        if units is None:
            status = GetMessageStatus.OFFSET_FOUND_NULL
            following = corrected(following, queue.next_file_queue_offset(following))
            break
        skip_below: int | None = None
        for unit in units:
            if following >= maximum or (unit.queue_offset - queue_offset) * queue.unit_size >= examined_max:
                break
            skipped = skip_below is not None and unit.physical_offset < skip_below
            if (rules.limits_before_skipping or not skipped) and batch.is_full_for(unit):
                break
            following = unit.queue_offset + unit.message_count
            if skipped:
                continue
            if not tag_filter.lets_through(unit):
                if batch.bytes == 0:
                    status = GetMessageStatus.NO_MATCHED_MESSAGE
                continue
            message = message_of_unit(log, unit)
            if message is None:
                if batch.bytes == 0:
                    status = GetMessageStatus.MESSAGE_WAS_REMOVING
                skip_below = log.next_file_start(unit.physical_offset)
                continue
            batch.add(message, unit)
            status = GetMessageStatus.FOUND
            skip_below = None
    return GetMessageResult(status, following, minimum, maximum, tuple(batch.messages))


def _outside(
    queue_offset: int, minimum: int, maximum: int, rules: BrokerRules, corrected: Callable[[int, int], int]
) -> tuple[GetMessageStatus, int] | None:
    """Status and next offset where there is nothing to look for at the offset."""
    if maximum == 0:
        return GetMessageStatus.NO_MESSAGE_IN_QUEUE, corrected(queue_offset, 0)
    if queue_offset < minimum:
        return GetMessageStatus.OFFSET_TOO_SMALL, corrected(queue_offset, minimum)
    if queue_offset == maximum:
        return GetMessageStatus.OFFSET_OVERFLOW_ONE, queue_offset
    if queue_offset > maximum:
        restarts = rules.overflow_restarts_at_zero and minimum == 0
        return GetMessageStatus.OFFSET_OVERFLOW_BADLY, corrected(queue_offset, 0 if restarts else maximum)
    return None


class _Batch:
    """What a pull has collected, and whether one more unit fits."""

    def __init__(self, log: Log, rules: BrokerRules, limits: PullLimits, max_count: int) -> None:
        self.messages: list[StoredMessage] = []
        self.bytes = 0
        self._count = 0
        self._log_end = log.end
        self._bytes_max = rules.pull_bytes_max
        self._limits = limits
        self._max_count = max_count

    def add(self, message: StoredMessage, unit: QueueUnit) -> None:
        self.messages.append(message)
        self.bytes += unit.record_size
        self._count += unit.message_count

    def is_full_for(self, unit: QueueUnit) -> bool:
        if self.bytes == 0 or self._count == 0:
            return False
        total = self.bytes + unit.record_size
        if self._count + unit.message_count > self._max_count:
            return True
        if self._bytes_max is not None and total > self._bytes_max:
            return True
        if self._on_disk(unit.physical_offset):
            return total > self._limits.bytes_on_disk or self._count > self._limits.count_on_disk - 1
        return total > self._limits.bytes_in_memory or self._count > self._limits.count_in_memory - 1

    def _on_disk(self, physical_offset: int) -> bool:
        memory = self._limits.broker_memory_bytes
        return memory is not None and self._log_end - physical_offset > memory * MEMORY_RATIO
