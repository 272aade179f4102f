"""Checks the offsets of the delay levels: what a broker would deliver a second time, or never.

What the log shows as delivered is looked up only from where a broker would continue; `rebuild --delay-offsets` looks up
all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.timers.delays import DelayLevel, delay_levels, newest_store_ms
from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.formats.properties import SCHEDULE_TOPIC
from rmqtool.store.config.config_json import DELAY_OFFSETS
from rmqtool.store.directory import Store
from rmqtool.verify.catalog.finding import Finding
from rmqtool.verify.catalog.registry import finding

LEVEL_MISSING: Final = "config.delay-level-missing"
REPEATS: Final = "config.delay-offset-behind"
CRASH_MS: Final = 60_000
"""A broker writes the offsets every ten seconds and when it stops, so only a crash leaves them a little behind."""


def delay_findings(store: Store, rules: BrokerRules, level_count: int | None = None) -> Iterator[Finding]:
    """Findings about the offsets of levels whose queues have messages; none where the queues are not read.

    Args:
        level_count: levels that the broker is configured to have; None where nothing tells.
    """
    if not store.commitlog or not any(topic == SCHEDULE_TOPIC for topic, _ in store.queues):
        return
    try:
        with open_reader(store, rules) as reader:
            newest_ms = newest_store_ms(reader)
            for level in delay_levels(reader, whole=False, newest_ms=newest_ms):
                yield from _of_level(level, newest_ms, is_clean=not store.has_abort)
                waiting = level.end - level.start - len(level.delivered_from(level.start))
                if level_count is not None and level.level > level_count and waiting:
                    text = f"level {level.level} has messages to deliver: {waiting}; levels configured: {level_count}"
                    yield _at(level, LEVEL_MISSING, text, waiting, None)
    except UnsupportedError:
        return  # damage of the log, which has findings of its own
    except UnreadableError as error:
        yield finding("store.unreadable", DELAY_OFFSETS, str(error))


def _of_level(level: DelayLevel, newest_ms: int, *, is_clean: bool) -> Iterator[Finding]:
    stored = level.stored
    if stored is not None and stored > level.end:
        text = f"level {level.level} is at {stored}, past the end of its queue at {level.end}"
        yield _at(level, "config.delay-offset-ahead", text, max(1, level.skipped), f"at most {level.end}")
    elif level.skipped:
        text = f"level {level.level} is at {stored}, after {level.skipped} messages whose time was still to come"
        yield _at(level, "config.delay-offset-ahead", text, level.skipped, None)
    again = level.delivered_from(level.start)
    if len(again):
        is_old = is_clean or newest_ms - int(again.min()) > CRASH_MS
        kind = "config.delay-offset-outdated" if is_old else REPEATS
        begins = f"is at {stored}" if stored is not None else "has no offset"
        text = f"level {level.level} {begins}; messages that were delivered already: {len(again)}"
        yield _at(level, kind, text, len(again), str(level.right))


def _at(level: DelayLevel, kind: str, text: str, count: int, expected: str | None) -> Finding:
    return finding(
        kind, DELAY_OFFSETS, text, topic=SCHEDULE_TOPIC, queue_id=level.level - 1, queue_offset=level.start,
        count=count, expected=expected, found=None if level.stored is None else str(level.stored),
    )  # fmt: skip
