"""Half messages of transactions, the records that end them, the offset at which a broker continues, and the checks.

Broker: `TransactionalMessageBridge#putHalfMessage`, `#fetchConsumeOffset`, `TransactionalMessageServiceImpl#check`,
`#fillOpRemoveMap`, `EndTransactionProcessor`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np

from rmqtool.engine.reading.reader import Reader, open_reader
from rmqtool.engine.reading.record import Record
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import finding
from rmqtool.formats import system_flag
from rmqtool.formats.properties import HALF_TOPIC, OPERATION_TOPIC
from rmqtool.formats.queue_name import QueueKey
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.scan.log import open_log
from rmqtool.scan.row_columns import message_rows
from rmqtool.sides.queue_scan import queue_units, readable_record
from rmqtool.store.config.config_json import consumer_offsets
from rmqtool.store.config.config_kinds import CONSUMER_OFFSETS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Store

GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The consumer group whose offsets say how far a broker is in both topics."""
BODY_MAX: Final = 1 << 20
"""Bytes of an operation record that are read; a broker writes a few kilobytes."""
_DIGITS_MAX: Final = 18
_TAG: Final = "d"
_FINDINGS_MAX: Final = 100


class HalfState(StrEnum):
    """Handling of a half message."""

    ENDED = "ended"
    PASSED = "passed"
    COMMITTED = "committed"
    OPEN = "open"


class HalfMessage(NamedTuple):
    """A half message.

    Attributes:
        record: None where it cannot be read.
        operation_queue_offset: of the record that ended it; None where there is none.
    """

    queue_offset: int
    physical_offset: int
    record: Record | None
    operation_queue_offset: int | None
    state: HalfState


@dataclass
class Operations:
    """Content of the operation records.

    Attributes:
        ended: by queue offset of a half message: queue offset of the first operation record that names it.
        odd: queue offsets of the records that name none.
    """

    ended: dict[int, int] = field(default_factory=dict)
    odd: list[int] = field(default_factory=list)


def next_offsets(reader: Reader) -> tuple[int, int]:
    """The queue offsets in both topics, half messages first, at which a broker continues."""
    stored = consumer_offsets(read_config(reader.store.view, CONSUMER_OFFSETS))
    half, operation = (stored.get((topic, GROUP), {}).get(0, -1) for topic in (HALF_TOPIC, OPERATION_TOPIC))
    return (
        half if half >= 0 else reader.queue(HALF_TOPIC, 0).min_queue_offset,
        operation if operation >= 0 else reader.queue(OPERATION_TOPIC, 0).min_queue_offset,
    )


def half_messages(reader: Reader) -> Iterator[HalfMessage]:
    """The half messages of a store, in the order of their queue.

    Raises:
        UnsupportedError: the queues are kept in a database that is not read.
    """
    if (HALF_TOPIC, 0) not in reader.queues():
        return
    ended = read_operations(reader, 0).ended
    next_half, _ = next_offsets(reader)
    committed = committed_halves(reader, not_ended(reader, ended, next_half))
    queue = reader.queue(HALF_TOPIC, 0)
    for unit in queue_units(queue, queue.min_queue_offset, queue.max_queue_offset):
        operation = ended.get(unit.queue_offset)
        if operation is not None:
            state = HalfState.ENDED
        elif unit.queue_offset < next_half:
            state = HalfState.PASSED
        else:
            state = HalfState.COMMITTED if unit.queue_offset in committed else HalfState.OPEN
        record = readable_record(reader, unit.physical_offset)
        if record is not None and (record.topic, record.queue_offset) != (HALF_TOPIC, unit.queue_offset):
            record = None
        yield HalfMessage(unit.queue_offset, unit.physical_offset, record, operation, state)


def read_operations(reader: Reader, begin: int) -> Operations:
    """Read the operation records from a queue offset on; tombstones and those that cannot be read say nothing."""
    operations = Operations()
    if (OPERATION_TOPIC, 0) not in reader.queues():
        return operations
    queue = reader.queue(OPERATION_TOPIC, 0)
    for unit in queue_units(queue, begin, queue.max_queue_offset):
        record = readable_record(reader, unit.physical_offset)
        if record is None or (record.topic, record.queue_offset) != (OPERATION_TOPIC, unit.queue_offset):
            continue
        if not record.body_crc_ok or record.prepared_transaction_offset == TOMBSTONE:
            continue
        texts = [text for text in record.body(BODY_MAX).split(b",") if text.isdigit() and len(text) <= _DIGITS_MAX]
        if record.tags != _TAG or not texts:
            operations.odd.append(unit.queue_offset)
            continue
        for text in texts:
            operations.ended.setdefault(int(text), unit.queue_offset)
    return operations


def not_ended(reader: Reader, ended: Container[int], begin: int) -> dict[int, int]:
    """Physical offsets of the half messages that a broker asks about, by their queue offsets."""
    queue = reader.queue(HALF_TOPIC, 0)
    units = queue_units(queue, begin, queue.max_queue_offset)
    return {unit.queue_offset: unit.physical_offset for unit in units if unit.queue_offset not in ended}


def committed_halves(reader: Reader, halves: Mapping[int, int]) -> set[int]:
    """Those of half messages, physical offset by queue offset, whose committed message is in the log."""
    if not halves:
        return set()
    sought, start = np.array(sorted(halves.values()), "i8"), min(halves.values())
    segments = [segment for segment in reader.store.commitlog if segment.end > start]
    committed: set[int] = set()
    with open_log(reader.store.view.open, segments) as table:
        for batch in table.batches():
            rows = message_rows(batch.as_array())
            is_commit = rows["sys_flag"] & system_flag.TRANSACTION_MASK == system_flag.TRANSACTION_COMMIT
            prepared = rows["prepared_transaction_offset"][is_commit]
            committed.update(prepared[np.isin(prepared, sought)].tolist())
    return {queue_offset for queue_offset, physical_offset in halves.items() if physical_offset in committed}


def transaction_findings(
    store: Store, rules: BrokerRules, end_of: Callable[[QueueKey], int | None]
) -> Iterator[Finding]:
    """Findings about half messages and operation records from where a broker continues; none without half messages.

    Args:
        end_of: tells a queue's end, once what the log has for it is dispatched.
    """
    try:
        with open_reader(store, rules) as reader:
            if (HALF_TOPIC, 0) not in reader.queues():
                return
            next_half, next_operation = next_offsets(reader)
            operations = read_operations(reader, next_operation)
            queue = reader.queue(HALF_TOPIC, 0)
            begin, end = queue.min_queue_offset, max(queue.max_queue_offset, end_of((HALF_TOPIC.encode(), 0)) or 0)
            for queue_offset in operations.odd[:_FINDINGS_MAX]:
                yield _at("transaction.bad-operation", "names no half message", OPERATION_TOPIC, queue_offset)
            ahead = {half: at for half, at in operations.ended.items() if half >= end}
            if ahead:
                text = f"names half message {min(ahead)}, but their queue ends at {end}"
                first = min(ahead.values())
                yield _at("transaction.operation-ahead", text, OPERATION_TOPIC, first, len(ahead))
            gone = max(0, begin - next_half) - sum(next_half <= half < begin for half in operations.ended)
            if gone > 0:
                text = f"a broker continues at {next_half}, the first half message that is left is {begin}"
                yield _at("transaction.expired-half", text, HALF_TOPIC, next_half, gone)
            asked = not_ended(reader, operations.ended, next_half)
            committed = committed_halves(reader, asked)
            if committed:
                text = f"their messages are in the log; half messages without an operation record: {len(asked)}"
                yield _at("transaction.committed-half", text, HALF_TOPIC, min(committed), len(committed))
    except UnsupportedError:
        return  # queues that are not read, which has a finding of its own
    except UnreadableError as error:
        yield finding("store.unreadable", f"consumequeue/{HALF_TOPIC}", str(error))


def _at(kind: str, text: str, topic: str, queue_offset: int, count: int = 1) -> Finding:
    path = f"consumequeue/{topic}/0"
    return finding(kind, path, text, topic=topic, queue_id=0, queue_offset=queue_offset, count=count)
