"""Messages by key: the index's chains, newest entry first, and the records they point to, unchecked.

Broker: `IndexService#queryOffset`, `IndexFile#selectPhyOffset`, `#isTimeMatched`, `DefaultMessageStore#queryMessage`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from rmqtool.engine.reading.stored_message import StoredMessage, message_at
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.formats import index
from rmqtool.store.index_file import IndexFile
from rmqtool.store.view import Entry

DEFAULT_COUNT: Final = 32
COUNT_MAX: Final = 64
"""`maxMsgsNumBatch`: more are never looked up at once."""


@dataclass(frozen=True)
class QueryResult:
    """The answer to a query by key."""

    messages: tuple[StoredMessage, ...]
    """What the broker hands out, by physical offset; the index knows hashes only, so any may be something else."""
    carries_key: tuple[bool, ...]
    """For each message, whether its record really has the key (or tag)."""
    indexed_physical_offsets: tuple[int, ...]
    """What the index answered, sorted; it may point to what is gone, and more than once to the same."""
    never_ends: bool
    """A chain goes in a circle without a hit: the broker would look forever."""


class _Search:
    """Hits of one lookup over all files."""

    def __init__(self, key_hash: int, count: int, begin_ms: int, end_ms: int) -> None:
        self.key_hash = key_hash
        self.count = count
        self.begin_ms = begin_ms
        self.end_ms = end_ms
        self.physical_offsets: list[int] = []
        self.never_ends = False

    @property
    def is_complete(self) -> bool:
        return len(self.physical_offsets) >= self.count or self.never_ends

    def search(self, file: IndexFile) -> None:
        """Follow the hash's chain. A circle is gone round as long as it brings hits, as the broker does."""
        following = file.header.next_entry_number
        number = file.newest_entry(self.key_hash)
        if number <= 0 or number > following or following <= 1:
            return
        # A sound chain only leads to lower numbers, so every circle contains a step upwards.
        hits_at_step_up: dict[int, int] = {}
        while not self.is_complete:
            key_hash, physical_offset, seconds, previous = file.entry(number)
            if seconds < 0:
                return
            time_ms = file.header.begin_timestamp_ms + seconds * 1000
            if key_hash == self.key_hash and self.begin_ms <= time_ms <= self.end_ms:
                self.physical_offsets.append(physical_offset)
            if previous <= 0 or previous > following or previous == number or time_ms < self.begin_ms:
                return
            if previous > number:
                if number in hits_at_step_up:
                    self._go_round(self.physical_offsets[hits_at_step_up[number] :])
                    return
                hits_at_step_up[number] = len(self.physical_offsets)
            number = previous

    def _go_round(self, hits: list[int]) -> None:
        """Answer what endless rounds through these hits would; a circle can have millions of entries."""
        self.never_ends = not hits
        while hits and len(self.physical_offsets) < self.count:
            self.physical_offsets += hits[: self.count - len(self.physical_offsets)]


def _overlaps(header: index.IndexHeader, begin_ms: int, end_ms: int) -> bool:
    """Whether the broker searches the file for a range of times (`IndexFile#isTimeMatched`)."""
    first, last = header.begin_timestamp_ms, header.end_timestamp_ms
    return (begin_ms < first and end_ms > last) or first <= begin_ms <= last or first <= end_ms <= last


def query(
    entries: Sequence[Entry],
    slot_count: int,
    files: OpenFiles,
    log: Log,
    topic: str,
    key: str,
    count: int,
    begin_ms: int,
    end_ms: int,
    *,
    by_tag: bool,
) -> QueryResult:
    """Look a key (or a tag) up in the index files, given in the order of their making.

    Raises:
        UnreadableError: the disk does not give an index file or a record.
    """
    text = index.tag_text(topic, key) if by_tag else index.key_text(topic, key)
    search = _Search(index.key_hash(text), min(count, COUNT_MAX), begin_ms, end_ms)
    for entry in reversed(entries):
        file = IndexFile(partial(files.read, entry.path), slot_count)
        if _overlaps(file.header, begin_ms, end_ms):
            search.search(file)
        if file.header.begin_timestamp_ms < begin_ms or search.is_complete:
            break
    offsets = sorted(search.physical_offsets)
    messages = () if search.never_ends else tuple(_served(log, offsets))
    return QueryResult(
        messages,
        tuple(_carries(message, topic, key, by_tag=by_tag) for message in messages),
        tuple(offsets),
        search.never_ends,
    )


def _served(log: Log, physical_offsets: Sequence[int]) -> Iterator[StoredMessage]:
    for number, physical_offset in enumerate(physical_offsets):
        message = message_at(log, physical_offset, first_file_for_zero=False)
        # The broker decodes the first one to learn its time, and passes it over where it cannot.
        if message is not None and (number or (message.record is not None and message.record.is_decodable)):
            yield message


def _carries(message: StoredMessage, topic: str, key: str, *, by_tag: bool) -> bool:
    record = message.record
    if record is None or record.topic != topic:
        return False
    return record.tags == key if by_tag else key in record.keys or key == record.unique_key
