"""Lost records that only units of light queues tell of: each had a queue of its own too, in which the log has gaps."""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rmqtool.engine.rules.multi_dispatch import LMQ_PREFIX
from rmqtool.formats.queue_name import QueueKey
from rmqtool.verify.match.queue_order import MissingRun

if TYPE_CHECKING:
    from rmqtool.repair.salvage.lost_record import LostRecord


def add_own_queues(claims: Sequence[list[LostRecord]], missing: Sequence[MissingRun]) -> None:
    """Give records of light queues the queue offsets that are missing around them, in log order.

    A broker writes to a light queue no record that has no other queue. Which of several queues a record had nobody
    knows; it is enough that the order in each of them is that of the log.

    Args:
        claims: per range, the records whose places are known, which are replaced.
        missing: see `QueueOrder`.
    """
    slots = [
        (records, at)
        for records in claims
        for at, record in enumerate(records)
        if record.head is None and record.topic.startswith(LMQ_PREFIX.encode())
    ]
    if not slots:
        return
    places = [records[at].place[0] for records, at in slots]
    known: defaultdict[QueueKey, list[tuple[int, int]]] = defaultdict(list)
    for records in claims:
        for record in records:
            known[record.topic, record.queue_id].append((record.queue_offset, record.place[0]))
    for run in missing:
        if run.is_further or run.queue[2]:
            continue
        topic, queue_id, _ = run.queue
        rows, low = known[topic, queue_id], run.behind
        for queue_offset in range(run.first, run.first + run.length):
            row = bisect_left(rows, (queue_offset, 0))
            if row < len(rows) and rows[row][0] == queue_offset:
                continue
            low = max(low, rows[row - 1][1] if row else -1)
            slot = bisect_right(places, low)
            if slot == len(places) or places[slot] >= min(run.before, rows[row][1] if row < len(rows) else sys.maxsize):
                continue
            low, (records, at) = places.pop(slot), slots.pop(slot)
            light = records[at]
            further = ((light.topic, light.queue_offset), *light.further)
            records[at] = replace(
                light, topic=topic, queue_id=queue_id, queue_offset=queue_offset, further=further, has_unit=False
            )
