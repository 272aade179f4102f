"""Reads a broker's own properties file: where its store lies, how large its files are, which flags shape them.

Broker: `BrokerStartup` (loads it with `java.util.Properties`), `MixAll#properties2Object`, `MessageStoreConfig`.

Nothing is expanded: neither `$HOME` nor `${user.home}` means anything to the broker inside such a file. A number that
Java does not parse is skipped by the broker, and here, with a sentence in `problems`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rmqtool.errors import UnreadableError, UsageError
from rmqtool.formats.consumequeue import UNIT_SIZE
from rmqtool.store.directory import Settings
from rmqtool.store.queue_roles import QueueRoles
from rmqtool.store.relaxed_json import join_surrogates
from rmqtool.store.source import FileSource, read_range

SIZE_MAX: Final = 1 << 20
"""Bytes of a properties file that are read; a broker's has a few kilobytes."""
PATH_SPLITTER: Final = ","
"""Between the paths of a commitlog that lies on several disks (system property `rocketmq.broker.multiPathSplitter`)."""

_SEPARATOR: Final = re.compile(r"((?:[^\\:= \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)\Z", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_JAVA_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}\Z")

_IN_ROCKSDB: Final = "defaultrocksdb"
_SIDES: Final = {"default": "file", _IN_ROCKSDB: "rocksdb"}
_SIDE_ROLES: Final = ("combineCQPreferCQType", "combineAssignOffsetCQType")
_INTEGERS: Final = {
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
class BrokerConf:
    """What a broker's properties file says; None where it says nothing, so that the broker's default holds."""

    path: str
    properties: Mapping[str, str]
    """All of it, as Java reads it."""
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
    problems: tuple[str, ...] = ()
    is_whole: bool = True
    """Whether the broker's defaults hold for what it does not say."""

    def settings(self) -> Settings:
        """What of it a survey needs.

        A path below the root that the file names is taken relative to the store that is looked at, which may be a copy
        in another place. A relative path, which the broker takes from the directory it was started in, likewise.
        """
        root = posixpath.normpath(self.store_root) if self.store_root else None
        plain = dict.fromkeys(_below(path, root) for path in self.commitlog_paths)
        of_dledger = dict.fromkeys(_below(path, root) for path in self._dledger_paths)
        if of_dledger and not plain:
            plain = {"commitlog": None}
        return replace(
            self.sizes,
            commitlog_directories=(*plain, *of_dledger),
            makes_index=self.has_index,
            uses_dledger=self.is_dledger,
            dledger_id=self.properties.get("dLegerSelfId") if self.is_dledger else None,
            dledger_directories=(*of_dledger,),
            runs_timer=self.has_timer is not False,
            defaults_hold=self.is_whole,
            queue_kind=self._queue_kind,
            queue_roles=self._queue_roles,
        )

    @property
    def recover_files_max(self) -> int | None:
        """`commitLogRecoverMaxNum`: files from the log's end in which recovery looks for its start."""
        value = self.properties.get("commitLogRecoverMaxNum", "")
        return int(value) if _JAVA_INTEGER.match(value) and 0 < int(value) < 1 << 31 else None

    @property
    def _dledger_paths(self) -> tuple[str, ...]:
        """Where DLedger keeps its data if not in `dledger-ID/data`; read-only paths count beside several others."""
        value = self.properties.get("storePathDLedgerCommitLog", "").strip() if self.is_dledger else ""
        read_only = self.properties.get("readOnlyCommitLogStorePaths", "").strip() if PATH_SPLITTER in value else ""
        return tuple(path for text in (value, read_only) for path in text.split(PATH_SPLITTER) if path)

    @property
    def _queue_kind(self) -> str | None:
        """Where the broker keeps its consume queues; None where the store's files have to tell."""
        if self.store_type is not None and self.store_type.lower() == _IN_ROCKSDB:
            return "rocksdb"
        if self.writes_both_queue_kinds:
            return "mixed"
        return "file" if self.store_type is not None or self.is_whole else None

    @property
    def _queue_roles(self) -> QueueRoles | None:
        """What each side is for where queues are written to both."""
        if self._queue_kind != "mixed":
            return None
        reads, assigns = (
            _SIDES.get(kind := self.properties.get(name, "default").lower(), kind) for name in _SIDE_ROLES
        )
        return QueueRoles(reads, assigns, bool(self.keeps_light_queues_in_rocksdb))


def read_broker_conf(path: Path) -> BrokerConf:
    """Read a broker's properties file.

    Raises:
        UnreadableError: it is missing, may not be read, or is too large to be one.
    """
    with FileSource.open(path) as source:
        if source.size > SIZE_MAX:
            raise UnreadableError(f"{path}: {source.size} bytes are too many for a broker's properties file")
        content = read_range(source, 0, source.size)
    return broker_conf(parse_properties(content), str(path))


def broker_conf(properties: Mapping[str, str], path: str = "broker.conf") -> BrokerConf:
    """Properties in the words of this package."""
    problems: list[str] = []
    numbers: dict[str, int] = {}
    for key, name in _INTEGERS.items():
        if key not in properties:
            continue
        value = properties[key]
        number = int(value) if _JAVA_INTEGER.match(value) else 0
        if (key, number) == ("maxIndexNum", 1):
            problems.append(f"{path}: {key}={value!r} leaves no room for an entry after the unused first one; ignored")
        elif 0 < number < 1 << 31:
            numbers[name] = number
        else:
            problems.append(f"{path}: {key}={value!r} is not a size; the broker uses its default")
    if size := numbers.get("consumequeue_file_size"):
        numbers["consumequeue_file_size"] = -(-size // UNIT_SIZE) * UNIT_SIZE
    flags = {name: properties[key].lower() == "true" for key, name in _FLAGS.items() if key in properties}
    configuration = BrokerConf(
        path,
        properties,
        store_root=properties.get("storePathRootDir") or None,
        commitlog_paths=_commitlog_paths(properties),
        sizes=_sizes(numbers),
        delay_levels=properties.get("messageDelayLevel"),
        store_type=properties.get("storeType"),
        broker_role=properties.get("brokerRole"),
        flush_disk_type=properties.get("flushDiskType"),
        problems=tuple(problems),
    )
    return replace(configuration, **flags)  # type: ignore[arg-type]


def with_properties(conf: BrokerConf | None, texts: Sequence[str]) -> BrokerConf:
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
    changed = broker_conf(properties, conf.path if conf is not None else "--set")
    return changed if conf is not None else replace(changed, is_whole=False)


def parse_properties(content: bytes) -> dict[str, str]:
    """Properties as `java.util.Properties#load` reads them from a stream: Latin-1; of equal keys the last counts."""
    properties: dict[str, str] = {}
    for line in _logical_lines(content.decode("latin-1")):
        match = _SEPARATOR.match(line)
        if match:
            properties[_unescape(match[1])] = _unescape(match[2])
    return properties


def _logical_lines(text: str) -> list[str]:
    """Lines with comments left out and continued ones joined: a line continues after an odd number of backslashes."""
    lines: list[str] = []
    continued: list[str] | None = None
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if continued is None and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        parts = continued if continued is not None else []
        if backslashes % 2:
            parts.append(line[:-1])
            continued = parts
        else:
            parts.append(line)
            lines.append("".join(parts))
            continued = None
    if continued is not None:
        lines.append("".join(continued))
    return lines


def _unescape(text: str) -> str:
    plain = _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else _ESCAPED.get(match[2], match[2]), text)
    return join_surrogates(plain)


def _commitlog_paths(properties: Mapping[str, str]) -> tuple[str, ...]:
    named = [properties.get(key, "") for key in ("storePathCommitLog", "readOnlyCommitLogStorePaths")]
    if not named[0] and named[1]:  # without a path of its own the log lies in its usual place
        named[0] = posixpath.join(properties.get("storePathRootDir", ""), "commitlog")
    return tuple(path for value in named for part in value.split(PATH_SPLITTER) if (path := part.strip()))


def _sizes(numbers: Mapping[str, int]) -> Settings:
    return Settings(
        commitlog_file_size=numbers.get("commitlog_file_size"),
        consumequeue_file_size=numbers.get("consumequeue_file_size"),
        extension_file_size=numbers.get("extension_file_size"),
        batch_file_size=numbers.get("batch_file_size"),
        index_slot_count=numbers.get("index_slot_count"),
        index_entry_count=numbers.get("index_entry_count"),
        timer_log_file_size=numbers.get("timer_log_file_size"),
        compaction_log_file_size=numbers.get("compaction_log_file_size"),
        compaction_queue_file_size=numbers.get("compaction_queue_file_size"),
    )


def _below(path: str, root: str | None) -> str:
    path = posixpath.normpath(path)
    return posixpath.relpath(path, root) if root and path.startswith(f"{root.rstrip('/')}/") else path
