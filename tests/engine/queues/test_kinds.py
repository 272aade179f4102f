"""A further kind of queue is read once it is an entry in `KINDS`: one file and one line, as CONTRIBUTING says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing

import pytest

from rmqtool.browse.browsed_store import BrowsedStore
from rmqtool.engine.queues import kinds
from rmqtool.engine.queues.kinds import KINDS, QueueKind, QueueSource
from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.queues.unit import Boundary, QueueUnit
from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.reading.summary import summarize
from rmqtool.engine.rules.versions import rules_for
from rmqtool.engine.segments.log import Log
from rmqtool.formats.queue_name import QueueName
from rmqtool.store.directory import Store
from tests.engine.memory_view import log_file, made_store, queue_file, record

VERSION = "5.5.0"
LOG_FILE = 4096
SIZE = len(record(0))
LINES = "lines/T/1"


class LineQueue(Queue):
    """Units as lines of a text file: physical offset, size, store time."""

    unit_size = 1
    loaded = None

    def __init__(self, source: QueueSource, name: QueueName) -> None:
        self.topic, self.queue_id = name
        text = source.files.read(LINES, 0, 1000).decode()
        self._rows = [tuple(map(int, line.split())) for line in text.splitlines()]

    @property
    def min_queue_offset(self) -> int:
        return 0

    @property
    def max_queue_offset(self) -> int:
        return len(self._rows)

    def units_from(self, queue_offset: int, max_count: int | None = None) -> Iterator[QueueUnit] | None:
        end = len(self._rows) if max_count is None else queue_offset + max_count
        units = map(self.unit_at, range(queue_offset, min(end, len(self._rows))))
        return (unit for unit in units if unit is not None)

    def unit_at(self, queue_offset: int) -> QueueUnit | None:
        if not 0 <= queue_offset < len(self._rows):
            return None
        return QueueUnit(queue_offset, *self._rows[queue_offset][:2], 0)

    def next_file_queue_offset(self, queue_offset: int) -> int:
        del queue_offset
        return len(self._rows)

    def last_record(self) -> tuple[int, int] | None:
        return self._rows[-1][:2]

    def offset_by_time(self, log: Log, timestamp_ms: int, boundary: Boundary) -> int:
        del log, boundary
        return sum(time < timestamp_ms for _, _, time in self._rows)


def line_queues(store: Store) -> Iterable[QueueName]:
    return [("T", 1)] if store.view.stat(LINES) is not None else []


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """Four messages: the first and the third in a plain queue, the others in one of lines."""
    places = [number * SIZE for number in range(4)]
    raw = [record(place, store_timestamp_ms=1000 + number) for number, place in enumerate(places)]
    files = {
        "commitlog/00000000000000000000": log_file(raw, LOG_FILE),
        "consumequeue/T/0/00000000000000000000": queue_file([(places[0], SIZE, 0), (places[2], SIZE, 0)], 200),
        LINES: "".join(f"{places[number]} {SIZE} {1000 + number}\n" for number in (1, 3)).encode(),
    }
    further = QueueKind(line_queues, lambda _: True, lambda source, name, _: LineQueue(source, name))
    monkeypatch.setattr(kinds, "KINDS", (*KINDS, further))
    return made_store(files, commitlog_file_size=LOG_FILE, consumequeue_file_size=200)


def test_messages_are_got_by_offset_and_by_time(store: Store) -> None:
    with closing(open_reader(store, rules_for(VERSION))) as reader:
        assert reader.queues() == (("T", 0), ("T", 1))
        answer = reader.get_message("T", 1, 0)
        assert [message.place.physical_offset for message in answer.messages] == [SIZE, 3 * SIZE]
        assert answer.next_begin_offset == 2
        assert reader.offset_in_queue_by_time("T", 1, 1002) == 1


def test_info_and_browse_show_it(store: Store) -> None:
    rules = rules_for(VERSION)
    queues = {(queue.topic, queue.queue_id): queue for queue in summarize(store, rules).queues}
    assert (queues["T", 1].min_queue_offset, queues["T", 1].max_queue_offset) == (0, 2)
    browsed = BrowsedStore(store, rules, "store")
    assert [row.physical_offset for row in browsed.rows(("T", 1), 0, 10)] == [SIZE, 3 * SIZE]
