"""The messages of a queue, or the records of a file of the log, as lists that are read where somebody looks."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import closing

from rmqtool.browse.browsed_store import BrowsedStore
from rmqtool.browse.list_model import BAD, Line, Lines, Pages, ReadyList
from rmqtool.browse.message_row import COLUMNS, LOG_COLUMNS, MessageRow, heading_of, row_of_message
from rmqtool.engine.reading.stored_message import StoredMessage, message_at
from rmqtool.errors import RmqtoolError
from rmqtool.formats.commitlog import MAGIC_BLANK, MAGIC_BYTES
from rmqtool.formats.queue_name import QueueName
from rmqtool.report.columns import Column
from rmqtool.scan.blocks import Window
from rmqtool.scan.walk import find_next
from rmqtool.store.directory import Segment


class PagedMessages:
    """Messages that are read a page at a time, where somebody looks."""

    columns: Sequence[Column] = LOG_COLUMNS

    def __init__(self) -> None:
        self._pages: Pages[MessageRow] = Pages()

    def heading(self, width: int) -> str:
        return heading_of(self.columns, width)

    def row(self, number: int) -> MessageRow | None:
        """A row; None where it is not read."""
        return self._pages.row(number)

    def line(self, row: int, width: int) -> Line | None:
        known = self._pages.row(row)
        return None if known is None else known.line(self.columns, width)

    def is_read(self, first: int, count: int) -> bool:
        return not self._pages.missing(first, count)


class QueueMessages(PagedMessages):
    """The messages of a queue by queue offset; row 0 is the first one that is not below the log."""

    columns = COLUMNS

    def __init__(self, store: BrowsedStore, name: QueueName) -> None:
        super().__init__()
        self.store, self.name = store, name
        self.first, self.end, self.served_end = store.bounds(name)

    def count(self) -> int:
        return self.end - self.first

    def read(self, first: int, count: int) -> None:
        for page in self._pages.missing(first, count):
            begin = self.first + page * Pages.ROWS
            length = min(Pages.ROWS, self.end - begin)
            try:
                rows = self.store.rows(self.name, begin, length)
            except RmqtoolError as error:
                rows = [MessageRow(begin + number, None, problem=str(error)) for number in range(length)]
            self._pages.put(page, rows)


class FileRecords(PagedMessages):
    """The records of one file of the log, found one after the other from its start: the next ones as one scrolls."""

    def __init__(self, store: BrowsedStore, segment: Segment) -> None:
        super().__init__()
        self.store, self.segment = store, segment
        self._starts = array("q", [segment.start])
        self._ended = False

    def count(self) -> int:
        return len(self._starts)

    def is_read(self, first: int, count: int) -> bool:
        return super().is_read(first, count) and (self._ended or len(self._starts) > first + count)

    def read(self, first: int, count: int) -> None:
        with self.store.lock:
            while not self._ended and len(self._starts) <= first + count + Pages.ROWS:
                self._step()
            for page in range(first // Pages.ROWS, (first + count) // Pages.ROWS + 1):
                starts = self._starts[page * Pages.ROWS : (page + 1) * Pages.ROWS]
                self._pages.put(page, [self._row(start) for start in starts])

    def _row(self, start: int) -> MessageRow:
        try:
            message = message_at(self.store.reader.log, start)
        except RmqtoolError as error:
            return MessageRow(None, start, problem=str(error))
        if message is None or not message.size:
            is_last = start == self._starts[-1]
            note = "(unused to the end of the file, or no record)" if is_last else None
            return MessageRow(None, start, problem=None if is_last else "commitlog.bad-size", note=note)
        return row_of_message(message)

    def _step(self) -> None:
        """Find the record after the last one; where that is none, the next good one after the damage."""
        start = self._starts[-1]
        try:
            following = self._after(start)
        except RmqtoolError:
            following = None
        if following is None or following >= self.segment.end:
            self._ended = True
        else:
            self._starts.append(following)

    def _after(self, start: int) -> int | None:
        message = message_at(self.store.reader.log, start)
        if message is not None and message.record is not None:
            return start + message.size
        if message is not None and message.size and message.range(4, 4) == MAGIC_BYTES[MAGIC_BLANK]:
            return None
        with closing(self.store.store.view.open(self.segment.path)) as source:
            begin, base = start - self.segment.start + 1, self.segment.start

            def is_good(position: int) -> bool:
                message = message_at(self.store.reader.log, base + position)
                return message is not None and message.record is not None and message.record.body_crc_ok

            next_position = find_next(Window(source), begin, source.size, base, is_good)
            return None if next_position is None else base + next_position


class FoundMessages(ReadyList):
    """Messages that a key or id led to."""

    def __init__(self, messages: list[StoredMessage]) -> None:
        self.rows = [row_of_message(message) for message in messages]

    def count(self) -> int:
        return len(self.rows)

    def heading(self, width: int) -> str:
        return heading_of(LOG_COLUMNS, width)

    def row(self, number: int) -> MessageRow | None:
        """A row, which is always there."""
        return self.rows[number]

    def line(self, row: int, width: int) -> Line:
        return self.rows[row].line(LOG_COLUMNS, width)


class NoMessages(Lines):
    """The reason why there is no list."""

    def __init__(self, reason: str) -> None:
        super().__init__([Line(reason, BAD)])

    def row(self, number: int) -> None:
        """Never a message."""
        del number


MessageList = QueueMessages | FileRecords | FoundMessages | NoMessages
