"""Says why messages have no unit, once all of the log is known: which queue, file or place lacks them.

One finding for each reason and place, however many messages there are. A store may have its queues in files and in a
database (broker: `CombineConsumeQueueStore` from 5.4.0, `RocksDBMessageStore#loadAndStartConsumerServiceOnly` before).
The database may be younger than the queues, and from 5.5.1 on it may have topics of one type only
(`rocksdbCQSelectiveDoubleWriteEnable`); from 5.5.0 on queues of multi-dispatch may be in it alone
(`combineCQUseRocksdbForLmq`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final

from rmqtool.engine.reading.record import read_record
from rmqtool.engine.rules.topic_names import LMQ_PREFIX
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import finding
from rmqtool.formats.consumequeue import FILLER_UNIT, UNIT_SIZE
from rmqtool.formats.queue_name import QueueName, TypedQueueKey, topic_text, unsafe_name
from rmqtool.quantities import OFFSETS_END
from rmqtool.report.text import counted
from rmqtool.store.databases.queue_database import StoredEnds
from rmqtool.store.file_kinds import segment_name
from rmqtool.verify.files.reach import units_ahead, units_below
from rmqtool.verify.survey.context import VerifyContext
from rmqtool.verify.survey.database_pass import log_end_findings
from rmqtool.verify.survey.queue_map import QueueMap, Span
from rmqtool.verify.survey.result import Missing, SplitResult

RECORDS_READ_MAX: Final = 1000
"""Records that are read to see whether a queue offset was given twice; the rest counts as missing units."""


def missing_findings(context: VerifyContext, runs: Sequence[Missing]) -> Iterator[Finding]:
    """Findings about messages without a unit."""
    by_queue: dict[TypedQueueKey, list[Missing]] = defaultdict(list)
    for run in runs:
        by_queue[run.queue].append(run)
    with OpenFiles(context.store.view) as files:
        classifier = _Classifier(context, files)
        for key, queue_runs in sorted(by_queue.items()):
            if key[0] in context.unchecked_topics or not context.has_all_queues:
                continue
            queue = context.queue(key)
            if queue is None or not queue.files:
                yield from _whole_queue(context, key, queue_runs)
            else:
                yield from classifier.of_queue(queue, queue_runs)


def zero_queues(context: VerifyContext, runs: Sequence[Missing]) -> Iterator[Finding]:
    """Zero files for which the log has no message: all of a queue from queue offset 0 on, or one after a queue's end.
    The runs are the messages of the whole log that have no unit.
    """
    if not context.has_file_queues:
        return
    lacking = {(topic, queue_id) for topic, queue_id, *_ in runs}
    for name, queue in chain(context.queues.items(), context.batch_queues.items()):
        if name in lacking or name[0] in context.unchecked_topics:
            continue
        zero_starts = {first for first, _ in queue.zero_files}
        say = partial(finding, "consumequeue.zero-file", topic=queue.topic, queue_id=queue.queue_id)
        if queue.files and len(queue.zero_files) == len(queue.files) and queue.first == 0:
            text = "the queue's files hold only zeros, and the commit log has no message of it"
            yield say(queue.files[0].path, text)
        elif not queue.is_batch and queue.end > queue.first:
            # A broker makes a file for a unit, which comes first in it.
            file = next((file for file in queue.files if file.first >= queue.end and file.first in zero_starts), None)
            text = "the file holds only zeros, and the queue ends before it: "
            text += "new messages would skip its first queue offset"
            if file is not None:
                yield say(file.path, text, file_position=0, queue_offset=file.first)


def _whole_queue(context: VerifyContext, key: TypedQueueKey, runs: list[Missing]) -> Iterator[Finding]:
    name, queue_id = topic_text(key[0]), key[1]
    database = context.store.queue_database
    directory = f"{'batchconsumequeue' if key[2] else 'consumequeue'}/{name}/{queue_id}"
    count, first, last = sum(run.message_count for run in runs), runs[0], runs[-1]
    say = partial(finding, topic=name, queue_id=queue_id, count=count)
    if unsafe_name(name):
        text = f"{counted(count, 'message')} of a topic whose name cannot be the name of a directory"
        yield say("consumequeue.unsafe-name", context.log_segment(first.physical_offset).path, text)
        return
    behind = sum(run.message_count for run in runs if run.physical_offset >= context.dispatched_end)
    if behind == count:
        kind, text = "consumequeue.behind-log", f"none of its {count} messages was dispatched yet"
    else:
        lacking = "file" if database is None else "unit"
        kind = "consumequeue.missing-queue"
        text = f"the commit log has {counted(count, 'message')} of this queue, the store has no {lacking} of it"
    yield say(
        kind,
        directory if database is None else database.directory,
        text,
        physical_offset=first.physical_offset,
        queue_offset=first.queue_offset,
        found=f"queue offsets {first.queue_offset} to {last.queue_offset + last.message_count - 1}",
    )


class _Classifier:
    def __init__(self, context: VerifyContext, files: OpenFiles) -> None:
        self._context = context
        self._files = files
        self._log = Log(context.store, context.rules, files)
        self._reads_left = RECORDS_READ_MAX

    def of_queue(self, queue: QueueMap, runs: list[Missing]) -> Iterator[Finding]:
        reasons: dict[tuple[str, str], list[tuple[int, int, int, int | None]]] = defaultdict(list)
        for run in runs:
            behind = run.physical_offset >= self._context.dispatched_end
            for place, amount in self._splits(queue, run.queue_offset, run.message_count):
                reason = self._reason(queue, place, run.physical_offset, behind=behind)
                if reason is not None:
                    kind, path, position = reason
                    reasons[kind, path].append((place, amount, run.physical_offset, position))
        for (kind, path), places in reasons.items():
            yield self._finding(queue, kind, path, places)

    def _splits(self, queue: QueueMap, first: int, count: int) -> Iterator[Span]:
        """A run cut where files end and the queue ends; single places inside the queue."""
        if queue.is_batch:
            yield first, count
            return
        place, end = first, first + count
        holes = (*queue.gaps, *queue.dead, *queue.zero_files, *queue.bad_files, *queue.absent_files)
        edges = [edge for hole in holes for edge in hole]
        while place < end:
            if queue.first <= place < queue.end and not any(low <= place < high for low, high in holes):
                amount = 1
            else:
                file_end = (place // queue.units_per_file + 1) * queue.units_per_file
                amount = min(edge for edge in (end, file_end, queue.first, queue.end, *edges) if edge > place) - place
            yield place, amount
            place += amount

    def _reason(
        self, queue: QueueMap, place: int, physical_offset: int, *, behind: bool
    ) -> tuple[str, str, int | None] | None:
        if queue.is_batch:
            kind = "consumequeue.behind-log" if behind else "consumequeue.missing-unit"
            return kind, queue.directory, None
        slot = place // queue.units_per_file * queue.units_per_file
        file = next((candidate for candidate in queue.files if candidate.first == slot), None)
        if behind and place >= queue.end:
            return "consumequeue.behind-log", queue.position(place)[0], None
        if any(low <= place < high for low, high in (*queue.bad_files, *queue.absent_files)):
            return None
        if file is None:
            path = f"{queue.directory}/{segment_name(slot * UNIT_SIZE)}"
            return "consumequeue.missing-file", path, None
        if any(low <= place < high for low, high in queue.zero_files):
            return ("consumequeue.zero-file", file.path, 0) if place >= queue.end else None
        if place >= queue.end:
            return "consumequeue.missing-unit", file.path, (queue.end - file.first) * UNIT_SIZE
        if any(low <= place < high for low, high in (*queue.gaps, *queue.dead)):
            return None
        # A unit stands in the message's place.
        missing = "consumequeue.missing-unit", *queue.position(place)
        _, units = queue.read(self._context.open_file, place, place + 1)
        if not len(units) or tuple(units[0].tolist()) == FILLER_UNIT or self._reads_left <= 0:
            return missing
        if int(units[0]["physical_offset"]) < self._context.store.commitlog[0].start:
            return missing  # as if the message had expired, which is no fault by itself
        self._reads_left -= 1
        try:
            record = read_record(self._log, int(units[0]["physical_offset"]))
        except UnreadableError:
            return None
        if record is None or record.topic != queue.topic or record.queue_id != queue.queue_id:
            return None  # what is wrong with that unit is a finding of its own
        if record.queue_offset != place:
            return missing
        if record.physical_offset != record.place.physical_offset:
            return None
        segment = self._context.log_segment(physical_offset)
        return "commitlog.queue-offset-repeated", segment.path, physical_offset - segment.start

    def _finding(
        self, queue: QueueMap, kind: str, path: str, places: list[tuple[int, int, int, int | None]]
    ) -> Finding:
        count = sum(amount for _, amount, _, _ in places)
        first, last = places[0][0], places[-1][0] + places[-1][1] - 1
        messages = f"{count} messages" if count > 1 else "a message"
        text = {
            "consumequeue.behind-log": f"{messages} of the commit log not dispatched yet",
            "consumequeue.missing-file": f"the file is missing; {messages} of the commit log belong in it",
            "consumequeue.zero-file": f"the file holds only zeros; {messages} of the commit log belong in it",
            "consumequeue.missing-unit": f"{messages} of the commit log without a unit",
            "commitlog.queue-offset-repeated": f"another record of {queue.name} has the same queue offset",
        }[kind]
        return finding(
            kind,
            path,
            text,
            file_position=places[0][3],
            physical_offset=places[0][2],
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=first,
            count=count,
            found=f"queue offsets {first} to {last}" if count > 1 else None,
        )


def second_findings(context: VerifyContext, runs: Sequence[Missing], whole: SplitResult | None) -> Iterator[Finding]:
    """Findings about the database of this context from the log: the runs are messages that it lacks of what was
    checked, which `whole` has if it is all of the log.
    """
    database = context.store.second_database
    assert database is not None, "its queues are in the context"
    yield from units_below(context)
    # The database lacks what came when it had their queue already; what came before is older than it.
    due: list[Missing] = []
    older: Counter[QueueName] = Counter()
    for run in runs:
        name = _name(run)
        minimum, units = database.ends.get(name, StoredEnds()).minimum, database.units.get(name)
        begins = [*([minimum.queue_offset] if minimum else []), *([units.first] if units else [])]
        begin = min(begins, default=0 if name in database.names else OFFSETS_END)
        older_count = min(run.message_count, max(0, begin - run.queue_offset))
        older[name] += older_count
        if older_count < run.message_count:
            rest = run.message_count - older_count
            due.append(run._replace(queue_offset=run.queue_offset + older_count, message_count=rest))
    yield from missing_findings(context, due)
    older = +older
    if older:
        topic, queue_id = min(older)
        text = f"the database lacks the first messages of queues in files: {older.total()} in queues: {len(older)}"
        yield finding(
            "rocksdb.lacks-older-units", database.directory, text, count=older.total(), topic=topic, queue_id=queue_id
        )
    if whole is not None and context.live_end is None:
        yield from units_ahead(context, max(whole.scanned_end, whole.end))
        yield from log_end_findings(database, whole.end)


def missing_in_files(context: VerifyContext, runs: Sequence[Missing]) -> list[Missing]:
    """Messages without a unit in files that should have one there; light queues may be in the database alone."""
    database = context.store.second_database
    if database is None:
        return list(runs)
    return [
        run
        for run in runs
        if not topic_text(run.topic).startswith(LMQ_PREFIX)
        or run.queue[:2] in context.queues
        or _name(run) not in database.names
    ]


def _name(run: Missing) -> QueueName:
    return topic_text(run.topic), run.queue_id
