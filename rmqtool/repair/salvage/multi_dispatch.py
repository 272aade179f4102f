"""The further queues that lost records stood in (multi-dispatch), where only the gaps in those queues tell of them.

Which of the lost records named which queue nobody knows; it is enough that the order in each queue is that of the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from rmqtool.engine.rules.multi_dispatch import LMQ_PREFIX, is_kept_out
from rmqtool.repair.salvage.damaged_ranges import DamagedRange
from rmqtool.repair.salvage.layout import Least
from rmqtool.repair.salvage.lost_records import LostInRange, LostRecord
from rmqtool.verify.match.queue_order import MissingRun

_Place = tuple[list[LostRecord], int]
"""A record in one of the lists of its range."""


def add_further(
    ranges: Sequence[DamagedRange],
    lost_in_ranges: Sequence[LostInRange],
    missing: Iterable[MissingRun],
    least: Least,
    kept_out: Collection[str],
) -> None:
    """Let lost records stand in further queues in which offsets are missing.

    Args:
        lost_in_ranges: the lost records of each range, which are replaced by such as name the further queues.
        least: see `lay_out`.
        kept_out: patterns of topics whose records name no further queues.
    """
    runs = [run for run in missing if run.is_further]
    if not runs:
        return
    starts = [each.start for each in ranges]
    known = {
        each
        for casualties in lost_in_ranges
        for record in (*casualties.placed, *casualties.unplaced)
        for each in record.further
    }
    room = [
        each.length - sum(record.size or least(record) for record in (*casualties.placed, *casualties.unplaced))
        for each, casualties in zip(ranges, lost_in_ranges, strict=True)
    ]
    for run in runs:
        topic = run.queue[0]
        queue_offsets = [each for each in range(run.first, run.first + run.length) if (topic, each) not in known]
        numbers = range(bisect_right(starts, run.behind), bisect_right(starts, run.before))
        given = list(_given(topic, queue_offsets, _takers(lost_in_ranges, numbers, run, kept_out), room.copy(), least))
        if len(given) < len(queue_offsets):
            # A queue with a gap in it is displaced behind the gap; one that begins late is not.
            continue
        for number, (records, at), longer in given:
            if records[at].size is None:
                room[number] -= least(longer) - least(records[at])
            records[at] = longer


def _given(
    topic: bytes, queue_offsets: Iterable[int], takers: Iterator[tuple[int, _Place]], room: list[int], least: Least
) -> Iterator[tuple[int, _Place, LostRecord]]:
    """For each queue offset a record that can have named it, with all that it names: (number of the range, ...)."""
    for queue_offset in queue_offsets:
        for number, (records, at) in takers:
            lost = records[at]
            if any(name == topic for name, _ in lost.further):
                continue
            longer = replace(lost, further=(*lost.further, (topic, queue_offset)))
            more = least(longer) - least(lost)
            if (lost.size is None and more > room[number]) or (lost.size is not None and least(longer) > lost.size):
                continue
            if lost.size is None:
                room[number] -= more
            yield number, (records, at), longer
            break


def _takers(
    lost_in_ranges: Sequence[LostInRange], numbers: Iterable[int], run: MissingRun, kept_out: Collection[str]
) -> Iterator[tuple[int, _Place]]:
    """Records in log order that may have named the queue of a run, each once: (number of the range, record)."""
    topic, queue_id, _ = run.queue
    for number in numbers:
        for records in (lost_in_ranges[number].placed, lost_in_ranges[number].unplaced):
            for at, record in enumerate(records):
                is_known = record.head is not None or record.batch_size is not None
                is_its_queue = topic.startswith(LMQ_PREFIX.encode()) or record.queue_id == queue_id
                if not is_known and is_its_queue and not is_kept_out(record.topic_name, kept_out):
                    yield number, (records, at)
