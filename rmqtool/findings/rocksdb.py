"""The catalog's findings about databases of RocksDB."""

from __future__ import annotations

from typing import Final

from rmqtool.findings.finding import REBUILD_QUEUES, FindingType, error, note, warning

_SINCE: Final = "5.2.0 and later"
_REBUILT: Final = f"`{REBUILD_QUEUES}` writes the database again from the commit log", REBUILD_QUEUES

ENTRIES: Final[tuple[FindingType, ...]] = (
    warning(
        "rocksdb.ahead-of-log",
        "Consume queues in RocksDB reach past the end of the commit log.",
        ((_SINCE, "a start sets the ends of the queues back to the end of the log, those of configured topics only"),),
        *_REBUILT,
    ),
    note(
        "rocksdb.dispatched-behind",
        "The database says that less of the commit log was dispatched than its units show.",
        ((_SINCE, "a start dispatches messages again that are in the queues already, which changes nothing"),),
        "none needed",
    ),
    note(
        "rocksdb.lacks-older-units",
        "Queues are in files and in RocksDB, and the database lacks the first units of queues, or all of them.",
        (
            (_SINCE, "serves the files, unless its settings say that it reads RocksDB"),
            ("5.4.0 and later", "with `combineCQPreferCQType=defaultRocksDB` serves none of these messages"),
        ),
        "none needed for a database that was made later, or that has topics of one type only "
        "(`rocksdbCQSelectiveDoubleWriteEnable`)",
    ),
    warning(
        "rocksdb.missing-end",
        "A queue has units in RocksDB, but the database does not say which one is the last.",
        ((_SINCE, "serves none of its messages, and gives the offsets of the first ones to new messages"),),
        *_REBUILT,
    ),
    error(
        "rocksdb.not-loadable",
        "The RocksDB database of the consume queues cannot be opened: a file is missing, cut or overwritten, or "
        "it has a column family that brokers do not know.",
        ((_SINCE, "does not start"),),
        *_REBUILT,
    ),
    warning(
        "rocksdb.odd-row",
        "The database has keys or values that no broker writes.",
        (
            (_SINCE, "does not read them, and does not start if `CHECKPOINT_TOPIC` has less than 8 bytes"),
            (_SINCE, "serves nothing of a queue whose `min` or `max` has less than 16 bytes"),
            ("5.3.2 and later", "does not start if a key of the offset family names a topic longer than the key"),
        ),
        *_REBUILT,
    ),
    note(
        "rocksdb.stale-unit",
        "Units are after the end of their queue, as when the commit log was truncated.",
        ((_SINCE, "does not read them, and overwrites them with new messages"),),
        "none needed",
    ),
    error(
        "rocksdb.unreadable",
        "A part of the RocksDB database of the consume queues cannot be read.",
        (
            (_SINCE, "starts, and fails to serve the messages whose units are in that part"),
            (_SINCE, "does not start if CHECKPOINT_TOPIC is in that part"),
        ),
        *_REBUILT,
    ),
    warning(
        "rocksdb.wrong-end",
        "The first or last unit that is stored for a queue in RocksDB is not its first or last one.",
        (
            (
                _SINCE,
                "hides the messages before the first or after the last unit, or fails to serve the ones next to it",
            ),
        ),
        *_REBUILT,
    ),
    warning(
        "rocksdb.wrong-time",
        "The store time in a unit is not that of its message.",
        ((_SINCE, "finds wrong queue offsets for a time"),),
        *_REBUILT,
    ),
)
