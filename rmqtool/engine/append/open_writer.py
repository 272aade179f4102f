"""Opens a store for writing: a new one, or one that a broker (or this writer) left, at the true end of its log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import disk_usage
from typing import Any, Final

from rmqtool.engine.append.appender import clock_ms
from rmqtool.engine.append.encoder import encode_blank
from rmqtool.engine.append.log_dispatcher import LogDispatcher, dispatch_from, waits_for_dispatch
from rmqtool.engine.append.store_writer import StoreWriter, make_abort
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.dispatch.index_writer import IndexWriter, OpenIndexFile, holds_no_entry, read_index_file
from rmqtool.engine.dispatch.queue_entries import DispatchSettings
from rmqtool.engine.queues.file_queue import FileQueue
from rmqtool.engine.reading.log_end import find_log_end
from rmqtool.engine.reading.reader import Reader, open_reader
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import RefusedError, UnreadableError, UnsupportedError, WriteError
from rmqtool.formats.checkpoint import Checkpoint
from rmqtool.formats.commitlog import BLANK_SIZE_MIN
from rmqtool.formats.consumequeue import UNIT_SIZE
from rmqtool.formats.index import file_size
from rmqtool.formats.queue_name import topic_bytes
from rmqtool.scan.blocks import last_data_end
from rmqtool.store.acquire_lock import StoreLock
from rmqtool.store.checkpoint_file import read_checkpoint
from rmqtool.store.config.config_json import batch_topics, topics
from rmqtool.store.config.config_kinds import TOPICS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind, segment_name
from rmqtool.store.sink import DirectorySink
from rmqtool.store.source import read_range, reason

NEW_DIRECTORIES: Final = ("consumequeue", "index", "config")


@contextmanager
def new_store(
    root: Path,
    rules: BrokerRules,
    config: WriterConfig,
    clock: Callable[[], int] = clock_ms,
    *,
    process_id: int | None = None,
    dumped_from: int | None = None,
) -> Iterator[StoreWriter]:
    """A store in a directory that is empty or does not exist; stopped cleanly at the end, like a crash on an error.

    Args:
        dumped_from: physical offset at which the dump of a whole log begins, that of a file; the log begins there too.

    Raises:
        RefusedError: there is something in the directory.
        UnsupportedError: the log is to lie outside of it.
        WriteError: it cannot be made.
    """
    _require_inner_log(root, config.commitlog_directories)
    try:
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()):
            raise RefusedError(f"{root}: not empty; a new store needs a directory of its own")
        for name in (*config.commitlog_directories, *NEW_DIRECTORIES):
            (root / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{root}: {reason(error)}") from error
    with StoreLock(root), DirectorySink(root) as sink:
        make_abort(sink, rules, process_id)
        dispatcher = open_dispatcher(sink, rules, config, clock)
        with StoreWriter(
            sink, rules, config, dispatcher, dumped_from or None, clock=clock, from_dump=dumped_from is not None
        ) as writer:
            writer.is_writable = _has_space(root, config)
            yield writer


@contextmanager
def existing_store(
    root: Path,
    look: Callable[[], Store],
    rules: BrokerRules,
    config: WriterConfig,
    clock: Callable[[], int] = clock_ms,
    *,
    after_crash: bool = False,
    process_id: int | None = None,
) -> Iterator[StoreWriter]:
    """A store that is there, continued at the end of its log.

    Args:
        look: surveys the store; called once the lock is held.
        after_crash: continue though the last stop was not clean; records that no queue has are dispatched first.

    Raises:
        RefusedError: a broker uses it, its last stop was not clean, or its end is not where queues and log agree.
        UnreadableError: something else is where a broker opens a file.
        UnsupportedError: it keeps its queues or its log in a form that is not written.
    """
    with ExitStack() as stack:
        stack.enter_context(StoreLock(root))
        store = look()
        for node in store.nodes:
            raise UnreadableError(f"{node.not_a_file}: move it out of the store, and run this again")
        _require_writable(root, store)
        if store.has_abort and not after_crash:
            raise RefusedError(f"{root}: the last stop was not clean; run rmqtool recover first")
        reader = stack.enter_context(open_reader(store, rules))
        files = stack.enter_context(OpenFiles(store.view))
        sink = stack.enter_context(DirectorySink(root))
        dispatched, end = _log_ends(store, reader, files, after_crash=after_crash)
        if not store.has_abort:
            make_abort(sink, rules, process_id)
        _remove_files_after_end(store, reader, sink, end)
        if config.extension:
            _remove_unused_extensions(store, reader, sink)
        dispatcher = open_dispatcher(sink, rules, config, clock, reader)
        if after_crash and end is not None:
            dispatch_from(store, dispatcher, dispatched, end)
        if after_crash:
            # Queues have grown by what was dispatched just now, and some of them are new.
            dispatcher.derived.sync()
            dispatcher.existing = stack.enter_context(open_reader(look(), rules))
        checkpoint = read_checkpoint(store) or Checkpoint()
        # The file that the log ends in, whatever its name looks like; None where the next record begins another one.
        size = config.commitlog_file_size
        at_end = (one for one in store.commitlog if end is not None and one.start <= end < one.start + size)
        log_file = next(at_end, None)
        writer = StoreWriter(
            sink,
            rules,
            config,
            dispatcher,
            end,
            checkpoint,
            was_abnormal=store.has_abort,
            log_file=log_file,
            clock=clock,
        )
        writer.is_writable = _has_space(root, config)
        yield stack.enter_context(writer)


def _has_space(root: Path, config: WriterConfig) -> bool:
    """True if one of the log's disks has space for a broker (`DefaultMessageStore#isSpaceFull`)."""
    if config.disk_ratio_max is None:
        return True
    try:
        disks = [disk_usage(root / directory) for directory in config.commitlog_directories]
    except OSError as error:
        raise WriteError(f"{root}: {reason(error)}") from error
    return min(disk.used / disk.total for disk in disks) <= config.disk_ratio_max


def open_dispatcher(
    sink: DirectorySink,
    rules: BrokerRules,
    config: WriterConfig,
    clock: Callable[[], int] = clock_ms,
    reader: Reader | None = None,
) -> LogDispatcher:
    """Queues and index at their ends; `reader` is that of the store, None where it has none yet."""
    index = None
    if config.index:
        current = _last_index_file(reader.store, config, sink) if reader is not None else None
        index = IndexWriter(sink, config.index_slot_count, config.index_entry_count, rules, clock, current)
    settings = DispatchSettings(
        rules, config.multi_dispatch, config.lmq, frozenset(map(topic_bytes, config.batch_topics))
    )
    return LogDispatcher(sink, settings, config, index, reader)


def config_of(store: Store, config: WriterConfig) -> WriterConfig:
    """The settings with the sizes that a store's files have, and the batch topics that it knows."""
    sizes = {
        "commitlog_file_size": store.commitlog_file_size,
        "consumequeue_file_size": store.consumequeue_file_size,
        "extension_file_size": store.extension_file_size,
        "batch_file_size": store.batch_file_size,
        "index_slot_count": store.index_slot_count,
        "index_entry_count": store.index_entry_count,
        "commitlog_directories": _log_directories(store, config),
        "extension": bool(store.extensions),
    }
    known = topics(read_config(store.view, TOPICS))
    packed = config.batch_topics | batch_topics(known, (topic for topic, _ in store.batch_queues))
    counts = {
        name: topic_config.write_queue_count
        for name, topic_config in known.items()
        if topic_config.write_queue_count is not None
    }
    known_sizes: dict[str, Any] = {name: size for name, size in sizes.items() if size}
    return replace(config, batch_topics=packed, queue_counts=counts, **known_sizes)


def _log_directories(store: Store, config: WriterConfig) -> tuple[str, ...]:
    """The configured directories, even without a file; else those that hold the log."""
    holding = {segment.path.rpartition("/")[0] for segment in store.commitlog}
    for told in (store.settings.commitlog_directories, config.commitlog_directories):
        if holding <= set(told):
            return told
    return tuple(sorted(holding))


def _require_inner_log(root: Path | str, directories: Iterable[str]) -> None:
    """Refuse a log outside the store's directory before anything is created: no file there can be written."""
    for directory in directories:
        if directory.startswith("/") or ".." in directory.split("/"):
            raise UnsupportedError(
                f"{root}: the commit log is in {directory}; rmqtool append writes only below the store's directory"
            )


def _require_writable(root: Path, store: Store) -> None:
    for kind in (FileKind.CONSUMEQUEUE_ROCKSDB, FileKind.DLEDGER):
        if store.files.get(kind):
            raise UnsupportedError(f"{store.view.label}: {kind.value} found; rmqtool cannot write to such a store")
    _require_inner_log(store.view.label, store.settings.commitlog_directories)
    # A file with a number of fewer digits for a name is to brokers one of the log.
    for segment in store.loadable_log:
        if segment not in store.commitlog:
            raise RefusedError(
                f"{segment.path}: brokers load it as a commit log file, though its name does not have 20 digits; if "
                f"its records start at {segment.start}, rename it to {segment_name(segment.start)}, else move it away"
            )
    # What is written to a file that has another name too would be in the store that it was copied from.
    for entry in (*(segment.entry for segment in store.commitlog[-1:]), *store.files.get(FileKind.CHECKPOINT, ())):
        if (root / entry.path).stat().st_nlink > 1:
            raise RefusedError(
                f"{root / entry.path}: the file has another name, in a copy made with hard links; append would change "
                "it there too, so make a copy without them (cp -a)"
            )


def _log_ends(store: Store, reader: Reader, files: OpenFiles, *, after_crash: bool) -> tuple[int, int | None]:
    """The end of the log as the queues know it, and its own end; None as the end of a log without any file."""
    if not store.commitlog:
        return 0, None
    known = last_units(reader)
    end = find_log_end(store.commitlog, files, known)
    where = f"{store.view.label}: the log's end"
    if not end.is_exact:
        raise RefusedError(f"{where} is not clear ({end.reason}); run rmqtool recover first")
    dispatched = max((start + size for start, size in known), default=store.commitlog[0].start)
    for segment in store.commitlog:
        if segment.end <= end.physical_offset:
            continue
        behind = max(0, end.physical_offset - segment.start)
        with closing(store.view.open(segment.path)) as source:
            # A blank that no record follows is where a broker, too, continues, and what it overwrites. Only its first
            # bytes are written: 4.4.0 leaves old ones after them.
            if read_range(source, behind, BLANK_SIZE_MIN) == encode_blank(segment.size - behind):
                continue
            if last_data_end(source, behind, segment.size) != behind:
                raise RefusedError(
                    f"{where} is at {end.physical_offset}, but bytes follow after it; run rmqtool recover first"
                )
    if not after_crash and waits_for_dispatch(store, dispatched, end.physical_offset):
        raise RefusedError(
            f"{where} is at {end.physical_offset}, but the queues end at {dispatched}; run rmqtool recover first"
        )
    return dispatched, end.physical_offset


def last_units(reader: Reader) -> list[tuple[int, int]]:
    """Physical offset and size of the last record of each queue."""
    return [
        (unit.physical_offset, unit.record_size)
        for name in reader.queues()
        if (queue := reader.queue(*name)).max_queue_offset > queue.min_queue_offset
        and (unit := queue.unit_at(queue.max_queue_offset - 1)) is not None
    ]


def _remove_files_after_end(store: Store, reader: Reader, sink: DirectorySink, log_end: int | None) -> None:
    """Unlink files of zeros that begin after the end of the log or of a queue, as the recovery of a broker does."""
    after = [segment for segment in store.commitlog if log_end is not None and segment.start > log_end]
    for name, queue in store.queues.items():
        queue_end = reader.queue(*name).max_queue_offset * UNIT_SIZE
        after += [segment for segment in queue.segments if segment.start > queue_end]
    for segment in after:
        with closing(store.view.open(segment.path)) as source:
            is_zero = last_data_end(source, 0, segment.size) == 0
        if is_zero:
            sink.remove(segment.path)


def _remove_unused_extensions(store: Store, reader: Reader, sink: DirectorySink) -> None:
    """Unlink files of extensions after the one with a queue's last address, as a start of a broker does."""
    for name in store.extensions.keys() & store.queues.keys():
        queue = reader.queue(*name)
        end = queue.extension_end() if isinstance(queue, FileQueue) else None
        for segment in store.extensions[name].segments:
            if end is not None and segment.start > end:
                sink.remove(segment.path)


def _last_index_file(store: Store, config: WriterConfig, sink: DirectorySink) -> OpenIndexFile | None:
    """The file for the next entries; a broker takes one without entries for a file of the configured size."""
    if not store.index_files:
        return None
    last = store.index_files[-1]
    if not store.index_slot_count:
        with closing(store.view.open(last.path)) as source:
            if not holds_no_entry(source):
                return None
    if last.size < (size := file_size(config.index_slot_count, config.index_entry_count)):
        sink.create(last.path, size)
    with closing(store.view.open(last.path)) as source:
        return read_index_file(last.path, source, config.index_slot_count)
