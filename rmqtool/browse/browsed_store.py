"""The store as the browser reads it: one question at a time, whichever thread asks, and never for all of a queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqtool.browse.message_row import MessageRow, row_of_unit
from rmqtool.engine.queues.loaded_files import LoadedFiles, with_content
from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.queues.unit import Boundary, QueueUnit
from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.reading.stored_message import StoredMessage, message_of_unit
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import RmqtoolError, UsageError
from rmqtool.formats.message_id import message_ids
from rmqtool.formats.queue_name import QueueName
from rmqtool.scan.blocks import last_data_end
from rmqtool.store.directory import QueueFiles, Store
from rmqtool.store.source import Closable
from rmqtool.store.view import StoreView

if TYPE_CHECKING:
    from rmqtool.report.bodies import BodyDecoder

MISSING_BYTES_SHOWN: Final = 4096
"""Bytes that are shown of a place without a record."""
FOUND_MAX: Final = 64


class Bounds(NamedTuple):
    """Queue offsets of a queue.

    Attributes:
        first: of the first message that does not lie below the log.
        end: after the last unit that was ever written.
        served_end: where a broker ends the queue, which is before the first unit that is damaged.
    """

    first: int
    end: int
    served_end: int


class BrowsedStore(Closable):
    """A store with its reader. Every question raises RmqtoolError where what it needs cannot be read.

    Attributes:
        label: how a person calls the store.
        lock: held while the reader is asked.
    """

    def __init__(self, store: Store, rules: BrokerRules, label: str, decoder: BodyDecoder | None = None) -> None:
        self.store, self.rules, self.label, self.decoder = store, rules, label, decoder
        self.reader = open_reader(store, rules, quickly=True)
        self.lock = Lock()
        self._bounds: dict[QueueName, Bounds] = {}

    def queue_names(self) -> tuple[QueueName, ...]:
        """Topic and queue id of every queue."""
        return self.reader.queues()

    @property
    def problems(self) -> tuple[str, ...]:
        """Why not all of the store is shown, as sentences."""
        database = self.store.queue_database
        is_hidden = database is not None and database.failure is not None
        reasons = (f"consume queues in RocksDB: {database.reason}",) if database is not None and is_hidden else ()
        return (*reasons, *map(str, self.store.problems))

    def bounds(self, name: QueueName) -> Bounds:
        """Where a queue starts and ends."""
        with self.lock:
            if name not in self._bounds:
                queue = self.reader.queue(*name)
                first, served_end = max(0, queue.min_queue_offset), max(0, queue.max_queue_offset)
                files = self.store.queues.get(name) or self.store.batch_queues.get(name)
                if queue.loaded is not None and files is not None and _extend(queue.loaded, files, self.store.view):
                    queue.__dict__.pop("max_queue_offset", None)  # some kinds remember it
                self._bounds[name] = Bounds(first, max(first, queue.max_queue_offset), served_end)
            return self._bounds[name]

    def rows(self, name: QueueName, first: int, count: int) -> list[MessageRow]:
        """The rows of queue offsets from `first` on."""

        def row(queue_offset: int, unit: QueueUnit | str | None) -> MessageRow:
            if unit is None or isinstance(unit, str):
                return MessageRow(queue_offset, None, problem=unit or "no unit")
            try:
                return row_of_unit(name, queue_offset, unit, message_of_unit(self.reader.log, unit))
            except RmqtoolError as error:
                return MessageRow(queue_offset, unit.physical_offset, problem=str(error))

        with self.lock:
            queue = self.reader.queue(*name)  # with the bounds that it was given when it was opened
            return [row(*pair) for pair in _units(queue, first, first + count)]

    def offset_by_time(self, name: QueueName, timestamp_ms: int) -> int:
        """The queue offset of the first message that is not earlier."""
        with self.lock:
            return self.reader.offset_in_queue_by_time(*name, timestamp_ms, Boundary.LOWER)

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """The record or bytes at a physical offset; None outside the log."""
        with self.lock:
            message = self.reader.message_at(physical_offset)
            if message is not None and message.size:
                return message
            log = self.reader.log
            place = log.place(physical_offset)
            if place is None or not place.readable_length:
                return None
            return StoredMessage(min(MISSING_BYTES_SHOWN, place.readable_length), place, None, log)

    def messages_by_name(self, topic: str | None, text: str) -> list[StoredMessage]:
        """Messages with a message id of any form, or with a key in a topic."""
        digits = text.replace("-", "").replace("#", "")
        may_be_id = len(text) >= 28 and all(character in "0123456789abcdefABCDEF" for character in digits)
        with self.lock:
            for message_id in message_ids(text) if may_be_id else ():
                is_offset_id = len(message_id) in (32, 56)
                message = self.reader.message_by_id(message_id) if is_offset_id else None
                if message is not None and message.record is not None:
                    return [message]
                if (answer := self.reader.message_by_unique_key(message_id)) is not None:
                    return list(answer[1].messages)
            if topic is None:
                raise UsageError("a key belongs to a topic: choose one first (a message id does not)")
            return list(self.reader.query_message(topic, text, FOUND_MAX).messages)

    def close(self) -> None:
        """Close the store's files."""
        with self.lock:
            self.reader.close()


def _extend(loaded: LoadedFiles, files: QueueFiles, view: StoreView) -> bool:
    """Add the units after the one at which a broker ends the queue; return True if there are any."""
    segments = with_content(files.segments)
    for count in range(len(segments), 0, -1):
        segment = segments[count - 1]
        with closing(view.open(segment.path)) as source:
            data_end = last_data_end(source, 0, min(source.size, loaded.file_size))
        end = segment.start + data_end // loaded.kind.size * loaded.kind.size
        if data_end and end > loaded.end:
            loaded.segments, loaded.end = list(segments[:count]), end
            return True
        if data_end or segment.start < loaded.end:
            return False
    return False


def _units(queue: Queue, first: int, end: int) -> Iterator[tuple[int, QueueUnit | str | None]]:
    """The unit of each queue offset; a sentence where it cannot be read, None where there is none."""
    at = first
    end = min(end, queue.max_queue_offset)
    while at < end:
        after = at
        try:
            for unit in islice(queue.units_from(at, end - at) or (), end - at):
                stop = min(end, unit.queue_offset + max(1, unit.message_count))
                if not unit.queue_offset <= after < stop:
                    break
                for queue_offset in range(after, stop):
                    yield queue_offset, unit
                after = stop
        except RmqtoolError as error:
            yield after, str(error)
            after += 1
        if after == at:
            yield at, None
            after += 1
        at = after
