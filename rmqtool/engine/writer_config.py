"""The broker settings that decide what a writer writes, with the broker's defaults."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqtool.formats.index import DEFAULT_ENTRY_COUNT, DEFAULT_SLOT_COUNT
from rmqtool.formats.tags import parse_delay_levels


@dataclass(frozen=True, kw_only=True)
class WriterConfig:
    """Sizes are bytes. The names in brackets are the broker's (`MessageStoreConfig`).

    Attributes:
        commitlog_directories: where files of the log go, in turn (storePathCommitLog); relative to the store.
        batch_topics: topics with the attribute `queue.type=BatchCQ`.
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
    validates_topics: bool = False
    synchronous_flush: bool = False
