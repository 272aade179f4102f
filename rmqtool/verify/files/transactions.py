"""Checks the half messages of transactions: which of them a broker asks about again, or never."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.timers.transactions import committed_halves, next_offsets, not_ended, read_operations
from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.formats.properties import HALF_TOPIC, OPERATION_TOPIC
from rmqtool.store.directory import Store
from rmqtool.verify.catalog.finding import Finding
from rmqtool.verify.catalog.registry import finding
from rmqtool.verify.survey.context import QueueEnd

_FINDINGS_MAX: Final = 100


def transaction_findings(store: Store, rules: BrokerRules, end_of: QueueEnd) -> Iterator[Finding]:
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
                yield _at("transaction.operation-ahead", text, OPERATION_TOPIC, first, count=len(ahead))
            gone = max(0, begin - next_half) - sum(next_half <= half < begin for half in operations.ended)
            if gone > 0:
                text = f"a broker continues at {next_half}, the first half message that is left is {begin}"
                yield _at("transaction.expired-half", text, HALF_TOPIC, next_half, count=gone)
            asked = dict(not_ended(reader, operations.ended, next_half))
            committed = committed_halves(reader, asked)
            if committed:
                text = f"their messages are in the log; half messages without an operation record: {len(asked)}"
                yield _at("transaction.committed-half", text, HALF_TOPIC, min(committed), count=len(committed))
    except UnsupportedError:
        return  # queues that are not read, which has a finding of its own
    except UnreadableError as error:
        yield finding("store.unreadable", f"consumequeue/{HALF_TOPIC}", str(error))


def _at(kind: str, text: str, topic: str, queue_offset: int, **more: Any) -> Finding:
    return finding(kind, f"consumequeue/{topic}/0", text, topic=topic, queue_id=0, queue_offset=queue_offset, **more)
