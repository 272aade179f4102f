"""Delay levels: the offset at which a broker continues to deliver each, the delivered messages, and the checks.

Broker: `ScheduleMessageService#load`, `#correctDelayOffset`, `#messageTimeup`: a delivered message keeps unique key,
body, producer's time and number of attempts, and the properties that name its topic and queue.

What the log shows as delivered the check looks up only from where a broker would continue; `rebuild --delay-offsets`
looks up all of it.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.reading.reader import Reader, open_reader
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import finding
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.properties import REAL_QUEUE_ID, REAL_TOPIC, SCHEDULE_TOPIC, UNIQUE_KEY
from rmqtool.scan.runner import OnProgress
from rmqtool.scan.walk import Batch
from rmqtool.sides.queue_scan import (
    demand_in_queue,
    intact_messages,
    properties_with,
    queue_units,
    readable_record,
    record_at,
)
from rmqtool.store.config.config_json import delay_offsets
from rmqtool.store.config.config_kinds import DELAY_OFFSETS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Store

NOT_DELIVERED: Final = -1
_MARK: Final = REAL_TOPIC.encode() + b"\x01"
_QUEUE_ID_DIGITS_MAX: Final = 10
_SHOWING: Final = 64
"""Units of a level that are asked for its delay."""
_NUMBERS: Final = ("reconsume_times", "born_timestamp_ms", "body_crc")
LEVEL_MISSING: Final = "config.delay-level-missing"
REPEATS: Final = "config.delay-offset-behind"
CRASH_MS: Final = 60_000
"""A broker writes the offsets every ten seconds and when it stops, so only a crash leaves them a little behind."""


@dataclass(frozen=True)
class DelayLevel:
    """A delay level whose queue has messages.

    Attributes:
        stored: its offset in `config/delayOffset.json`; None where that has none.
        first: queue offset of the first message that was looked up in the log; the rest follow without a gap.
        delivered_ms: for each of them when it was delivered; `NOT_DELIVERED` where the log does not show it, 0 for
            what no broker can deliver.
        skipped: messages before the stored offset whose time was still to come when the log ended.
    """

    level: int
    begin: int
    end: int
    stored: int | None
    first: int
    delivered_ms: NDArray[np.int64]
    skipped: int = 0

    @property
    def start(self) -> int:
        """The queue offset from which a broker delivers after a start."""
        return min(max(self.stored or 0, self.begin), self.end)

    @property
    def right(self) -> int:
        """The queue offset of the first message that was looked up and was not delivered, else after the last one."""
        open_ones = np.flatnonzero(self.delivered_ms == NOT_DELIVERED)
        return self.first + (int(open_ones[0]) if len(open_ones) else len(self.delivered_ms))

    def delivered_from(self, queue_offset: int) -> NDArray[np.int64]:
        """When those from a queue offset on were delivered that were."""
        later = self.delivered_ms[max(0, queue_offset - self.first) :]
        return later[later > 0]

    @property
    def missed(self) -> int:
        """Number of messages before the start that the log does not show as delivered."""
        before = self.delivered_ms[: max(0, self.start - self.first)]
        return int((before == NOT_DELIVERED).sum())


class _Rows(NamedTuple):
    """Messages of a level that are looked up: a hash of each one's key, 0 where there is none, and its offset."""

    queue: Queue
    first: int
    skipped: int
    hashes: array[int]
    positions: array[int]


def delay_levels(
    reader: Reader, *, whole: bool, newest_ms: int | None = None, on_progress: OnProgress | None = None
) -> list[DelayLevel]:
    """The levels whose queues have messages, and which of these were delivered.

    Args:
        whole: look up all messages; else those from where a broker would deliver that were due before the log ended.
        newest_ms: when the last message was stored; None: it is read from the queues.

    Raises:
        UnsupportedError: the log is damaged, so that nobody knows what was delivered.
    """
    stored = delay_offsets(read_config(reader.store.view, DELAY_OFFSETS))
    queue_ids = sorted(queue_id for topic, queue_id in reader.queues() if topic == SCHEDULE_TOPIC)
    queues = [queue for number in queue_ids if (queue := reader.queue(SCHEDULE_TOPIC, number)).max_queue_offset]
    if newest_ms is None:
        newest_ms = newest_store_ms(reader)
    levels = []
    for queue in queues:
        begin, end = queue.min_queue_offset, queue.max_queue_offset
        start = min(max(stored.get(queue.queue_id + 1) or 0, begin), end)
        first = begin if whole else start
        hashes, positions = array("q"), array("q")
        skipped = sum(
            unit.stored_tags_code > newest_ms and unit.physical_offset >= reader.log.minimum
            for unit in queue_units(queue, begin, start)
        )
        for unit in queue_units(queue, first, end):
            if not whole and unit.stored_tags_code > newest_ms:
                break  # messages of a level are due in the order of their queue
            record = record_at(reader, unit.physical_offset) if unit.physical_offset >= reader.log.minimum else None
            if record is None or record.topic != SCHEDULE_TOPIC:
                hashes.append(0)  # a broker skips what cannot be read
            else:
                numbers = (record.reconsume_times, record.born_timestamp_ms, record.body_crc)
                hashes.append(_hash(record.properties, numbers))
            positions.append(unit.physical_offset)
        levels.append(_Rows(queue, first, skipped, hashes, positions))
    return [
        DelayLevel(
            rows.queue.queue_id + 1, rows.queue.min_queue_offset, rows.queue.max_queue_offset,
            stored.get(rows.queue.queue_id + 1), rows.first, delivered_ms, rows.skipped,
        )
        for rows, delivered_ms in zip(levels, _delivered(reader, levels, whole, on_progress), strict=True)
    ]  # fmt: skip


def shown_delays(reader: Reader) -> dict[int, int]:
    """Milliseconds from storing to delivery, by level, as the last units of the levels' queues show them.

    A level is left out whose units do not agree, or show no whole seconds, as a damaged unit would.
    """
    shown: dict[int, int] = {}
    for queue_id in [queue_id for topic, queue_id in reader.queues() if topic == SCHEDULE_TOPIC]:
        delays: Counter[int] = Counter()
        with suppress(UnreadableError, UnsupportedError):
            queue = reader.queue(SCHEDULE_TOPIC, queue_id)
            end = queue.max_queue_offset
            for unit in queue_units(queue, end - _SHOWING, end):
                record = record_at(reader, unit.physical_offset) if unit.physical_offset >= reader.log.minimum else None
                if record is not None and (record.topic, record.queue_offset) == (SCHEDULE_TOPIC, unit.queue_offset):
                    delays[unit.stored_tags_code - record.store_timestamp_ms] += 1
        for delay_ms, count in delays.most_common(1):
            if delay_ms > 0 and delay_ms % 1000 == 0 and count * 2 > delays.total():
                shown[queue_id + 1] = delay_ms
    return shown


def newest_store_ms(reader: Reader) -> int:
    """When the last message was stored that is in a queue; 0 where there is none."""
    places = [last for name in reader.queues() if (last := reader.queue(*name).last_record()) is not None]
    for physical_offset, _ in sorted(places, reverse=True)[:8]:
        record = readable_record(reader, physical_offset)
        if record is not None:
            return record.store_timestamp_ms
    return 0


def _hash(properties: Mapping[str, str], numbers: tuple[int, ...]) -> int:
    """Hash of the parts of a message that delivery does not change; never 0."""
    queue_id = properties.get(REAL_QUEUE_ID, "")
    queue_id = queue_id if queue_id.isascii() and len(queue_id) <= _QUEUE_ID_DIGITS_MAX else ""
    return hash((properties.get(REAL_TOPIC, ""), queue_id, properties.get(UNIQUE_KEY, ""), numbers)) or 1


def _delivered(
    reader: Reader, levels: list[_Rows], whole: bool, on_progress: OnProgress | None
) -> list[NDArray[np.int64]]:
    """Delivery time of each row of each level. Of messages with one key the first ones in the log were delivered."""
    hashes = np.concatenate([np.empty(0, "i8"), *(np.array(rows.hashes, "i8") for rows in levels)])
    positions = np.concatenate([np.empty(0, "i8"), *(np.array(rows.positions, "i8") for rows in levels)])
    times = np.where(hashes == 0, 0, NOT_DELIVERED)
    if whole or len(hashes):
        order = np.lexsort((positions, hashes))
        unique, firsts = np.unique(hashes[order], return_index=True)
        log_hashes, log_times = array("q"), array("q")
        sought, ends = set(unique.tolist()), {rows.queue.queue_id: rows.queue.max_queue_offset for rows in levels}
        start = 0 if whole else int(positions.min())
        for batch, good in intact_messages(reader.store, "delayed messages", start, on_progress):
            if whole:
                demand_in_queue(batch, good, SCHEDULE_TOPIC, ends, "the delay offsets")
            for row_hash, store_ms in _delivered_hashes(batch, good):
                if row_hash in sought:
                    log_hashes.append(row_hash)
                    log_times.append(max(store_ms, 1))
        log_order = np.lexsort((np.array(log_times, "i8"), np.array(log_hashes, "i8")))
        sorted_hashes, sorted_times = np.array(log_hashes, "i8")[log_order], np.array(log_times, "i8")[log_order]
        log_unique, log_firsts, counts = np.unique(sorted_hashes, return_index=True, return_counts=True)
        ranks = np.arange(len(order)) - np.repeat(firsts, np.diff(np.append(firsts, len(order))))
        at = np.searchsorted(log_unique, hashes[order])
        known = at < len(log_unique)
        known[known] = log_unique[at[known]] == hashes[order][known]
        known[known] = ranks[known] < counts[at[known]]
        times[order[known]] = sorted_times[log_firsts[at[known]] + ranks[known]]
    return np.split(times, np.cumsum([len(rows.hashes) for rows in levels])[:-1]) if levels else []


def _delivered_hashes(batch: Batch, rows: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Hash and store time of the messages that were delivered under their own topic."""
    names = [decode_java_utf8(raw) for raw in batch.topics]
    waiting = [number for number, name in enumerate(names) if name == SCHEDULE_TOPIC]
    chosen = rows[~np.isin(rows["topic_number"], waiting)]
    if not len(chosen) or not batch.may_hold(_MARK):
        return
    topics, store_ms = chosen["topic_number"].tolist(), chosen["store_timestamp_ms"].tolist()
    numbers = list(zip(*(chosen[name].tolist() for name in _NUMBERS), strict=True))
    for row, properties in properties_with(batch, chosen, _MARK):
        if properties.get(REAL_TOPIC) == names[topics[row]]:
            yield _hash(properties, numbers[row]), store_ms[row]


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
                stored = level.stored
                if stored is not None and stored > level.end:
                    text = f"level {level.level} is at {stored}, past the end of its queue at {level.end}"
                    expected = f"at most {level.end}"
                    yield _at(level, "config.delay-offset-ahead", text, max(1, level.skipped), expected)
                elif level.skipped:
                    skipped = f"{level.skipped} messages whose time was still to come"
                    text = f"level {level.level} is at {stored}, after {skipped}"
                    yield _at(level, "config.delay-offset-ahead", text, level.skipped)
                again = level.delivered_from(level.start)
                if len(again):
                    is_old = not store.has_abort or newest_ms - int(again.min()) > CRASH_MS
                    kind = "config.delay-offset-outdated" if is_old else REPEATS
                    begins = f"is at {stored}" if stored is not None else "has no offset"
                    text = f"level {level.level} {begins}; messages that were delivered already: {len(again)}"
                    yield _at(level, kind, text, len(again), str(level.right))
                waiting = level.end - level.start - len(again)
                if level_count is not None and level.level > level_count and waiting:
                    text = f"level {level.level} has messages to deliver: {waiting}; levels configured: {level_count}"
                    yield _at(level, LEVEL_MISSING, text, waiting)
    except UnsupportedError:
        return  # damage of the log, which has findings of its own
    except UnreadableError as error:
        yield finding("store.unreadable", DELAY_OFFSETS, str(error))


def _at(level: DelayLevel, kind: str, text: str, count: int, expected: str | None = None) -> Finding:
    return finding(
        kind, DELAY_OFFSETS, text, topic=SCHEDULE_TOPIC, queue_id=level.level - 1, queue_offset=level.start,
        count=count, expected=expected, found=None if level.stored is None else str(level.stored),
    )  # fmt: skip
