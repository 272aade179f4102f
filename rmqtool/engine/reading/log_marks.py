"""Where files of a store lie in the log and in time, by a few bytes of each: a sample of them on a large store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import Final, TypeVar

from rmqtool.errors import UnreadableError
from rmqtool.formats.index import HEADER_SIZE, IndexHeader
from rmqtool.scan.first_time import first_store_time_ms
from rmqtool.store.directory import Store
from rmqtool.store.source import read_range

SAMPLE_MAX: Final = 200
"""Files of one kind that are opened."""
Sampled = TypeVar("Sampled")


def file_times(store: Store, paths: Sequence[str] = ()) -> dict[str, int]:
    """Store time of the first record of files of the log, by path; without those that do not begin with a record.

    Args:
        paths: files that belong to the sample in any case.
    """
    times = {}
    for path in dict.fromkeys((*_sample([segment.path for segment in store.commitlog]), *paths)):
        with suppress(UnreadableError), closing(store.view.open(path)) as source:
            if (moment := first_store_time_ms(source)) is not None:
                times[path] = moment
    return times


def index_headers(store: Store) -> Iterator[tuple[str, IndexHeader]]:
    """Path and header of index files, without those that have no entry or cannot be read."""
    for entry in _sample(store.index_files):
        header = None
        with suppress(UnreadableError), closing(store.view.open(entry.path)) as source:
            header = IndexHeader.parse(read_range(source, 0, HEADER_SIZE))
        if header is not None and header.next_entry_number > 1:
            yield entry.path, header


def _sample(items: Sequence[Sampled]) -> list[Sampled]:
    """All items, or some that are spread evenly, with the first and the last."""
    count = len(items)
    if count <= SAMPLE_MAX:
        return list(items)
    return [items[number * (count - 1) // (SAMPLE_MAX - 1)] for number in range(SAMPLE_MAX)]
