"""Checks the revive topics of pop consumers: what stops a broker there, and what it cannot deliver again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.versions import BrokerRules
from rmqtool.engine.timers.pop import PopState, popped_messages, read_pop_log
from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.formats.pop import REVIVE_TOPIC
from rmqtool.store.directory import Store
from rmqtool.verify.catalog.finding import Finding
from rmqtool.verify.catalog.registry import finding

_FINDINGS_MAX: Final = 100


def pop_findings(store: Store, rules: BrokerRules) -> Iterator[Finding]:
    """Findings about the records of revive topics from where a broker continues; none without such topics."""
    try:
        with open_reader(store, rules) as reader:
            if not rules.timer or not any(topic.startswith(REVIVE_TOPIC) for topic, _ in reader.queues()):
                return
            # What waits in the timer comes to these topics once its time is over.
            log = read_pop_log(reader, ())
            for record in log.bad_records[:_FINDINGS_MAX]:
                place: dict[str, Any] = {"queue_offset": record.queue_offset}
                place["physical_offset"] = record.place.physical_offset
                yield _at(
                    "pop.bad-record", "no check point and no acknowledgement", record.topic, record.queue_id, place
                )
            expired = Counter(
                (message.check_point.body.key.topic, message.check_point.body.key.queue_id)
                for message in popped_messages(reader, log)
                if message.state is PopState.EXPIRED and log.is_due(message.check_point)
            )
            for (topic, queue_id), count in expired.items():
                yield _at("pop.expired-message", "no consumer acknowledged them", topic, queue_id, {"count": count})
    except UnsupportedError:
        return  # queues that are not read, which has a finding of its own
    except UnreadableError as error:
        yield finding("store.unreadable", f"consumequeue/{REVIVE_TOPIC}", str(error))


def _at(kind: str, text: str, topic: str, queue_id: int, more: dict[str, Any]) -> Finding:
    return finding(kind, f"consumequeue/{topic}/{queue_id}", text, topic=topic, queue_id=queue_id, **more)
