"""Tells messages that somebody removed from messages that a queue lacks: those of deleted topics.

A broker deletes the queues of a topic and its entry in the configuration, and the records stay in the log until they
expire. Where the topic is made again, its queues begin again too, so the log has two generations of it. A record
without a unit is of a removed one if the whole configuration does not have its topic, or if it lies in the log before
the place where a queue of its topic began again: there a unit, at its own record's queue offset, has a place that an
older record without a unit had before, or one before that. What comes after a record of which its own queue has the
unit continues that queue, though: a start after a deletion enters some removed records again, and the broker continues.

Broker: `AdminBrokerProcessor#deleteTopic`, `DefaultMessageStore#cleanUnusedTopic`, `#deleteTopics`.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from rmqtool.engine.reading.record import read_record
from rmqtool.engine.rules.topic_names import is_deletable, may_be_deleted
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError
from rmqtool.findings.finding import Finding
from rmqtool.formats.queue_name import TypedQueueKey, topic_bytes, topic_text
from rmqtool.quantities import OFFSETS_END
from rmqtool.report.text import counted, size_text
from rmqtool.store.config.config_json import consumer_offsets
from rmqtool.store.config.config_kinds import CONSUMER_OFFSETS, TOPICS
from rmqtool.store.config.read_config import read_config
from rmqtool.verify.survey.context import VerifyContext
from rmqtool.verify.survey.queue_map import QueueMap
from rmqtool.verify.survey.result import Missing

RESTORE: Final = "rebuild --restore-deleted"
DELETED: Final = "topic.deleted"
MAY_BE_DELETED: Final = "topic.may-be-deleted"
GROUPS_NAMED_MAX: Final = 5


@dataclass
class RemovedMessages:
    """The messages without a unit of a log: those that a queue lacks, those of deleted topics, and those of topics that
    may be deleted; with where the removed generations of a topic end, or all of one that is not configured.
    """

    lacking: list[Missing] = field(default_factory=list)
    removed: list[Missing] = field(default_factory=list)
    doubtful: list[Missing] = field(default_factory=list)
    ends: dict[bytes, int] = field(default_factory=dict)

    @property
    def last_physical_offset(self) -> int:
        """Of the last message that need not be in a queue; -1 without one."""
        return max((run.last_physical_offset for run in (*self.removed, *self.doubtful)), default=-1)

    def explains(self, filler: Finding) -> bool:
        """True if the messages before a queue's first unit, where filler is, were removed and none is lacking."""
        topic = topic_bytes(filler.topic or "")
        queues = {run.queue[:2] for run in self.lacking}
        return filler.queue_offset == 0 and topic in self.ends and (topic, filler.queue_id) not in queues

    def findings(self, context: VerifyContext) -> Iterator[Finding]:
        """One for each topic: a note, but where it is in doubt whether the topic was deleted."""
        # Brokers before 5.0 keep the offsets of consumer groups when a topic is deleted.
        groups: defaultdict[str, list[str]] = defaultdict(list)
        if self.removed or self.doubtful:
            for topic_name, group in sorted(consumer_offsets(read_config(context.store.view, CONSUMER_OFFSETS))):
                groups[topic_name].append(group)
        for topic, runs in _by_topic(self.removed):
            is_again, name = self.ends[topic] < OFFSETS_END, topic_text(topic)
            what = f"the deleted topic {name}{', whose name is used again' if is_again else ''}"
            last = max(run.last_physical_offset for run in runs)
            after = f"until {context.log_segment(last).path} expires"
            after += "" if is_again else f"; rmqtool rebuild --topic {shlex.quote(name)} brings the topic back"
            repair = None if is_again else RESTORE
            yield _of_topic(DELETED, context, runs, f"{what}, {after}", groups[name], repair)
        for topic, runs in _by_topic(self.doubtful):
            name = topic_text(topic)
            what = f"topic {name}, which has no queue; no whole {TOPICS} shows whether it was deleted"
            yield _of_topic(MAY_BE_DELETED, context, runs, what, groups[name], None)


def _by_topic(runs: Sequence[Missing]) -> list[tuple[bytes, list[Missing]]]:
    by_topic: defaultdict[bytes, list[Missing]] = defaultdict(list)
    for run in runs:
        by_topic[run.topic].append(run)
    return sorted(by_topic.items())


def _of_topic(
    kind: str, context: VerifyContext, runs: Sequence[Missing], what: str, groups: Sequence[str], repair: str | None
) -> Finding:
    first = min(run.physical_offset for run in runs)
    count, size = sum(run.message_count for run in runs), sum(run.byte_count for run in runs)
    text = f"{counted(count, 'message')} ({size_text(size)}) of {what}"
    if groups:
        more = "" if len(groups) <= GROUPS_NAMED_MAX else ", ..."
        text += f"; {CONSUMER_OFFSETS} has offsets of it for {', '.join(groups[:GROUPS_NAMED_MAX])}{more}"
    topic = topic_text(runs[0].topic)
    return context.log_finding(kind, first, text, length=size, topic=topic, count=count, repair=repair)


def removed_messages(context: VerifyContext, runs: Sequence[Missing]) -> RemovedMessages:
    """Tell messages without a unit, of the whole log or of a range of it, apart."""
    if not context.has_all_queues or not runs:
        return RemovedMessages(list(runs))
    if context.shown_topics is not None:  # a topic with queues is taken for configured
        told = RemovedMessages()
        # What waits for its dispatch is not in doubt: a start enters it.
        waiting = {run.topic for run in runs}
        waiting -= {run.topic for run in runs if run.physical_offset < context.dispatched_end}
        for run in runs:
            is_doubtful = may_be_deleted(topic_text(run.topic), context.shown_topics) and run.topic not in waiting
            (told.doubtful if is_doubtful else told.lacking).append(run)
    elif context.whole_topics is not None:
        told = RemovedMessages(list(runs))
        names = {run.topic for run in runs}
        told.ends = {name: OFFSETS_END for name in names - context.whole_topics if is_deletable(topic_text(name))}
    else:
        return RemovedMessages(list(runs))
    told.ends |= _starts_again(context, [run for run in told.lacking if run.topic not in told.ends])
    lacking, told.lacking = told.lacking, []
    for run in lacking:
        end = told.ends.get(run.topic, 0)
        is_removed = run.last_physical_offset < end
        if is_removed and end != OFFSETS_END:
            # They continue a queue that has a unit of a message before them.
            queue = context.queue(run.queue)
            is_removed = queue is None or not (queue.units.runs["first"] < run.physical_offset).any()
        (told.removed if is_removed else told.lacking).append(run)
    return told


def _starts_again(context: VerifyContext, runs: Sequence[Missing]) -> dict[bytes, int]:
    """Physical offset at which the first queue of each topic began again; topics without one are left out."""
    by_queue: defaultdict[TypedQueueKey, list[Missing]] = defaultdict(list)
    for run in runs:
        if is_deletable(topic_text(run.topic)):
            by_queue[run.queue].append(run)
    again: dict[bytes, int] = {}
    old_ends: dict[bytes, int] = {}
    fronts: list[Missing] = []
    restarts: list[Missing] = []
    with OpenFiles(context.store.view) as files:
        log = Log(context.store, context.rules, files)
        for key, queue_runs in by_queue.items():
            queue = context.queue(key)
            start = _live_start(context, log, key, queue) if queue is not None and len(queue.units.runs) else None
            # Messages from the first place of a queue on, after others of it; one alone may have a wrong header.
            first = min(run.physical_offset for run in queue_runs)
            restarts += [run for run in queue_runs if run.queue_offset == 0 and run.physical_offset > first][-1:]
            if start is None:
                continue
            queue_offset, physical_offset = start
            before = [run for run in queue_runs if run.physical_offset < physical_offset]
            # These had the first place of a queue, or later ones, before the message that has it now.
            old = [run for run in before if run.queue_offset + run.message_count > queue_offset]
            if old:
                again[key[0]] = min(physical_offset, again.get(key[0], OFFSETS_END))
                old_ends[key[0]] = max(old_ends.get(key[0], -1), *(run.last_physical_offset for run in old))
            # And these are the first ones of a queue, up to the one that is its first now.
            fronts += [run for run in before if (run.queue_offset, run.message_count) == (0, queue_offset)]
    for topic, runs_of in _by_topic(restarts):
        if topic not in again and sum(run.message_count for run in runs_of) > 1:
            again[topic] = min(run.physical_offset for run in runs_of)
    for run in fronts:  # new messages that no start has entered
        if old_ends.get(run.topic, OFFSETS_END) < run.physical_offset:
            again[run.topic] = min(run.physical_offset, again[run.topic])
    return again


def _live_start(context: VerifyContext, log: Log, key: TypedQueueKey, queue: QueueMap) -> tuple[int, int] | None:
    """Queue offset of the first unit that leads into the log, and where its record lies, if that confirms it."""
    place, physical_offset = int(queue.units.runs["begin"][0]), int(queue.units.runs["first"][0])
    try:
        if queue.is_batch:
            _, units = queue.read(context.open_file, place, place + 1)
            place = int(units["base_queue_offset"][0]) if len(units) else -1
        record = read_record(log, physical_offset)
    except UnreadableError:
        return None
    if record is None or record.physical_offset != physical_offset or record.body_crc_ok is False:
        return None
    own_place = record.topic_raw, record.queue_id, record.queue_offset
    return (place, physical_offset) if own_place == (*key[:2], place) else None
