"""How far `recover` looks: what the broker would read, and from there down as far as something is incomplete."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing

import numpy as np

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.topic_names import is_deletable
from rmqtool.forecast.forecast import scan_begin
from rmqtool.forecast.options import ForecastOptions
from rmqtool.formats.consumequeue import BATCH_UNIT, UNIT
from rmqtool.formats.queue_name import QueueName
from rmqtool.repair.derived.builder import first_entry_offset
from rmqtool.repair.derived.log_window import LogWindow, window_of
from rmqtool.scan.blocks import last_data_end
from rmqtool.store.directory import QueueFiles, Store
from rmqtool.store.source import read_range
from rmqtool.verify.catalog.finding import Finding


class WindowTooSmall(Exception):  # noqa: N818 - the reason to look again, and no error of this program
    """Something is incomplete that began before the window; `physical_offset` is where it did."""

    def __init__(self, physical_offset: int) -> None:
        super().__init__(physical_offset)
        self.physical_offset = physical_offset


def first_window(store: Store, rules: BrokerRules, options: ForecastOptions, shaped: Iterable[str]) -> LogWindow:
    """What the broker would read, the files whose length a step changes, and queue and index files of a wrong length.

    Args:
        shaped: paths of the log's files that steps of the repair change already.

    Raises:
        UnreadableError: a file that the broker reads first cannot be read.
    """
    begin = scan_begin(store, rules, options)
    if begin is None:
        return window_of(store, 0)
    paths = set(shaped)
    begins = [begin, *(segment.start for segment in store.commitlog if segment.path in paths)]
    return _settled(store, window_of(store, min(begins)))


def larger_window(store: Store, window: LogWindow, physical_offset: int) -> LogWindow:
    """The window that reaches to a place, and is at least twice as large: few rounds come to any place."""
    end = store.commitlog[-1].end
    if physical_offset >= window.begin:
        return window_of(store, 0)
    return _settled(store, window_of(store, max(0, min(physical_offset, window.begin - (end - window.begin)))))


def _settled(store: Store, window: LogWindow) -> LogWindow:
    """The window, larger where one of the files that it leaves out is not what it should be."""
    while window.needs is not None:
        if window.needs >= window.begin:
            return window_of(store, 0)
        window = window_of(store, window.needs)
    return window


def demand_told(window: LogWindow, findings: Sequence[Finding]) -> None:
    """Refuse a window whose first index file, or a queue with a file of zeros, is wrong in what its log does not tell.

    Raises:
        WindowTooSmall: it is; of a queue of zeros only the whole log tells that it has no message.
    """
    if window.is_whole:
        return
    head = window.store.index_files[:1]
    for finding in findings if head else ():
        is_bad = finding.file == head[0].path and finding.id in (
            "index.bad-header",
            "index.bad-entry",
            "store.unreadable",
        )
        if is_bad or (finding.id == "index.missing-key" and not window.store.index_slot_count):
            raise WindowTooSmall(first_entry_offset(window.store))
    if any(finding.id == "consumequeue.zero-file" and finding.physical_offset is None for finding in findings):
        raise WindowTooSmall(0)


def demand_generations_known(window: LogWindow, names: Iterable[QueueName]) -> None:
    """Refuse a window for a queue without files: the whole log tells whether its topic was deleted and used again.

    Raises:
        WindowTooSmall: there is one.
    """
    if window.is_whole:
        return
    queues = {*window.store.queues, *window.store.batch_queues}
    if any(name not in queues and is_deletable(name[0]) for name in names):
        raise WindowTooSmall(0)


def named_queues(queues: Iterable[Finding], rebuilt: AbstractSet[QueueName]) -> set[QueueName] | None:
    """The queues that findings are about, and those named beside them, by topic and queue id; None for all."""
    names = set(rebuilt)
    for finding in queues:
        if finding.topic is None or finding.queue_id is None:
            return None
        names.add((finding.topic, finding.queue_id))
    return names


def queues_reaching(store: Store, log_end: int) -> set[QueueName]:
    """The queues, by topic and queue id, that have a unit for a record from a physical offset on.

    Raises:
        UnreadableError: a queue's file may not be read.
    """
    plain, batch = store.queues.items(), store.batch_queues.items()
    plain_names = {name for name, queue in plain if _reaches(store, queue, log_end, UNIT.dtype)}
    return plain_names | {name for name, queue in batch if _reaches(store, queue, log_end, BATCH_UNIT.dtype)}


def _reaches(store: Store, queue: QueueFiles, log_end: int, form: np.dtype[np.void]) -> bool:
    for segment in reversed(queue.segments):
        with closing(store.view.open(segment.path)) as source:
            end = -(-last_data_end(source, 0, source.size) // form.itemsize) * form.itemsize
            raw = read_range(source, 0, end)
        units = np.frombuffer(raw[: len(raw) // form.itemsize * form.itemsize], form)
        if (units["physical_offset"] >= log_end).any():
            return True
        if units.size and 0 <= units["physical_offset"][0] < log_end and units["record_size"][0] > 0:
            return False
    return False
