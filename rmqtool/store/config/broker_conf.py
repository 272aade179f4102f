"""A broker's own properties file: where its store lies, how large its files are, which flags shape them.

Broker: `BrokerStartup` (loads it with `java.util.Properties`), `MixAll#properties2Object`, `MessageStoreConfig`.

Nothing is expanded: neither `$HOME` nor `${user.home}` means anything to the broker inside such a file. Which names a
version reads, and how, is `ReadSettings`; the versions' own are in `engine/rules/settings`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rmqtool.errors import UnreadableError, UsageError
from rmqtool.formats.consumequeue import UNIT_SIZE
from rmqtool.formats.java_properties import (
    MalformedEscapeError,
    java_trim,
    parse_java_boolean,
    parse_java_integer,
    parse_properties,
)
from rmqtool.quantities import JAVA_INT_MAX
from rmqtool.store.directory import QueueRoles, Settings
from rmqtool.store.source import FileSource, read_range

SIZE_MAX: Final = 1 << 20
"""Bytes of a properties file that are read; a broker's has a few kilobytes."""
PATH_SPLITTER: Final = ","
"""Between the paths of a commitlog that lies on several disks (system property `rocketmq.broker.multiPathSplitter`)."""

_PATHS: Final = ("storePathRootDir", "storePathCommitLog", "storePathDLedgerCommitLog", "readOnlyCommitLogStorePaths")
"""Settings that name directories of the store."""
_IN_NO_PATH: Final = re.compile("[\0\ud800-\udc7f\udd00-\udfff]")
"""NUL, and halves of surrogate pairs that stand for no byte."""
_IN_ROCKSDB: Final = "defaultrocksdb"
_SIDES: Final = {"default": "file", _IN_ROCKSDB: "rocksdb"}
_SIDE_ROLES: Final = ("combineCQPreferCQType", "combineAssignOffsetCQType")
_SIZES: Final = {
    "mapedFileSizeCommitLog": "commitlog_file_size",
    "mapedFileSizeConsumeQueue": "consumequeue_file_size",
    "mappedFileSizeCommitLog": "commitlog_file_size",
    "mappedFileSizeConsumeQueue": "consumequeue_file_size",
    "mappedFileSizeConsumeQueueExt": "extension_file_size",
    "mapperFileSizeBatchConsumeQueue": "batch_file_size",
    "maxHashSlotNum": "index_slot_count",
    "maxIndexNum": "index_entry_count",
    "mappedFileSizeTimerLog": "timer_log_file_size",
    "compactionMappedFileSize": "compaction_log_file_size",
    "compactionCqMappedFileSize": "compaction_queue_file_size",
}
_FLAGS: Final = {
    "enableConsumeQueueExt": "has_queue_extension",
    "enabledAppendPropCRC": "has_record_crc",
    "forceVerifyPropCRC": "needs_record_crc",
    "messageIndexEnable": "has_index",
    "messageIndexSafe": "is_index_safe",
    "duplicationEnable": "is_duplication_on",
    "checkCRCOnRecover": "checks_crc_on_recovery",
    "checkCommitLogOffsetOnRecover": "checks_physical_offset",
    "recheckReputOffsetFromCq": "rechecks_queues",
    "enableDLegerCommitLog": "is_dledger",
    "enableLmq": "has_light_queues",
    "enableMultiDispatch": "has_multi_dispatch",
    "rocksdbCQDoubleWriteEnable": "writes_both_queue_kinds",
    "combineCQUseRocksdbForLmq": "keeps_light_queues_in_rocksdb",
    "timerWheelEnable": "has_timer",
    "transientStorePoolEnable": "has_transient_pool",
}


@dataclass(frozen=True)
class ReadSettings:
    """How a broker version reads its settings; the defaults suit an unknown version.

    Attributes:
        names: of the settings that it has; None for those of any version.
        trims_texts: whether blanks around a text are none of it; numbers and truth values are never trimmed.
        splits_log_paths: whether `storePathCommitLog` may name several directories; else it is one, commas included.
        log_is_below_root: whether the log without a path of its own lies below `storePathRootDir`; else it lies below
            the home of the broker's user, wherever the rest is.
    """

    names: Collection[str] | None = None
    trims_texts: bool = True
    splits_log_paths: bool = True
    log_is_below_root: bool = True


ANY_VERSION: Final = ReadSettings()


@dataclass(frozen=True)
class BrokerConf:
    """Settings of a broker's properties file; None where it does not name one, so that the broker's default holds."""

    path: str
    properties: Mapping[str, str]
    """All of it, as Java reads it, whether the version has such a setting or not."""
    reads: ReadSettings = ANY_VERSION
    store_root: str | None = None
    commitlog_paths: tuple[str, ...] = ()
    """As written: the commitlog's directories, those that are read only at the end."""
    sizes: Settings = Settings()  # noqa: RUF009 - Settings is frozen
    """File sizes and counts, without directories."""
    delay_levels: str | None = None
    store_type: str | None = None
    broker_role: str | None = None
    flush_disk_type: str | None = None
    has_queue_extension: bool | None = None
    has_record_crc: bool | None = None
    needs_record_crc: bool | None = None
    has_index: bool | None = None
    is_index_safe: bool | None = None
    is_duplication_on: bool | None = None
    checks_crc_on_recovery: bool | None = None
    checks_physical_offset: bool | None = None
    rechecks_queues: bool | None = None
    is_dledger: bool | None = None
    has_light_queues: bool | None = None
    has_multi_dispatch: bool | None = None
    writes_both_queue_kinds: bool | None = None
    keeps_light_queues_in_rocksdb: bool | None = None
    has_timer: bool | None = None
    has_transient_pool: bool | None = None
    odd_sizes: tuple[str, ...] = ()
    """Names of sizes that the broker takes as they are, and of which no file can be."""
    is_whole: bool = True
    """True if the broker's defaults hold for settings that the file does not name."""

    def text(self, name: str) -> str | None:
        """A setting as the version reads it; None where it is not there, or the version has no such setting."""
        if name not in self.properties or (self.reads.names is not None and name not in self.reads.names):
            return None
        value = self.properties[name]
        return java_trim(value) if self.reads.trims_texts else value

    def flag(self, name: str) -> bool | None:
        """A truth value, for which Java takes every text; None where the file does not name it."""
        return parse_java_boolean(self.properties[name]) if self.text(name) is not None else None

    def number(self, name: str, bits: int = 32) -> int | None:
        """A number; None where the file lacks it or Java does not parse it, so that the broker's default holds."""
        return parse_java_integer(self.properties[name], bits) if self.text(name) is not None else None

    def read_as(self, reads: ReadSettings) -> BrokerConf:
        """The same file as another version reads it."""
        return replace(broker_conf(self.properties, self.path, reads), is_whole=self.is_whole)

    def settings(self) -> Settings:
        """The settings that a survey needs.

        A path below the root that the file names is taken relative to the store that is looked at, which may be a copy
        in another place. A relative path, which the broker takes from the directory it was started in, likewise.
        """
        root = posixpath.normpath(self.store_root) if self.store_root else None
        plain = dict.fromkeys(_below(path, root) for path in self.commitlog_paths)
        # Where DLedger keeps its data if not in `dledger-ID/data`; read-only paths count beside several others.
        data_paths = java_trim(self.text("storePathDLedgerCommitLog") or "") if self.is_dledger else ""
        read_only = java_trim(self.text("readOnlyCommitLogStorePaths") or "") if PATH_SPLITTER in data_paths else ""
        dledger_paths = [*data_paths.split(PATH_SPLITTER), *read_only.split(PATH_SPLITTER)]
        of_dledger = dict.fromkeys(_below(path, root) for path in dledger_paths if path)
        if of_dledger and not plain:
            plain = {"commitlog": None}
        # Where the broker keeps its consume queues; None where the store's files have to tell.
        queue_kind = "file" if self.store_type is not None or self.is_whole else None
        queue_roles = None
        if self.store_type is not None and self.store_type.lower() == _IN_ROCKSDB:
            queue_kind = "rocksdb"
        elif self.writes_both_queue_kinds:
            queue_kind = "mixed"
            reads, assigns = (_SIDES.get(kind := (self.text(name) or "default").lower(), kind) for name in _SIDE_ROLES)
            queue_roles = QueueRoles(reads, assigns, bool(self.keeps_light_queues_in_rocksdb))
        return replace(
            self.sizes,
            commitlog_directories=(*plain, *of_dledger),
            makes_index=self.has_index,
            has_light_queues=self.has_light_queues,
            uses_dledger=self.is_dledger,
            dledger_id=self.text("dLegerSelfId") if self.is_dledger else None,
            dledger_directories=(*of_dledger,),
            runs_timer=self.has_timer is not False,
            defaults_hold=self.is_whole and not self.odd_sizes,
            queue_kind=queue_kind,
            queue_roles=queue_roles,
        )

    @property
    def recover_files_max(self) -> int | None:
        """`commitLogRecoverMaxNum`: files from the log's end in which recovery looks for its start."""
        count = self.number("commitLogRecoverMaxNum")
        return count if count is not None and count > 0 else None


def read_broker_conf(path: Path, reads: ReadSettings = ANY_VERSION) -> BrokerConf:
    """Read a broker's properties file.

    Raises:
        UnreadableError: it is missing, may not be read, is too large to be one, or is none that Java reads.
    """
    with FileSource.open(path) as source:
        if source.size > SIZE_MAX:
            raise UnreadableError(f"{path}: {source.size} bytes are too many for a broker's properties file")
        content = read_range(source, 0, source.size)
    try:
        return broker_conf(parse_properties(content), str(path), reads)
    except MalformedEscapeError as error:
        raise UnreadableError(
            f"{path}: no broker starts with this file, for Java refuses all of it: {error} lacks hexadecimal digits"
        ) from error


def broker_conf(
    properties: Mapping[str, str], path: str = "broker.conf", reads: ReadSettings = ANY_VERSION
) -> BrokerConf:
    """Properties in the words of this package.

    Raises:
        UnreadableError: a path in it has a character that no path has.
    """
    if odd := [name for name in _PATHS if _IN_NO_PATH.search(properties.get(name, ""))]:
        raise UnreadableError(f"{path}: {odd[0]} has a character that no path has")
    conf = BrokerConf(path, properties, reads)
    numbers, odd_sizes = {}, []
    for key, name in _SIZES.items():
        number = conf.number(key)
        if number is None:
            continue
        if number < (2 if key == "maxIndexNum" else 1):  # the first entry of an index file is never used
            odd_sizes.append(key)
        else:
            numbers[name] = number
    if size := numbers.get("consumequeue_file_size"):
        rounded = -(-size // UNIT_SIZE) * UNIT_SIZE
        if rounded <= JAVA_INT_MAX:
            numbers["consumequeue_file_size"] = rounded
        else:
            del numbers["consumequeue_file_size"]
            odd_sizes += [
                name for name, field in _SIZES.items() if field == "consumequeue_file_size" and conf.number(name)
            ]
    # Several paths are split and not trimmed, and only beside them paths are read only.
    commitlog_paths = [conf.text("storePathCommitLog") or ""]
    if reads.splits_log_paths and PATH_SPLITTER in commitlog_paths[0]:
        texts = (commitlog_paths[0], conf.text("readOnlyCommitLogStorePaths") or "")
        commitlog_paths = [path for text in texts for path in java_trim(text).split(PATH_SPLITTER)]
    flags = {name: value for key, name in _FLAGS.items() if (value := conf.flag(key)) is not None}
    configuration = replace(
        conf,
        store_root=conf.text("storePathRootDir") or None,
        commitlog_paths=tuple(path for path in commitlog_paths if path),
        sizes=Settings(**numbers),  # type: ignore[arg-type]
        delay_levels=conf.text("messageDelayLevel"),
        store_type=conf.text("storeType"),
        broker_role=conf.text("brokerRole"),
        flush_disk_type=conf.text("flushDiskType"),
        odd_sizes=tuple(odd_sizes),
    )
    return replace(configuration, **flags)  # type: ignore[arg-type]


def setting_of_size(field: str, names: Collection[str]) -> str:
    """Of some names the one of the setting that gives a size, one of the fields of `Settings`."""
    return next(name for name, named in reversed(_SIZES.items()) if named == field and name in names)


def with_properties(conf: BrokerConf | None, texts: Sequence[str], reads: ReadSettings = ANY_VERSION) -> BrokerConf:
    """A configuration with some settings, each KEY=VALUE, that go before its own.

    Raises:
        UsageError: one of them is not of this form.
    """
    properties = dict(conf.properties) if conf is not None else {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"--set {text}: not KEY=VALUE")
        properties[key.strip()] = value.strip()
    changed = broker_conf(properties, conf.path if conf is not None else "--set", reads)
    return changed if conf is not None else replace(changed, is_whole=False)


def _below(path: str, root: str | None) -> str:
    path = posixpath.normpath(path)
    return posixpath.relpath(path, root) if root and path.startswith(f"{root.rstrip('/')}/") else path
