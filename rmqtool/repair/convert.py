"""Plans `convert`: consume queues from files to RocksDB and back, or on both sides, from the commit log.

Who only changes `storeType` loses: from 5.4.0 on a start looks at the last ten files of the log, and the new side has
the messages of these alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from rmqtool.engine.dispatch.queue_entries import topic_bytes
from rmqtool.engine.queues.kinds import QueueSource, open_queue
from rmqtool.engine.rules.versions import BrokerRules
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import RefusedError, UnsupportedError, UsageError
from rmqtool.repair.build.build import build
from rmqtool.repair.build.database_build import KEPT_FILES, build_database
from rmqtool.repair.build.request import BuildOptions, BuildRequest
from rmqtool.repair.machine.steps import Step, remove_file
from rmqtool.repair.rebuild import require_intact, require_log
from rmqtool.scan.runner import OnProgress
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.queue_database import StoredEnd


class QueueSide(StrEnum):
    """Where consume queues are to be."""

    ROCKSDB = "rocksdb"
    FILE = "file"
    BOTH = "both"


SETTINGS = {
    QueueSide.ROCKSDB: "storeType=defaultRocksDB",
    QueueSide.FILE: "storeType=default",
    QueueSide.BOTH: "rocksdbCQDoubleWriteEnable=true",
}
"""What the broker's properties file must say before the broker starts."""


@dataclass(frozen=True)
class Conversion:
    """Steps, and what a person should know beside them."""

    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()


def plan_convert(
    store: Store,
    rules: BrokerRules,
    side: QueueSide,
    staging: Path,
    options: BuildOptions,
    on_progress: OnProgress | None = None,
) -> Conversion:
    """Build what a side lacks, and find the steps that leave the queues there only.

    Args:
        staging: an empty directory, which must stay until the plan is applied.

    Raises:
        UsageError: the version has no queues in RocksDB.
        RefusedError: the broker did not stop cleanly.
        UnsupportedError: the log is damaged, the library is missing, or topics have batch queues.
        UnreadableError, WriteError: a file of the store, or the staging directory, fails.
    """
    _demand_possible(store, rules, side)
    kind = store.queue_kind
    notes = [f"set {SETTINGS[side]} in the broker's properties file before the broker starts"]
    steps: list[Step] = []
    if kind != "file" and side is QueueSide.FILE:
        steps += _remove(store, (FileKind.CONSUMEQUEUE_ROCKSDB,), "the consume queues are in files now")
    if kind != "rocksdb" and side is QueueSide.ROCKSDB:
        removed = (FileKind.CONSUMEQUEUE, FileKind.CONSUMEQUEUE_EXT)
        steps += _remove(store, removed, "the consume queues are in RocksDB now")
    why = "built from the commit log"
    if side is not QueueSide.ROCKSDB and (kind != "file" or side is QueueSide.FILE):
        built = build(store, rules, BuildRequest(lambda _topic, _queue_id: True, False), staging, options, on_progress)
        require_intact(built)
        steps += built.steps(why, why)
        notes += built.notes()
    else:
        built = build(store, rules, BuildRequest(None, False), staging, options, on_progress)
    if side is not QueueSide.FILE and (kind != "rocksdb" or side is QueueSide.ROCKSDB):
        database = build_database(
            store, rules, None, None, staging, options, on_progress, dict(_ends_in_files(store, rules))
        )
        require_intact(replace(built, bad=database.bad))
        steps += database.steps(why)
        notes += database.notes
    return Conversion(tuple(steps), tuple(notes) if steps else ())


def _demand_possible(store: Store, rules: BrokerRules, side: QueueSide) -> None:
    require_log(store)
    if not rules.rocksdb_queues and side is not QueueSide.FILE:
        raise UsageError(
            f"brokers of version {rules.version} do not keep consume queues in RocksDB: pass --broker-version with the "
            "version that will start on the store (5.2.0 or later)"
        )
    if store.has_abort:
        raise RefusedError(f"{store.view.label}: the broker did not stop cleanly: run rmqtool recover first")
    if store.batch_queues and side is not QueueSide.FILE:
        raise UnsupportedError(f"{store.view.label}: topics have batch queues, which RocksDB does not keep")


def _remove(store: Store, kinds: tuple[FileKind, ...], why: str) -> Iterator[Step]:
    for kind in kinds:
        for entry in store.files.get(kind, ()):
            if entry.name not in KEPT_FILES or kind is not FileKind.CONSUMEQUEUE_ROCKSDB:
                yield remove_file(store.view, entry.path, why)


def _ends_in_files(store: Store, rules: BrokerRules) -> Iterator[tuple[tuple[bytes, int], StoredEnd]]:
    """The last unit of each queue in files: where all its messages have expired, only that tells its next offset."""
    with OpenFiles(store.view) as files:
        source = QueueSource(store, rules, files, store.commitlog[0].start)
        for topic, queue_id in store.queues:
            queue = open_queue(source, (topic, queue_id))
            last = queue.last_record()
            if last is not None and queue.max_queue_offset > 0:
                yield (topic_bytes(topic), queue_id), StoredEnd(last[0], queue.max_queue_offset - 1)
