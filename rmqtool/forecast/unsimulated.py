"""Settings that change what a start does, and that no forecast simulates: a result names them.

All settings of `MessageStoreConfig` of 4.9.7 and 5.5.1 that load, recovery or dispatch reads are either an option of
the forecast, without effect on what a broker serves, or in this list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rmqtool.engine.reading.unread_files import UnreadFiles
from rmqtool.store.config.broker_conf import BrokerConf
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind


class _Setting(NamedTuple):
    name: str
    value: bool
    """The one that is not simulated; the other one is the broker's default."""
    effect: str
    matters: Callable[[Store], bool]


def _always(store: Store) -> bool:
    del store
    return True


def _has_queue_database(store: Store) -> bool:
    return bool(store.files.get(FileKind.CONSUMEQUEUE_ROCKSDB))


def _has_compaction(store: Store) -> bool:
    return bool(store.files.get(FileKind.COMPACTION_LOG))


_SETTINGS: Final = (
    _Setting("duplicationEnable", True, "a start dispatches to the confirmed offset of the checkpoint only", _always),
    _Setting("enableControllerMode", True, "a start dispatches and serves to the confirmed offset only", _always),
    _Setting("indexFileWriteEnable", False, "nothing enters index files", _always),
    _Setting("enableAcceleratedRecovery", True, "recovery begins where the queues in RocksDB end", _has_queue_database),
    _Setting(
        "useSeparateStorePathForRocksdbCQ", True, "the queues in RocksDB are in another directory", _has_queue_database
    ),
    _Setting("enableCompaction", False, "compacted topics are not loaded", _has_compaction),
)


def unsimulated_settings(conf: BrokerConf | None, store: Store) -> Iterator[UnreadFiles]:
    """Each as something that was not looked at."""
    properties = {} if conf is None else conf.properties
    for setting in _SETTINGS:
        # Java takes all but "true" for false.
        if setting.name not in properties or (properties[setting.name].lower() == "true") != setting.value:
            continue
        if setting.matters(store):
            text = f"{setting.name}={str(setting.value).lower()} is not simulated: {setting.effect}"
            yield UnreadFiles("broker.conf", "setting", text)
