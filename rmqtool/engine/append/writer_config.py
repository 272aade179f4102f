"""The broker settings that a writer needs, with the broker's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rmqtool.errors import UnsupportedError
from rmqtool.formats.index import DEFAULT_ENTRY_COUNT, DEFAULT_SLOT_COUNT
from rmqtool.formats.tags import parse_delay_levels
from rmqtool.store.config.broker_conf import BrokerConf
from rmqtool.store.sizes import DEFAULT_LOG_FILE_SIZE, DEFAULT_QUEUE_FILE_SIZE


class Slave(StrEnum):
    """The slave of a master, where there is one."""

    NONE = "none"
    ACKNOWLEDGES = "acknowledges"
    SILENT = "silent"
    """Connected, but it has nothing in time (slaveTimeout)."""


@dataclass(frozen=True, kw_only=True)
class Replication:
    """Replication settings of a master.

    Attributes:
        role: ASYNC_MASTER, SYNC_MASTER or SLAVE (brokerRole).
        in_sync_replicas: the master included (inSyncReplicas, from 5.0.0 on).
        in_sync_replicas_min: however few are alive (minInSyncReplicas).
        adapts: as many as are alive are enough (enableAutoInSyncReplicas).
        acts_for_master: a master without the replicas that it needs writes nothing (enableSlaveActingMaster).
        duplicates: replicas are made in another way (duplicationEnable).
    """

    role: str = "ASYNC_MASTER"
    in_sync_replicas: int = 1
    in_sync_replicas_min: int = 1
    adapts: bool = False
    acts_for_master: bool = False
    duplicates: bool = False
    slave: Slave = Slave.NONE

    @property
    def replica_count(self) -> int:
        """Replicas that are alive, the master included."""
        return 1 if self.slave is Slave.NONE else 2


@dataclass(frozen=True, kw_only=True)
class WriterConfig:
    """Sizes are bytes. The names in brackets are the broker's (`MessageStoreConfig`).

    Attributes:
        commitlog_directories: where files of the log go, in turn (storePathCommitLog); relative to the store.
        batch_topics: topics with the attribute `queue.type=BatchCQ`.
        queue_counts: how many queues a topic has to write to, where `topics.json` says it (`writeQueueNums`).
        transient_pool: messages are gathered in the broker's own memory first (transientStorePoolEnable).
        disk_ratio_max: share of the disk above which nothing is written; None for any (diskSpaceWarningLevelRatio).
        busy_limit_ms: a put that comes while another one takes longer than this is refused
            (osPageCacheBusyTimeOutMills).
        flush_timeout_ms: (syncFlushTimeout).
        synchronous_flush: every put is on the disk before it is reported (flushDiskType).
    """

    commitlog_file_size: int = DEFAULT_LOG_FILE_SIZE
    consumequeue_file_size: int = DEFAULT_QUEUE_FILE_SIZE
    extension_file_size: int = 48 << 20
    batch_file_size: int = 13_800_000
    index_slot_count: int = DEFAULT_SLOT_COUNT
    index_entry_count: int = DEFAULT_ENTRY_COUNT
    commitlog_directories: tuple[str, ...] = ("commitlog",)
    message_size_max: int = 4 << 20
    delays_ms: tuple[int, ...] = field(default_factory=parse_delay_levels)
    record_crc: bool = False
    multi_dispatch: bool = False
    lmq: bool = False
    extension: bool = False
    index: bool = True
    batch_topics: frozenset[str] = frozenset()
    queue_counts: Mapping[str, int] = field(default_factory=dict)
    replication: Replication = field(default_factory=Replication)
    disk_ratio_max: float | None = None
    busy_limit_ms: int = 1000
    flush_timeout_ms: int = 5000
    transient_pool: bool = False
    synchronous_flush: bool = False


def config_from(conf: BrokerConf) -> WriterConfig:
    """Writer settings of a broker's properties file; the broker's defaults for those that it does not name.

    Raises:
        ValueError: the delay levels are none.
        UnsupportedError: they ask for replicas, or for a form of log or queues that is not written.
    """
    unsupported = None
    if conf.flag("enableControllerMode"):
        unsupported = "enableControllerMode=true: the result of a put in such a broker depends on its controller"
    elif conf.store_type not in (None, "default"):
        unsupported = f"storeType={conf.store_type}: rmqtool does not write consume queues in RocksDB"
    elif conf.is_dledger:
        unsupported = "enableDLegerCommitLog=true: rmqtool does not write DLedger logs"
    if unsupported is not None:
        raise UnsupportedError(f"{conf.path}: {unsupported}")
    sizes, disk_percent = conf.settings(), _number(conf, "diskSpaceWarningLevelRatio")
    settings: dict[str, object] = {
        "commitlog_file_size": sizes.commitlog_file_size,
        "consumequeue_file_size": sizes.consumequeue_file_size,
        "extension_file_size": sizes.extension_file_size,
        "batch_file_size": sizes.batch_file_size,
        "index_slot_count": sizes.index_slot_count,
        "index_entry_count": sizes.index_entry_count,
        "commitlog_directories": sizes.commitlog_directories or None,
        "delays_ms": None if conf.delay_levels is None else parse_delay_levels(conf.delay_levels),
        "record_crc": conf.has_record_crc,
        "multi_dispatch": conf.has_multi_dispatch,
        "lmq": conf.has_light_queues,
        "extension": conf.has_queue_extension,
        "index": conf.has_index,
        "replication": Replication(
            role=conf.broker_role or "ASYNC_MASTER",
            in_sync_replicas=_number(conf, "inSyncReplicas") or 1,
            in_sync_replicas_min=_number(conf, "minInSyncReplicas") or 1,
            adapts=bool(conf.flag("enableAutoInSyncReplicas")),
            acts_for_master=bool(conf.flag("enableSlaveActingMaster")),
            duplicates=bool(conf.is_duplication_on),
        ),
        # Between these two, as `CleanCommitLogService` has it.
        "disk_ratio_max": None if disk_percent is None else min(max(disk_percent / 100, 0.35), 0.9),
        "busy_limit_ms": _number(conf, "osPageCacheBusyTimeOutMills"),
        "flush_timeout_ms": _number(conf, "syncFlushTimeout"),
        "transient_pool": conf.has_transient_pool and conf.flush_disk_type != "SYNC_FLUSH",
        "synchronous_flush": conf.flush_disk_type == "SYNC_FLUSH" if conf.flush_disk_type else None,
    }
    known_settings: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    return WriterConfig(**known_settings)


def _number(conf: BrokerConf, name: str) -> int | None:
    """A number that is not negative; None where it is missing or not a number."""
    number = conf.number(name, 64)
    return number if number is not None and number >= 0 else None
