"""Runs a mirror on a store directory: lock, `abort`, log, queues, configuration, and the state for the next run."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from rmqtool.engine.append.log_dispatcher import dispatch_from
from rmqtool.engine.append.open_writer import config_of, last_units, open_dispatcher
from rmqtool.engine.append.store_writer import ABORT, CHECKPOINT, make_abort
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import NotAStoreError, RefusedError, RmqtoolError, UnreadableError, UnsupportedError, WriteError
from rmqtool.formats.checkpoint import FILE_SIZE, Checkpoint, build_checkpoint
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.replication.connection import MasterAddress
from rmqtool.replication.log_copy import LogCopy
from rmqtool.replication.mirror import Mirror, MirrorOptions
from rmqtool.replication.mirror_status import MirrorStatus
from rmqtool.report.own_file import OwnFile
from rmqtool.store.acquire_lock import StoreLock
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.relaxed_json import parse_relaxed_json
from rmqtool.store.sink import DirectorySink, reported
from rmqtool.store.source import Closable, read_range
from rmqtool.store.view import StoreView, open_directory

BUILD_SYNC_SECONDS: Final = 5.0
CONFIG_SECONDS: Final = 30.0
_OWN_NAMES: Final = frozenset({"lock", "config", ".rmqtool", "commitlog", "abort", "abort.bak", "checkpoint"})
"""Files left by a run that was killed before it wrote a record."""


@dataclass(frozen=True)
class MirrorRequest:
    """Request for a run.

    Attributes:
        file_size: bytes of a commit log file, where a person says so.
        builds: whether queues, index and checkpoint are built.
        accepts_master: whether the log may come from another address than in the last run.
        config_from: directory with the master's configuration; None where it is not reachable.
    """

    root: Path
    address: MasterAddress
    options: MirrorOptions
    look: Callable[[], Store]
    rules: BrokerRules
    config: WriterConfig
    file_size: int | None = None
    builds: bool = False
    accepts_master: bool = False
    config_from: Path | None = None


@dataclass
class MirrorResult:
    """Result of a mirror.

    Attributes:
        stopped_by: see `Mirror.run`.
        config_files: those that were copied.
        problems: configuration that was not copied, as sentences.
    """

    stopped_by: str
    config_files: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def run_mirror(
    request: MirrorRequest,
    status: MirrorStatus,
    should_stop: Callable[[], bool] = lambda: False,
    on_turn: Callable[[], None] = lambda: None,
) -> MirrorResult:
    """Mirror a master's log until there is a reason to stop.

    Raises:
        RefusedError: a broker or another rmqtool uses the store, or it is none that can be continued.
        DivergedError: the master's log does not continue the copy; what was copied before is kept.
        MasterLostError: the master did not answer the first time.
        WriteError: the disk does not take it; a later run continues the copy.
    """
    is_new = not request.root.exists()
    with reported(request.root):
        request.root.mkdir(parents=True, exist_ok=True)
        before = frozenset(path.name for path in request.root.iterdir())
    with StoreLock(request.root):
        try:
            with ExitStack() as stack:
                sink = stack.enter_context(DirectorySink(request.root))
                run = _MirrorRun(request, status, sink, stack)
                return run.run(should_stop, on_turn)
        except (RmqtoolError, OSError):
            if not (request.root / "commitlog").exists():
                _clear(request.root, _OWN_NAMES - before, is_new=is_new)
            raise


def _clear(root: Path, names: Iterable[str], *, is_new: bool) -> None:
    """Remove the files of a run that copied nothing, and a new directory itself, which must not look like a copy."""
    with suppress(OSError):
        for name in names:
            path = root / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if is_new:
            root.rmdir()


class _MirrorRun:
    def __init__(self, request: MirrorRequest, status: MirrorStatus, sink: DirectorySink, stack: ExitStack) -> None:
        self._request, self._status, self._sink = request, status, sink
        self._view = open_directory(request.root)
        store = self._look()
        self._state = read_state(self._view)
        before, now = self._state.master, str(request.address)
        if before not in (None, now) and not request.accepts_master:
            raise RefusedError(
                f"{request.root}: mirrors {before}, not {now}; pass --new-master if {now} continues the same log"
            )
        self._had_abort = self._view.stat(ABORT) is not None
        if not self._had_abort:
            make_abort(sink, request.rules)
        self._copy = LogCopy(store, self._view, sink, request.file_size)
        self._state = replace(self._state, master=now)
        self._result = MirrorResult("")
        self._config_at = 0.0
        self._copy_config()
        self._builder = self._open_builder(stack)
        self._built_at = time.monotonic()
        self._note_state()

    def run(self, should_stop: Callable[[], bool], on_turn: Callable[[], None]) -> MirrorResult:
        def turn() -> None:
            if time.monotonic() - self._config_at >= CONFIG_SECONDS:
                self._copy_config()
            on_turn()

        def synced() -> None:
            if builder is not None and time.monotonic() - self._built_at >= BUILD_SYNC_SECONDS:
                builder.sync()
                self._note_state()
                self._built_at = time.monotonic()

        builder = self._builder
        mirror = Mirror(
            self._request.address,
            self._copy,
            self._request.options,
            self._status,
            on_written=builder.dispatch if builder is not None else lambda _offset, _block: None,
            on_synced=synced,
            should_stop=should_stop,
            on_turn=turn,
        )
        try:
            self._result.stopped_by = mirror.run()
        except WriteError:
            raise  # what is on the disk is not known: `abort` stays
        except BaseException:
            self._finish()
            raise
        self._finish()
        return self._result

    def _look(self) -> Store | None:
        """The copy; None where the directory is new, or has only files of a killed run."""
        try:
            store = self._request.look()
        except NotAStoreError:
            store = None
        if store is not None and store.commitlog:
            if store.files.get(FileKind.DLEDGER):
                raise RefusedError(f"{self._request.root}: a store of DLedger; a mirror needs a directory of its own")
            return store
        strange = sorted({path.name for path in self._request.root.iterdir()} - _OWN_NAMES)
        if strange or (store is not None and store.loadable_log):
            named = strange[0] if strange else "commitlog"
            raise RefusedError(
                f"{self._request.root}: {named} is there, but no commit log; a new mirror needs an empty directory"
            )
        return None

    def _open_builder(self, stack: ExitStack) -> BuilderBehind | None:
        request, copy = self._request, self._copy
        if not request.builds:
            self._state = replace(self._state, built_offset=None)
            return None
        built = self._state.built_offset
        is_inside = built is not None and copy.start is not None and copy.start <= built <= copy.end
        builder = BuilderBehind(
            self._look,
            self._sink,
            request.rules,
            request.config,
            built_offset=built if is_inside else None,
            log_end=copy.end,
        )
        return stack.enter_context(builder)

    def _copy_config(self) -> None:
        self._config_at = time.monotonic()
        if self._request.config_from is not None:
            self._result.config_files, self._result.problems = copy_config(self._request.config_from, self._sink)

    def _note_state(self) -> None:
        built = self._builder.built_offset if self._builder is not None else None
        self._state = MirrorState(self._state.master, built)
        # Padded, so that a shorter text leaves nothing of a longer one.
        content = json.dumps(asdict(self._state)).encode().ljust(STATE_SIZE - 1) + b"\n"
        self._sink.create(PATH, STATE_SIZE)
        self._sink.write_at(PATH, 0, content)
        self._sink.sync(PATH)

    def _finish(self) -> None:
        """Leave the store as after a clean stop, unless queues lag behind the log after an earlier crash."""
        self._copy.sync()
        if self._builder is not None:
            self._builder.finish()
        self._note_state()
        has_queues = self._view.stat("consumequeue") is not None
        if self._builder is not None or not self._had_abort or not has_queues:
            self._sink.remove(ABORT)
        self._sink.sync_directory("")


# Copies a broker's configuration, the files of `config/`, from a directory that is reachable.


CONFIG_SIZE_MAX: Final = 256 << 20
"""Bytes of a file that is copied; consumer offsets of a large cluster have some MiB."""


def copy_config(directory: Path, sink: DirectorySink) -> tuple[list[str], list[str]]:
    """Copy the JSON files of a `config/`, or of the store that has it.

    Returns:
        The names of the files that were copied, and sentences about those that were not.

    Raises:
        NotAStoreError: there is no such directory.
        UnreadableError: it may not be read.
        WriteError: a copy cannot be written.
    """
    view = open_directory(directory)
    if (nested := view.stat("config")) is not None and nested.is_directory:
        view = open_directory(directory / "config")
    copied, problems = [], []
    for entry in view.list(""):
        if entry.is_directory:
            problems.append(f"{view.label}/{entry.name}: a directory (a database?) is not copied")
            continue
        if not entry.is_file or not entry.name.endswith((".json", ".json.bak")):
            continue
        if entry.is_link or entry.size > CONFIG_SIZE_MAX:
            problems.append(f"{view.label}/{entry.name}: a link, or more than {CONFIG_SIZE_MAX} bytes; not copied")
            continue
        try:
            with closing(view.open(entry.path)) as source:
                content = read_range(source, 0, CONFIG_SIZE_MAX)
            parse_relaxed_json(content.decode("utf-8"))
        except (UnreadableError, ValueError) as error:
            problems.append(f"{view.label}/{entry.name}: not copied ({error})")
            continue
        path = f"config/{entry.name}"
        sink.create(path, len(content))
        sink.resize(path, len(content))
        sink.write_at(path, 0, content)
        sink.sync(path)
        copied.append(entry.name)
    return copied, problems


# What a mirror notes in its store, for the next run: whose log it copies, and how far queues and index are built.


PATH: Final = ".rmqtool/mirror.json"
STATE_SIZE: Final = 4096


@dataclass(frozen=True)
class MirrorState:
    """The file. Without one, nothing is known.

    Attributes:
        master: HOST:PORT of the replication port.
        built_offset: physical offset up to which queues and index are built; None where they were not built.
    """

    master: str | None = None
    built_offset: int | None = None


def read_state(view: StoreView) -> MirrorState:
    """State of the last run; empty if the system died before its bytes were on the disk.

    Raises:
        RefusedError: another file is in its place, or it is damaged.
        UnreadableError: it may not be read.
    """
    entry, place = view.stat(PATH), f"{view.label}/{PATH}"
    if entry is None:
        return MirrorState()
    if entry.is_link or not entry.is_file:
        raise RefusedError(f"{place}: a link, or not a regular file, so not {OwnFile.MIRROR_STATE.text}; remove it")
    with closing(view.open(PATH)) as source:
        content = read_range(source, 0, STATE_SIZE)
    if not content.strip(b"\0"):
        return MirrorState()
    OwnFile.MIRROR_STATE.demand(place, content)
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RefusedError(
            f"{place}: is damaged, so the master of this copy is not known; make sure that HOST:PORT is right, "
            "then remove the file"
        ) from error
    built = fields.get("built_offset")
    is_offset = type(built) is int and 0 <= built <= JAVA_LONG_MAX
    return MirrorState(fields.get("master"), built if is_offset else None)


# Builds consume queues, index and checkpoint of a copy from each block of records as it is written.


class BuilderBehind(Closable):
    """Queues, index and checkpoint of a copy, open for appending; WriteError where the disk does not take them.

    Attributes:
        built_offset: physical offset up to which all records are in queues and index that are on the disk.
    """

    def __init__(
        self,
        look: Callable[[], Store | None],
        sink: DirectorySink,
        rules: BrokerRules,
        config: WriterConfig,
        *,
        built_offset: int | None,
        log_end: int,
    ) -> None:
        """Open existing files, and build missing entries up to the log's end.

        Args:
            look: surveys the copy; None where it has no log yet.
            built_offset: as an earlier run noted it.

        Raises:
            UnsupportedError: the copy has queues in RocksDB.
        """
        self._sink, self._rules = sink, rules
        self.built_offset = self._end = log_end
        store = look()
        with ExitStack() as stack:
            if store is None:
                self._dispatcher = open_dispatcher(sink, rules, config)
            else:
                if store.files.get(FileKind.CONSUMEQUEUE_ROCKSDB):
                    raise UnsupportedError(f"{store.view.label}: --build does not write consume queues in RocksDB")
                reader = stack.enter_context(open_reader(store, rules))
                self._dispatcher = open_dispatcher(sink, rules, config_of(store, config), reader=reader)
                if built_offset is None:
                    ends = (begin + size for begin, size in last_units(reader))
                    built_offset = max(ends, default=store.commitlog[0].start)
                dispatch_from(store, self._dispatcher, built_offset, log_end)
                self._dispatcher.derived.sync()
                changed = look()
                assert changed is not None
                # Queues have grown by what was dispatched just now, and some of them are new.
                self._dispatcher.existing = stack.enter_context(open_reader(changed, rules))
            self._stack = stack.pop_all()

    def dispatch(self, physical_offset: int, block: bytearray) -> None:
        """Build from a block of whole records that follows the last one."""
        self._dispatcher.dispatch(physical_offset, block)
        self._end = physical_offset + len(block)

    def sync(self) -> None:
        """Return once all that was built, and a checkpoint that says so, are on the disk."""
        dispatcher = self._dispatcher
        dispatcher.derived.sync()
        self.built_offset = self._end
        checkpoint = Checkpoint(
            commitlog_timestamp_ms=dispatcher.last_store_timestamp_ms,
            consumequeue_timestamp_ms=dispatcher.last_store_timestamp_ms,
            index_timestamp_ms=dispatcher.index_timestamp_ms or 0,
            consumequeue_physical_offset=dispatcher.last_physical_offset
            if self._rules.checkpoint_after_queue_flush
            else 0,
        )
        if checkpoint.commitlog_timestamp_ms:  # else nothing came in this run, and the last one stays
            self._sink.create(CHECKPOINT, FILE_SIZE)
            self._sink.write_at(CHECKPOINT, 0, build_checkpoint(checkpoint))
            self._sink.sync(CHECKPOINT)

    def finish(self) -> None:
        """Leave queues and index as a broker does that stops cleanly."""
        self._dispatcher.derived.finish(clean=True)
        self.sync()

    def close(self) -> None:
        self._stack.close()
