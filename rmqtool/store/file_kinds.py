"""Tells what a file of a store is from its path: only here and in `config_kinds` are the broker's file names known.

Broker: `StorePathConfigHelper`, `BrokerPathConfigHelper`, `UtilAll#offset2FileName`, `TimerMessageStore`,
`CompactionStore`, `MessageRocksDBStorage`.
"""

from __future__ import annotations

import hashlib
import re
from enum import Enum
from typing import Final

from rmqtool.quantities import JAVA_LONG_MAX, SEGMENT_START_MAX
from rmqtool.store.config.config_kinds import CONFIG_KINDS, DATABASES


class FileKind(Enum):
    """Every kind of file a broker leaves in its store; the value is what a person reads."""

    COMMITLOG = "commitlog"
    CONSUMEQUEUE = "consume queue"
    CONSUMEQUEUE_EXT = "consume queue extension"
    BATCH_CONSUMEQUEUE = "batch consume queue"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    ABORT = "abort"
    ABORT_BACKUP = "leftover copy of abort"
    LOCK = "lock"
    CONFIG = "configuration"
    CONSUMEQUEUE_ROCKSDB = "RocksDB consume queue"
    ROCKSDB = "RocksDB of index, timer and transactions"
    CONFIG_ROCKSDB = "RocksDB of configuration"
    POP_ROCKSDB = "RocksDB of pop consumption"
    TIMER_WHEEL = "timer wheel"
    TIMER_LOG = "timer log"
    TIMER_CHECK = "timer checkpoint"
    COMPACTION_LOG = "compaction log"
    COMPACTION_QUEUE = "compaction consume queue"
    COMPACTION_CHECKPOINT = "compaction checkpoint"
    COMPACTION_LEFTOVER = "leftover of a compaction"
    DLEDGER = "DLedger"
    TIERED = "tiered store"
    CONTROLLER = "controller mode"
    TRANSACTION = "transaction table"
    RMQTOOL = "rmqtool"
    STRAY_COMMITLOG = "stray file in commitlog/"
    STRAY_QUEUE = "stray file in a consume queue"
    STRAY_INDEX = "stray file in index/"
    UNKNOWN = "unknown"


_TIERED: Final = re.compile(r"([0-9a-f]{8})_(.+)", re.ASCII | re.DOTALL)
_SEGMENT: Final = r"\d{20,}"
_QUEUE: Final = r"(0|-?[1-9]\d{0,9})"  # a broker takes any int, and serves a negative one like others
_ROCKS: Final = (
    r"CURRENT|LOCK|IDENTITY|LOG|LOG\.[^/]*|MANIFEST-\d+|OPTIONS-\d+[^/]*|((archive|lost)/)?\d+\.(sst|log|blob|dbtmp)"
)
_CONFIG_DATABASES: Final = "|".join(map(re.escape, DATABASES))
_CONFIG_FILES: Final = "|".join(re.escape(kind.path) for kind in CONFIG_KINDS if kind.path.startswith("config/"))
FENCE_NAME: Final = "rmqtool-repair-in-progress"

# The first match counts. Digits are those of ASCII, and a dot is any character: a topic's name may hold a line break.
_PATTERNS: Final = tuple(
    (re.compile(pattern + r"\Z", re.ASCII | re.DOTALL), kind)
    for pattern, kind in (
        (rf"(commitlog[^/]*|dledger-[^/]+/data)/{FENCE_NAME}", FileKind.RMQTOOL),
        (r"\.rmqtool/.*", FileKind.RMQTOOL),
        (rf"commitlog[^/]*/{_SEGMENT}", FileKind.COMMITLOG),
        (r"commitlog[^/]*/.*", FileKind.STRAY_COMMITLOG),
        (rf"consumequeue/[^/]+/{_QUEUE}/{_SEGMENT}", FileKind.CONSUMEQUEUE),
        (rf"consumequeue/({_ROCKS})", FileKind.CONSUMEQUEUE_ROCKSDB),
        (r"consumequeue_rocksdb/.*", FileKind.CONSUMEQUEUE_ROCKSDB),
        (r"consumequeue/.*", FileKind.STRAY_QUEUE),
        (rf"consumequeue_ext/[^/]+/{_QUEUE}/{_SEGMENT}", FileKind.CONSUMEQUEUE_EXT),
        (r"consumequeue_ext/.*", FileKind.STRAY_QUEUE),
        (rf"batchconsumequeue/[^/]+/{_QUEUE}/{_SEGMENT}", FileKind.BATCH_CONSUMEQUEUE),
        (r"batchconsumequeue/.*", FileKind.STRAY_QUEUE),
        (r"index/\d{17}", FileKind.INDEX),
        (r"index/.*", FileKind.STRAY_INDEX),
        (r"checkpoint", FileKind.CHECKPOINT),
        (r"abort", FileKind.ABORT),
        (r"abort\.(bak|tmp)", FileKind.ABORT_BACKUP),
        (r"lock", FileKind.LOCK),
        (r"config/timercheck", FileKind.TIMER_CHECK),
        (r"config/tieredStoreMetadata\.json(\.bak|\.tmp)?", FileKind.TIERED),
        (rf"({_CONFIG_DATABASES})/.*", FileKind.CONFIG_ROCKSDB),
        (rf"(config/[^/]+\.json|{_CONFIG_FILES})(\.bak|\.tmp)?", FileKind.CONFIG),
        (r"rocksdbstore/.*", FileKind.ROCKSDB),
        (r"kvStore/.*", FileKind.POP_ROCKSDB),
        (r"timerwheel(\.\d+)?(\.tmp)?", FileKind.TIMER_WHEEL),
        (rf"timerlog/{_SEGMENT}", FileKind.TIMER_LOG),
        (r"compaction/position-checkpoint(\.bak|\.tmp)?", FileKind.COMPACTION_CHECKPOINT),
        (rf"compaction/compactionLog/[^/]+/\d+/{_SEGMENT}", FileKind.COMPACTION_LOG),
        (rf"compaction/compactionCq/[^/]+/\d+/{_SEGMENT}", FileKind.COMPACTION_QUEUE),
        (r"compaction/compaction(Log|Cq)/.*", FileKind.COMPACTION_LEFTOVER),
        (r"dledger-[^/]+/.*", FileKind.DLEDGER),
        (r"tiered_index_file/.*", FileKind.TIERED),
        (r"(epochFileCheckpoint|brokerIdentity)(\.bak|\.tmp)?", FileKind.CONTROLLER),
        (r"transaction/(statetable|redolog)(/.*)?", FileKind.TRANSACTION),
    )
)


_OWN: Final = ".rmqtool"
_QUEUE_ROOTS: Final = frozenset({"consumequeue", "consumequeue_ext", "batchconsumequeue"})
_TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)

_STRAYS: Final = {
    FileKind.COMMITLOG: FileKind.STRAY_COMMITLOG,
    FileKind.CONSUMEQUEUE: FileKind.STRAY_QUEUE,
    FileKind.CONSUMEQUEUE_EXT: FileKind.STRAY_QUEUE,
    FileKind.BATCH_CONSUMEQUEUE: FileKind.STRAY_QUEUE,
    FileKind.INDEX: FileKind.STRAY_INDEX,
}

_SINGLE: Final = frozenset(
    {
        FileKind.ABORT, FileKind.ABORT_BACKUP, FileKind.CHECKPOINT, FileKind.LOCK, FileKind.CONFIG,
        FileKind.TIMER_CHECK,
        FileKind.TIMER_WHEEL, FileKind.TIMER_LOG, FileKind.COMPACTION_CHECKPOINT, FileKind.COMPACTION_LOG,
        FileKind.COMPACTION_QUEUE, FileKind.CONTROLLER,
    }
)  # fmt: skip
_IN_ROCKSDB: Final = frozenset(
    {FileKind.CONSUMEQUEUE_ROCKSDB, FileKind.ROCKSDB, FileKind.CONFIG_ROCKSDB, FileKind.POP_ROCKSDB}
)
_ROCKS_FILE: Final = re.compile(rf"({_ROCKS})\Z", re.ASCII)

_PLACES: Final = re.compile(
    rf"(commitlog[^/]*|index|config|{_CONFIG_DATABASES}|timerlog|tiered_index_file"
    r"|(rocksdbstore|kvStore|consumequeue_rocksdb)(/(archive|lost))?"
    rf"|(consumequeue|consumequeue_ext|batchconsumequeue)(/[^/]+(/{_QUEUE})?)?"
    rf"|compaction(/compaction(Log|Cq)(/[^/]+(/{_QUEUE}(/(compacting|replicating))?)?)?)?"
    r"|dledger-[^/]+(/(data|index))?|transaction(/(statetable|redolog))?)\Z",
    re.ASCII | re.DOTALL,
)


def kind_of(path: str) -> FileKind:
    """The kind of a file by its path relative to the store."""
    for pattern, kind in _PATTERNS:
        if pattern.match(path):
            return kind if kind not in _STRAYS or is_segment_name(path.rpartition("/")[2], kind) else _STRAYS[kind]
    return FileKind.UNKNOWN


def stray_kind_of(path: str) -> FileKind:
    """The kind of something that has the path of a broker's file but is none: a FIFO, device or broken link."""
    kind = kind_of(path)
    return _STRAYS.get(kind, kind if kind in _STRAYS.values() else FileKind.UNKNOWN)


def is_single_file(path: str) -> bool:
    """True if a broker opens this path as a single file, not as one of those that it finds in a directory."""
    kind, name = kind_of(path), path.rpartition("/")[2]
    return kind in _SINGLE or (kind in _IN_ROCKSDB and _ROCKS_FILE.match(name) is not None)


def is_broker_directory(path: str) -> bool:
    """True if a broker has a directory at this path; links are followed only there, so that a circle of links ends."""
    return _PLACES.match(path) is not None


def is_file_of_tool(path: str) -> bool:
    """True for the directory that rmqtool keeps in a store, and paths below it."""
    return path == _OWN or path.startswith(f"{_OWN}/")


def is_topic_directory(path: str) -> bool:
    """True for the directory of a topic's queues."""
    root, _, name = path.partition("/")
    return root in _QUEUE_ROOTS and "/" not in name


def is_topic_name(name: str) -> bool:
    """True if a broker lets a client create a topic of this name (`TopicValidator`)."""
    return _TOPIC.fullmatch(name) is not None


def is_tiered_directory(name: str) -> bool:
    """True for a broker's name of the directory of a tiered store: the cluster's name, after the start of its MD5."""
    match = _TIERED.fullmatch(name)
    return match is not None and name_hash(match[2]) == match[1]


def name_hash(text: str) -> str:
    """The first bytes of a text's MD5, which a tiered store puts before names (`MessageStoreUtil#getHash`)."""
    return hashlib.md5(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()[:8]


def is_segment_name(name: str, kind: FileKind = FileKind.COMMITLOG) -> bool:
    """True if a file name is an offset as the broker writes it (`Long#parseLong`), and leaves room for a file."""
    if kind is FileKind.INDEX:
        return True
    return name.isascii() and name.isdigit() and len(name) >= 20 and int(name) <= SEGMENT_START_MAX


def is_java_long(name: str) -> bool:
    """True if a file name is a number of a Java long (`Long#parseLong`), which a broker takes for a mapped file."""
    digits = name.removeprefix("-") if name.startswith("-") else name.removeprefix("+")
    # Leading zeros count for nothing, and no name of a file is long enough to be costly as a number.
    return digits.isdecimal() and -JAVA_LONG_MAX - 1 <= int(name) <= JAVA_LONG_MAX


def segment_name(start: int) -> str:
    """File name of the segment that begins at a byte of its stream (`UtilAll#offset2FileName`)."""
    return f"{start:020d}"
