"""Settings that change a start, or its paths, and that no forecast simulates: a result names them.

Every setting of every version has its effect in `engine/rules/settings.txt`: an option of the forecast simulates it,
this file names it, or it has none on what a start finds and serves. A test holds the three against each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnsupportedError
from rmqtool.sides.unread import UnreadFiles
from rmqtool.store.config.broker_conf import PATH_SPLITTER, BrokerConf
from rmqtool.store.directory import Store, demand_log_file_size
from rmqtool.store.dledger_files import demand_plain_log
from rmqtool.store.file_kinds import FileKind


class _Setting(NamedTuple):
    name: str
    value: bool
    """The one that is not simulated; the other one is the broker's default."""
    effect: str
    matters: Callable[[Store], bool] = lambda _store: True


def _has_queue_database(store: Store) -> bool:
    return bool(store.files.get(FileKind.CONSUMEQUEUE_ROCKSDB))


def _has_both_sides(store: Store) -> bool:
    return store.settings.queue_kind == "mixed"


_SETTINGS: Final = (
    _Setting("duplicationEnable", True, "a start cuts the log off at the confirmed offset, often all of it"),
    _Setting("enableControllerMode", True, "a start dispatches and serves to the confirmed offset only"),
    _Setting("indexFileWriteEnable", False, "nothing enters index files"),
    _Setting("enableAcceleratedRecovery", True, "recovery begins where the queues in RocksDB end", _has_queue_database),
    _Setting(
        "useSeparateStorePathForRocksdbCQ", True, "the queues in RocksDB are in another directory", _has_queue_database
    ),
    _Setting("rocksdbCQSelectiveDoubleWriteEnable", True, "queues are written to both sides for some topics"),
    _Setting(
        "enableCompaction",
        False,
        "compacted topics are not loaded",
        lambda store: bool(store.files.get(FileKind.COMPACTION_LOG)),
    ),
)
_TEXTS: Final[tuple[tuple[str, str, Callable[[Store], bool]], ...]] = (
    ("combineCQLoadingCQTypes", "which sides of the queues are loaded", _has_both_sides),
    ("combineCQMaxExtraSearchCommitLogFiles", "how far back a side of the queues is dispatched again", _has_both_sides),
    ("configManagerVersion", "topics, groups and consumer offsets may be in another place", lambda _store: True),
)
"""Settings of which no value is simulated."""
_POSITIVE: Final = {
    "cleanResourceInterval": "a start fails once the store is recovered",
    "commitLogRecoverMaxNum": "recovery begins after the last file",
    "flushDelayOffsetInterval": "a start fails once the store is recovered",
    "travelCqFileNumWhenGetMessage": "a pull finds no message",
}
"""Numbers of which those above 0 are simulated, or without effect."""
_OF_HOMES: Final = re.compile(r"(/root|/home/[^/]+)/store/*\Z")
_LITERAL: Final = re.compile(r"\s|~|.*\$")
NAMED: Final = frozenset((*(one.name for one in _SETTINGS), *(name for name, *_ in _TEXTS), *_POSITIVE))


def unsimulated_settings(conf: BrokerConf | None, store: Store) -> Iterator[UnreadFiles]:
    """Each as something that was not looked at."""
    for text in _texts(conf, store) if conf is not None else ():
        yield UnreadFiles("broker.conf", "setting", text)


def _texts(conf: BrokerConf, store: Store) -> Iterator[str]:
    for setting in _SETTINGS:
        if conf.flag(setting.name) is setting.value and setting.matters(store):
            yield f"{setting.name}={str(setting.value).lower()} is not simulated: {setting.effect}"
    for name, effect, matters in _TEXTS:
        if (value := conf.text(name)) is not None and matters(store):
            yield f"{name}={value} is not simulated: {effect}"
    for name in conf.odd_sizes:
        yield f"{name}={conf.text(name)} is not simulated: no file has such a size"
    for name, effect in _POSITIVE.items():
        number = conf.number(name, 64)
        if number is not None and number <= 0:
            yield f"{name}={number} is not simulated: {effect}"
    # Paths that are not where they seem to be.
    path, root = conf.text("storePathCommitLog"), conf.store_root
    if path is None and root is not None and not conf.reads.log_is_below_root and not _OF_HOMES.match(root):
        yield (
            "storePathCommitLog is not set: this version keeps the commit log in store/commitlog of its user's home, "
            f"not in {root}/commitlog"
        )
    elif path is not None and not conf.reads.splits_log_paths and PATH_SPLITTER in path:
        yield f"storePathCommitLog={path} is one directory to this version, the comma a part of its name"
    for name in ("storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths"):
        value = conf.text(name)
        if value is not None and any(map(_LITERAL.match, value.split(PATH_SPLITTER))):
            yield f"{name}={value!r} is taken literally: nothing in it is expanded, and a blank is a part of the name"


# Which stores no start is simulated of; light, for `info` asks too, and must not wait for numpy.


def demand_simulated(store: Store, rules: BrokerRules) -> None:
    """Refuse a store of which no start is simulated.

    Raises:
        UnsupportedError: log or queues are of a kind that is not.
        UnknownSizeError: nothing shows the size of a log file.
    """
    demand_plain_log(store)
    demand_log_file_size(store, "--log-file-size BYTES or --broker-conf FILE")
    database = store.queue_database if rules.rocksdb_queues else None
    if database is not None and not database.is_read and store.queue_kind == "rocksdb":
        raise UnsupportedError(f"the consume queues are in RocksDB: {database.reason}")
    roles = store.settings.queue_roles if rules.combines_queue_sides else None
    if roles is None or ({roles.reads, roles.assigns} == {"file"} and not roles.light_in_rocksdb):
        return
    second = store.second_database
    if second is not None and not second.is_read:
        raise UnsupportedError(f"consume queues that the broker uses are in RocksDB: {second.reason}")
