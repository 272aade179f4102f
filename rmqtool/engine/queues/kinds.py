"""Every kind of queue that a store may have, and how one is opened to be read: a further kind is an entry in `KINDS`.

Verify, forecast and repair branch on `is_batch` and `queue_database` where the bytes of kinds differ.

Where a topic has queues of two kinds, the first one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from rmqtool.engine.queues.batch_queue import BatchQueue
from rmqtool.engine.queues.database_queue import DatabaseQueue
from rmqtool.engine.queues.extension import QueueExtension
from rmqtool.engine.queues.file_queue import FileQueue
from rmqtool.engine.queues.loaded_files import LoadedFiles, minimum_position
from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.queues.unit import BATCH_UNITS, PLAIN_UNITS, UnitKind
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.topic_names import is_broker_group
from rmqtool.engine.segments.log import loaded_segments
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.formats.queue_name import QueueName
from rmqtool.store.config import config_json
from rmqtool.store.config.config_json import ConfigFile, ConfigState
from rmqtool.store.config.config_kinds import GROUPS, TOPICS
from rmqtool.store.config.read_config import StoreConfigs
from rmqtool.store.databases.queue_database import StoredEnds
from rmqtool.store.directory import QueueFiles, Store


class QueueSource(NamedTuple):
    """Where queues are opened from, and how a broker sees them."""

    store: Store
    rules: BrokerRules
    files: OpenFiles
    log_minimum: int
    """First physical offset of the commitlog."""


class QueueKind(NamedTuple):
    """One kind of queue."""

    names_of: Callable[[Store], Iterable[QueueName]]
    is_known_to: Callable[[BrokerRules], bool]
    open: Callable[[QueueSource, QueueName, bool], Queue]
    """Opens a queue; with True, its bounds are found quickly."""


def _open_plain(source: QueueSource, name: QueueName, quickly: bool) -> Queue:
    store = source.store
    loaded = _loaded(source, store.queues.get(name), store.consumequeue_file_size, PLAIN_UNITS, quickly=quickly)
    extension = None
    if name in store.extensions:
        extension = QueueExtension(store.extensions[name], store.extension_file_size, source.files)
    minimum = minimum_position(loaded, source.rules, source.log_minimum, by_halving=True) if quickly else None
    return FileQueue(*name, loaded, source.rules, source.log_minimum, extension, minimum)


def _open_batch(source: QueueSource, name: QueueName, quickly: bool) -> Queue:
    store = source.store
    loaded = _loaded(source, store.batch_queues.get(name), store.batch_file_size, BATCH_UNITS, quickly=quickly)
    return BatchQueue(*name, loaded, source.rules, source.log_minimum)


def _open_in_database(source: QueueSource, name: QueueName, quickly: bool) -> Queue:
    del quickly
    database = source.store.queue_database
    assert database is not None, "its names were asked for"
    ends = database.ends.get(name, StoredEnds())
    short_units = database.short_units.get(name, {})
    return DatabaseQueue(*name, ends, partial(database.between, name), source.rules, source.log_minimum, short_units)


def _loaded(
    source: QueueSource, queue: QueueFiles | None, file_size: int, units: UnitKind, *, quickly: bool
) -> LoadedFiles:
    if queue is not None and not quickly:
        queue = replace(queue, segments=loaded_segments(queue.segments, file_size, source.rules))
    finds_quickly = quickly and queue is not None
    return LoadedFiles.recovered(queue, file_size, units, source.files, quickly=finds_quickly)


KINDS: Final = (
    QueueKind(lambda store: store.queues, lambda _: True, _open_plain),
    QueueKind(lambda store: store.batch_queues, lambda rules: rules.batch_queues, _open_batch),
    QueueKind(
        lambda store: store.queue_database.names if store.queue_database is not None else (),
        lambda rules: rules.rocksdb_queues,
        _open_in_database,
    ),
)


def queue_names(store: Store) -> tuple[QueueName, ...]:
    """Topic and queue id of every queue of a store, sorted."""
    return tuple(sorted({name for kind in KINDS for name in kind.names_of(store)}))


def open_queue(source: QueueSource, name: QueueName, *, quickly: bool = False) -> Queue:
    """A queue as a load finds it; an empty plain one where there is none.

    Args:
        quickly: find its bounds with a handful of reads.

    Raises:
        UnreadableError: a file of the queue cannot be read.
    """
    known = (kind for kind in KINDS if kind.is_known_to(source.rules))
    kind = next((kind for kind in known if name in kind.names_of(source.store)), KINDS[0])
    return kind.open(source, name, quickly)


# The topics that a store shows where its configuration does not tell whether others were deleted.
# A broker deletes the queues of a topic and its entry in the configuration. Where that cannot be read and a topic has
# no queue, one who sees only the log cannot tell a deletion from damage. Broker: `AdminBrokerProcessor#deleteTopic`.


def shown_topics(store: Store, configs: StoreConfigs | None = None) -> frozenset[str] | None:
    """The topics that have queues, or that the configuration names; None where nobody doubts the others.

    A copy is older than the file: a topic that it names may have been deleted after it.

    Nobody does where the configuration is whole, or no broker wrote one. Without a queue of any topic a start enters
    all messages again, deleted or not.

    Args:
        configs: its configuration files, where they may have been read.
    """
    with_queues = frozenset(topic for topic, _ in queue_names(store))
    configs = StoreConfigs(store.view) if configs is None else configs
    known = configs.of(TOPICS)[TOPICS] if with_queues else None
    if known is None or config_json.whole_topics(known) is not None:
        return None
    if known.state is ConfigState.READ:
        is_of_one = known.is_database or is_of_broker(configs.of(TOPICS, GROUPS))
        is_lost = is_of_one or config_json.has_broker_config(store.files)
    else:
        is_absent = known.state is ConfigState.ABSENT
        is_lost = not is_absent or known.is_backup or config_json.are_topics_lost(store.files)
    own = replace(known, value=None) if known.is_backup else known
    return with_queues | config_json.named_topics(own) if is_lost else None


def is_of_broker(configs: Mapping[str, ConfigFile]) -> bool:
    """True if a broker wrote the configuration: it has its own topic and groups in it, beside those of clients."""
    known = configs.get(TOPICS)
    groups = config_json.group_names(configs[GROUPS]) if GROUPS in configs else frozenset[str]()
    has_topics = known is not None and (known.is_database or config_json.OWN_TOPIC in config_json.topics(known))
    return has_topics or any(map(is_broker_group, groups))
