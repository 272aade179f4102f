"""Writes the new store: log, configuration, and the files built from the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rmqtool.engine.append.log_writer import LogWriter
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnsupportedError
from rmqtool.extract.chosen import Choice, ChosenRecord, ChosenRecords, QueueRange
from rmqtool.formats import commitlog
from rmqtool.formats.commitlog import PHYSICAL_OFFSET_AT, QUEUE_OFFSET_AT
from rmqtool.formats.queue_name import QueueName
from rmqtool.formats.record_crc import stored_record_crc, with_record_crc
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.repair.derived.result import BuildOptions
from rmqtool.repair.machine.disk import Metadata
from rmqtool.repair.machine.output import check_output
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.new_store import new_store
from rmqtool.scan.runner import OnProgress
from rmqtool.store.config.config_json import config_bytes
from rmqtool.store.config.config_kinds import CONFIG_KINDS, Join
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Settings, Store
from rmqtool.store.sink import DirectorySink

_PREPARED_BEFORE_BODY: Final = 12
"""Bytes from the offset of the half message to the body; hosts, whose length varies, are before them."""
_LOG: Final = "commitlog"


@dataclass(frozen=True)
class SourceLog:
    """A store that messages are taken from; `log_directories` are those of its log outside of it."""

    store: Store
    rules: BrokerRules
    root: Path
    log_directories: tuple[str, ...] = (_LOG,)


@dataclass(frozen=True)
class NewStore:
    """Content of the new store, written or planned."""

    queues: dict[QueueName, QueueRange]
    left_out: Counter[str]
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()


def count_chosen(sources: Sequence[SourceLog], choice: Choice) -> NewStore:
    """Choose, and write nothing.

    Raises:
        RefusedError, UnsupportedError, UnreadableError: as `ChosenRecords.of`.
    """
    chosen = ChosenRecords(choice)
    for source in sources:
        for _ in chosen.of(source.store, source.rules):
            pass
    return NewStore(chosen.queues, chosen.left_out, tuple(chosen.problems))


def write_new_store(
    sources: Sequence[SourceLog],
    choice: Choice,
    output: Path,
    sizes: Settings,
    options: BuildOptions,
    on_progress: OnProgress | None = None,
) -> NewStore:
    """Write chosen messages of stores, one after the other, into a new store; removed again where it fails.

    Where offsets are kept, the log begins with its second file: units before a queue's first message then point before
    the log, as those of expired messages do.

    Args:
        output: a directory that is not there yet, or is empty.
        sizes: of the new files; what is None is as in the first store, or not needed.

    Raises:
        UsageError: the directory is not free, or is in one of the stores.
        RefusedError, UnsupportedError: see `ChosenRecords.of`; or no message is chosen.
        UnreadableError, WriteError: a file fails.
    """
    for source in sources:
        check_output(StorePaths(source.root, source.log_directories), output)
    metadata = Metadata.of(StorePaths(sources[0].root).top)
    with new_store(output, metadata, options, on_progress) as finish:
        chosen = _write_log(sources, choice, output, sizes)
        notes = finish(replace(sizes, commitlog_directories=()), sources[0].rules, "extract")
    return NewStore(chosen.queues, chosen.left_out, tuple(chosen.problems), notes)


def _write_log(sources: Sequence[SourceLog], choice: Choice, output: Path, sizes: Settings) -> ChosenRecords:
    file_size = sizes.commitlog_file_size
    assert file_size is not None, "every store with a log has one"
    chosen = ChosenRecords(choice)
    with DirectorySink(output) as sink:
        # What is written is read again when the queues are built.
        log = LogWriter(sink, (_LOG,), file_size, lambda _at, _block: None, file_size if choice.keeps_offsets else None)
        for source in sources:
            for record in chosen.of(source.store, source.rules):
                if not log.fits(len(record.raw)):
                    log.roll()
                log.append(moved(record, log.end))
        log.sync()
        log.drop_preallocated()
        if not chosen.queues:
            raise UnsupportedError("no message of these topics and times: nothing to write")
        names = {topic for topic, _ in chosen.queues}
        stores = [source.store for source in sources]
        for path, content in config_files(stores, names, with_offsets=choice.keeps_offsets).items():
            sink.create(path, 0)
            sink.write_at(path, 0, content)
            sink.sync(path)
        sink.sync_directory("")
    return chosen


def moved(record: ChosenRecord, physical_offset: int) -> bytearray:
    """A record as it is at another place: nothing else of it changes but where a committed one's half message was."""
    raw = bytearray(record.raw)
    raw[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + 8] = record.queue_offset.to_bytes(8, "big")
    raw[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8] = physical_offset.to_bytes(8, "big")
    if record.prepared_transaction_offset != TOMBSTONE:
        at = commitlog.head_size(record.sys_flag) - _PREPARED_BEFORE_BODY
        raw[at : at + 8] = bytes(8)
    return bytearray(with_record_crc(bytes(raw))) if stored_record_crc(record.raw) is not None else raw


def config_files(stores: Sequence[Store], names: Collection[str], *, with_offsets: bool) -> dict[str, bytes]:
    """Contents by path; a file that no store has is left out.

    Where several stores have an entry, `ConfigKind.join` says which counts.

    Args:
        names: topics of the new store.
        with_offsets: whether consumers continue where they were.
    """
    joins: dict[Join, Callable[[Any, Any], Any]] = {
        Join.MOST_QUEUES: lambda first, second: max(first, second, key=_queue_count),
        Join.FIRST: lambda first, _second: first,
        Join.HIGHEST_OFFSETS: _highest,
    }
    contents: dict[str, bytes] = {}
    for kind in CONFIG_KINDS:
        if kind.join is None or (kind.join is Join.HIGHEST_OFFSETS and not with_offsets):
            continue
        join = joins[kind.join]
        configs = [config.value for store in stores if (config := read_config(store.view, kind.path)).value is not None]
        table: dict[str, Any] = {}
        for value in configs:
            entries = value.get(kind.table)
            for key, entry in entries.items() if isinstance(entries, dict) else ():
                name = str(key)
                if isinstance(entry, dict) and (not kind.by_topic or name.partition("@")[0] in names):
                    table[name] = join(table[name], entry) if name in table else entry
        if configs:
            kept = {name: value for name, value in configs[0].items() if name == "dataVersion"}
            contents[kind.path] = config_bytes({**kept, kind.table: table})
    return contents


def _queue_count(entry: Mapping[Any, Any]) -> int:
    count = entry.get("writeQueueNums")
    return count if isinstance(count, int) else 0


def _highest(first: Any, second: Any) -> Any:
    joined = {str(queue_id): value for queue_id, value in first.items()}
    for queue_id, value in second.items():
        known = joined.get(str(queue_id))
        if isinstance(value, int) and not (isinstance(known, int) and known > value):
            joined[str(queue_id)] = value
    return joined
