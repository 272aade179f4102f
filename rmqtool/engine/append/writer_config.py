"""The broker settings that decide what a writer writes, with the broker's defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqtool.errors import UnsupportedError
from rmqtool.formats.index import DEFAULT_ENTRY_COUNT, DEFAULT_SLOT_COUNT
from rmqtool.formats.tags import parse_delay_levels
from rmqtool.store.broker_conf import BrokerConf


@dataclass(frozen=True, kw_only=True)
class WriterConfig:
    """Sizes are bytes. The names in brackets are the broker's (`MessageStoreConfig`).

    Attributes:
        commitlog_directories: where files of the log go, in turn (storePathCommitLog); relative to the store.
        batch_topics: topics with the attribute `queue.type=BatchCQ`.
        queue_counts: how many queues a topic has to write to, where `topics.json` says it (`writeQueueNums`).
        validates_topics: whether the broker's topic rules apply; the store itself takes any topic.
        synchronous_flush: every put is on the disk before it is reported (flushDiskType).
    """

    commitlog_file_size: int = 1 << 30
    consumequeue_file_size: int = 6_000_000
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
    validates_topics: bool = False
    synchronous_flush: bool = False


def config_from(conf: BrokerConf) -> WriterConfig:
    """The settings that a broker's properties file gives a writer; the broker's defaults for what it does not say.

    Raises:
        ValueError: the delay levels are none.
        UnsupportedError: they ask for replicas, or for a form of log or queues that is not written.
    """
    for setting, reason in _unsupported(conf):
        raise UnsupportedError(f"{conf.path}: {setting}: {reason}")
    sizes = conf.settings()
    settings: dict[str, object] = {
        "commitlog_file_size": sizes.commitlog_file_size,
        "consumequeue_file_size": sizes.consumequeue_file_size,
        "extension_file_size": sizes.extension_file_size,
        "batch_file_size": sizes.batch_file_size,
        "index_slot_count": sizes.index_slot_count,
        "index_entry_count": sizes.index_entry_count,
        "commitlog_directories": sizes.commitlog_directories or None,
        "delays_ms": parse_delay_levels(conf.delay_levels) if conf.delay_levels else None,
        "record_crc": conf.has_record_crc,
        "multi_dispatch": conf.has_multi_dispatch,
        "lmq": conf.has_light_queues,
        "extension": conf.has_queue_extension,
        "index": conf.has_index,
        "synchronous_flush": conf.flush_disk_type == "SYNC_FLUSH" if conf.flush_disk_type else None,
    }
    known_settings: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    return WriterConfig(**known_settings)


def _unsupported(conf: BrokerConf) -> Iterator[tuple[str, str]]:
    if conf.broker_role not in (None, "ASYNC_MASTER"):
        yield f"brokerRole={conf.broker_role}", "the result of a put in such a broker depends on its replicas"
    if conf.store_type not in (None, "default"):
        yield f"storeType={conf.store_type}", "rmqtool does not write consume queues in RocksDB"
    if conf.is_dledger:
        yield "enableDLegerCommitLog=true", "rmqtool does not write DLedger logs"
