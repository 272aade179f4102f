"""The checkpoint of a store."""

from __future__ import annotations

from contextlib import closing

from rmqtool.errors import UnreadableError
from rmqtool.formats.checkpoint import FIELDS_SIZE, Checkpoint, parse_checkpoint
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.source import read_range


def read_checkpoint(store: Store) -> Checkpoint | None:
    """The checkpoint; None where there is none.

    Raises:
        UnreadableError: it cannot be read.
    """
    entry = store.first(FileKind.CHECKPOINT)
    if entry is None:
        return None
    with closing(store.view.open(entry.path)) as source:
        return parse_checkpoint(read_range(source, 0, FIELDS_SIZE))


def readable_checkpoint(store: Store) -> Checkpoint | None:
    """The checkpoint; None where there is none, or it cannot be read."""
    try:
        return read_checkpoint(store)
    except UnreadableError:
        return None


def shows_index(store: Store, checkpoint: Checkpoint | None) -> bool:
    """True if the settings, the directory or the checkpoint show that the broker makes an index, or made one.

    The first message makes the directory. Without a checkpoint nobody knows.

    Args:
        checkpoint: None where there is none, or it cannot be read.
    """
    settings = store.settings
    if settings.makes_index is not None:
        return settings.makes_index
    was_made = bool(store.index_files) or "index" in store.directories
    return settings.defaults_hold or was_made or checkpoint is None or checkpoint.index_timestamp_ms > 0
