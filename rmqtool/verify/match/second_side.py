"""Compares the database of a store that has its queues in files too with the log.

Broker: `CombineConsumeQueueStore` (5.4.0 and later), `RocksDBMessageStore#loadAndStartConsumerServiceOnly` (before).

A database may be younger than the queues, and from 5.5.1 on it may have topics of one type only
(`rocksdbCQSelectiveDoubleWriteEnable`); from 5.5.0 on queues of multi-dispatch may be in it alone
(`combineCQUseRocksdbForLmq`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rmqtool.engine.rules.topic_names import LMQ_PREFIX
from rmqtool.formats.queue_name import QueueName, topic_text
from rmqtool.quantities import OFFSETS_END
from rmqtool.store.databases.queue_database import QueueDatabase, StoredEnds
from rmqtool.verify.catalog.finding import Finding
from rmqtool.verify.catalog.registry import finding
from rmqtool.verify.files.reach import units_ahead, units_below
from rmqtool.verify.match.missing_units import missing_findings
from rmqtool.verify.survey.context import VerifyContext
from rmqtool.verify.survey.database_pass import log_end_findings
from rmqtool.verify.survey.result import Missing, SplitResult


def second_findings(context: VerifyContext, runs: Sequence[Missing], whole: SplitResult | None) -> Iterator[Finding]:
    """What the log says about the database.

    Args:
        context: of the database.
        runs: messages that it lacks of what was checked of the log.
        whole: what was checked, where that is all of the log.
    """
    database = context.store.second_database
    assert database is not None, "its queues are in the context"
    yield from units_below(context)
    yield from missing_findings(context, list(_due(database, runs)))
    yield from _older(database, runs)
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


def _begin_of(database: QueueDatabase, name: QueueName) -> int:
    """The first queue offset that a queue of the database has; those before it may be older than the database."""
    minimum, units = database.ends.get(name, StoredEnds()).minimum, database.units.get(name)
    begins = [*([minimum.queue_offset] if minimum else []), *([units.first] if units else [])]
    return min(begins, default=0 if name in database.names else OFFSETS_END)


def _due(database: QueueDatabase, runs: Sequence[Missing]) -> Iterator[Missing]:
    """The messages that came when the database had their queue already."""
    for run in runs:
        skipped = max(0, _begin_of(database, _name(run)) - run.queue_offset)
        if skipped < run.message_count:
            yield run._replace(queue_offset=run.queue_offset + skipped, message_count=run.message_count - skipped)


def _older(database: QueueDatabase, runs: Sequence[Missing]) -> Iterator[Finding]:
    """The messages that came before the database had their queue, if it has it now."""
    counts: Counter[QueueName] = Counter()
    for run in runs:
        counts[_name(run)] += min(run.message_count, max(0, _begin_of(database, _name(run)) - run.queue_offset))
    counts = +counts
    if counts:
        topic, queue_id = min(counts)
        text = f"the database lacks the first messages of queues in files: {counts.total()} in queues: {len(counts)}"
        yield finding(
            "rocksdb.lacks-older-units", database.directory, text, count=counts.total(), topic=topic, queue_id=queue_id
        )


def _name(run: Missing) -> QueueName:
    return topic_text(run.topic), run.queue_id
