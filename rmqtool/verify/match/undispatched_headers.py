"""Records that were not dispatched yet and whose headers the log's own order contradicts: no unit tells of them."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from rmqtool.engine.reading.record import Record, read_record
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import finding
from rmqtool.formats.queue_name import QueueKey, TypedQueueKey, queue_key, topic_text
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.store.directory import Store
from rmqtool.verify.files.reach import newest_start
from rmqtool.verify.match.queue_match import name_of
from rmqtool.verify.match.queue_order import DamagedBetween, MisplacedRecord, QueueOrder, QueueRun
from rmqtool.verify.survey.context import VerifyContext
from rmqtool.verify.survey.result import Missing

WRONG_UNITS: Final = frozenset(
    f"consumequeue.{name}" for name in ("dangling-unit", "gap", "order", "wrong-position", "wrong-record")
)
"""Findings after which the units of a queue do not tell how far its messages were dispatched."""

REPEATED: Final = "commitlog.queue-offset-repeated"
"""Finding type for a record with another one's queue offset; the error may be in its queue."""
_RUNS_MAX = 1000
"""Runs of missing messages that are named."""
_FURTHER = b"%LMQ%"
"""Prefix of queues that records only name beside their own."""


class Doubts:
    """Where findings about the log lie: a gap in which there is any other fault tells nothing for sure.

    Attributes:
        queues: topic and queue id of those with wrong units, which tell nothing either.
    """

    def __init__(self) -> None:
        self.queues: set[QueueKey] = set()
        self._places: array[int] = array("q")
        self._ends: array[int] = array("q")

    def add(self, new_finding: Finding) -> None:
        """Keep the place of a finding about the log's bytes, or the queue of one about units."""
        if new_finding.id in WRONG_UNITS and new_finding.topic is not None and new_finding.queue_id is not None:
            self.queues.add(queue_key(new_finding.topic, new_finding.queue_id))
        is_of_log = new_finding.id.startswith("commitlog.") and new_finding.id != REPEATED
        if is_of_log and new_finding.physical_offset is not None:
            self._places.append(new_finding.physical_offset)
            end = new_finding.physical_offset + max(1, new_finding.length or 0)
            self._ends.append(min(end, JAVA_LONG_MAX))  # a sparse file may claim any size

    def counter(self) -> DamagedBetween:
        """Counts the ranges that begin before a second place, of which one ends after a first; 0 where none does."""
        ranges = sorted(zip(self._places, self._ends, strict=True))
        starts, ends = [start for start, _ in ranges], list(accumulate((end for _, end in ranges), max))

        def between(behind: int, before: int) -> int:
            count = bisect_left(starts, before)
            return count if count and ends[count - 1] > behind else 0

        return between


def undispatched_header_findings(context: VerifyContext, runs: Sequence[Missing], doubts: Doubts) -> Iterator[Finding]:
    """Findings about records of these runs, without a unit, that stand where the log lacks just one other message."""
    order = QueueOrder(begins_at_zero=bool(context.store.commitlog) and context.store.commitlog[0].start == 0)
    by_queue: defaultdict[TypedQueueKey, list[QueueRun]] = defaultdict(list)
    for run in runs:
        if not run.is_batch and run.queue[:2] not in doubts.queues:
            end, places = run.queue_offset + run.message_count, (run.physical_offset, run.last_physical_offset)
            by_queue[run.queue].append(QueueRun(run.queue_offset, end, *places, run.message_count))
    for name, queue_runs in by_queue.items():
        queue_runs.sort(key=lambda run: run.place)
        queue = context.queues.get(name[:2])
        if queue is not None and queue.end > queue.first:
            # Its units stand for messages too, unless all have expired, and messages between them and the log.
            newest = newest_start(queue.units, context.store.commitlog[-1].end)[1]
            if not 0 <= newest < context.store.log_start:
                queue_runs.insert(0, QueueRun(queue.first, queue.end, 0, newest, queue.end - queue.first))
        order.take_queue_runs(name, queue_runs)
    with OpenFiles(context.store.view) as files:
        log = Log(context.store, context.rules, files)
        misplaced_records, empty = order.misplaced(doubts.counter())
        for misplaced in misplaced_records:
            record = record_off_by_one(log, misplaced)
            if record is not None:
                yield misplaced_finding(context.store, misplaced, record)
    misplaced_places = {record.physical_offset for record in misplaced_records}
    for name, again in order.repeated().items():
        queue = context.queues.get(name[:2])
        end = queue.end if queue is not None else 0  # before that, its units tell
        undispatched = [
            run
            for run in again
            if run.place >= context.dispatched_end and run.first >= end and run.place not in misplaced_places
        ]
        if undispatched:
            text = f"another record of {name_of(name[:2])} has the same queue offset"
            own = {"topic": topic_text(name[0]), "queue_id": name[1], "queue_offset": undispatched[0].first}
            count = sum(run.count for run in undispatched)
            yield context.log_finding(REPEATED, undispatched[0].place, text, count=count, **own)
    for gap in empty[:_RUNS_MAX]:
        # Of messages before a queue's first unit the queue's own files tell.
        if gap.before > 0 and not gap.queue[0].startswith(_FURTHER):
            topic, queue_id, _ = gap.queue
            last = gap.first + gap.length - 1
            offsets = f"queue offset {gap.first}" if gap.length == 1 else f"queue offsets {gap.first} to {last}"
            lost = f"{name_of((topic, queue_id))} at {offsets}"
            text = f"the commit log lacks {lost} before this record, and nothing there is damaged"
            own = {"topic": topic_text(topic), "queue_id": queue_id, "queue_offset": gap.first}
            yield context.log_finding("commitlog.missing-message", gap.before, text, count=gap.length, **own)


def record_off_by_one(log: Log, misplaced: MisplacedRecord) -> Record | None:
    """The record, where its own header puts it out of order; it may name further queues."""
    try:
        record = read_record(log, misplaced.physical_offset)
    except UnreadableError:
        return None
    if record is None:
        return None
    own = record.topic_raw, record.queue_id, record.queue_offset
    wrong = sum(one != two for one, two in zip(own, misplaced[1:], strict=True))
    return record if wrong == 1 else None


def misplaced_finding(store: Store, misplaced: MisplacedRecord, record: Record) -> Finding:
    """The finding about a record that the log's order contradicts."""
    segment = next(segment for segment in reversed(store.commitlog) if segment.start <= misplaced.physical_offset)
    expected = f"{name_of((misplaced.topic, misplaced.queue_id))} at queue offset {misplaced.queue_offset}"
    text = f"a record of {name_of((record.topic_raw, record.queue_id))} at queue offset {record.queue_offset}"
    return finding(
        "commitlog.doubtful-header",
        segment.path,
        f"{text}, which its own queue contradicts, and the log lacks {expected} there",
        file_position=misplaced.physical_offset - segment.start,
        physical_offset=misplaced.physical_offset,
        length=record.size,
        topic=topic_text(misplaced.topic),
        queue_id=misplaced.queue_id,
        queue_offset=misplaced.queue_offset,
        expected=expected,
        found=text,
    )
