"""Tell from file names and CURRENT, which names the manifest, if the files of a RocksDB are in use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Final

from rmqtool.errors import UnreadableError
from rmqtool.store.source import read_range
from rmqtool.store.view import Entry, StoreView

_CURRENT_MAX: Final = 64
"""Bytes of a CURRENT, which is a name and a line break."""


def has_to_open(view: StoreView, entries: Sequence[Entry]) -> bool:
    """True if a RocksDB is in use, or is one without rows that a broker may fail to open.

    Without CURRENT a broker makes a new database; a CURRENT that names no manifest is an error to it.
    """
    if is_rocksdb_used(entries):
        return True
    for current in entries:
        if current.name != "CURRENT":
            continue
        try:
            with closing(view.open(current.path)) as source:
                text = read_range(source, 0, _CURRENT_MAX)
        except UnreadableError:
            return True
        if not any(entry.size > 0 and text == f"{entry.name}\n".encode(errors="replace") for entry in entries):
            return True
    return False


def is_rocksdb_used(entries: Iterable[Entry]) -> bool:
    """True if a RocksDB has tables, or a write-ahead log that is not empty."""
    return any(
        entry.name.endswith(".sst") or (entry.size and entry.name.endswith(".log") and entry.name[:-4].isdigit())
        for entry in entries
    )
