"""Every kind of queue that a store may have, and how one is opened: a further kind is one more entry in `KINDS`.

Each kind has a directory of its own in a store. Where a topic has files of two kinds, the first one counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from rmqtool.engine.queues.batch_queue import BatchQueue
from rmqtool.engine.queues.extension import QueueExtension
from rmqtool.engine.queues.file_queue import FileQueue
from rmqtool.engine.queues.loaded_files import LoadedFiles, minimum_position
from rmqtool.engine.queues.unit import BATCH_UNITS, PLAIN_UNITS, Queue, UnitKind
from rmqtool.engine.rules.versions import BrokerRules
from rmqtool.engine.segments.log import loaded_segments
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.store.directory import QueueFiles, Store

QueueName = tuple[str, int]
"""Topic and queue id."""


class QueueSource(NamedTuple):
    """Where queues are opened from, and how a broker sees them."""

    store: Store
    rules: BrokerRules
    files: OpenFiles
    log_minimum: int
    """First physical offset of the commitlog."""


class QueueKind(NamedTuple):
    """One kind of queue."""

    units: UnitKind
    files_of: Callable[[Store], dict[QueueName, QueueFiles]]
    file_size_of: Callable[[Store], int]
    is_known_to: Callable[[BrokerRules], bool]
    open: Callable[[QueueSource, QueueName, LoadedFiles, bool], Queue]
    """Makes the queue of its loaded files; with True, its minimum is found quickly."""


def _open_plain(source: QueueSource, name: QueueName, loaded: LoadedFiles, quickly: bool) -> Queue:
    store = source.store
    extension = None
    if name in store.extensions:
        extension = QueueExtension(store.extensions[name], store.extension_file_size, source.files)
    minimum = minimum_position(loaded, source.rules, source.log_minimum, by_halving=True) if quickly else None
    return FileQueue(*name, loaded, source.rules, source.log_minimum, extension, minimum)


def _open_batch(source: QueueSource, name: QueueName, loaded: LoadedFiles, quickly: bool) -> Queue:
    del quickly
    return BatchQueue(*name, loaded, source.rules, source.log_minimum)


KINDS: Final = (
    QueueKind(
        PLAIN_UNITS,
        lambda store: store.queues,
        lambda store: store.consumequeue_file_size,
        lambda _: True,
        _open_plain,
    ),
    QueueKind(
        BATCH_UNITS,
        lambda store: store.batch_queues,
        lambda store: store.batch_file_size,
        lambda rules: rules.batch_queues,
        _open_batch,
    ),
)


def queue_names(store: Store) -> tuple[QueueName, ...]:
    """Topic and queue id of every queue that has files, sorted."""
    return tuple(sorted({name for kind in KINDS for name in kind.files_of(store)}))


def open_queue(source: QueueSource, name: QueueName, *, quickly: bool = False) -> Queue:
    """A queue as a load finds it; an empty plain one where there are no files.

    Args:
        quickly: find its bounds with a handful of reads.

    Raises:
        UnreadableError: a file of the queue cannot be read.
    """
    store, rules = source.store, source.rules
    kind = next((kind for kind in KINDS if name in kind.files_of(store) and kind.is_known_to(rules)), KINDS[0])
    queue, file_size = kind.files_of(store).get(name), kind.file_size_of(store)
    if queue is not None and not quickly:
        queue = replace(queue, segments=loaded_segments(queue.segments, file_size, rules))
    finds_quickly = quickly and queue is not None
    loaded = LoadedFiles.recovered(queue, file_size, kind.units, source.files, quickly=finds_quickly)
    return kind.open(source, name, loaded, quickly)
