"""The state in which every broker version starts a repaired store without changing it.

Queues and index complete, nothing but zeros after the log's end, a checkpoint that tells the last record, and no
`abort`: after a clean stop a broker dispatches nothing again and keeps every index file (`DefaultMessageStore#recover`,
`IndexService#load`). Where a product of dispatch is not ours to write, `abort` stays: only a start after a crash makes
such a broker catch up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnreadableError
from rmqtool.formats.checkpoint import (
    FIELDS_SIZE,
    FILE_SIZE,
    Checkpoint,
    build_checkpoint,
    impossible_fields,
    parse_checkpoint,
)
from rmqtool.repair.machine.plan import ABORT_NAME
from rmqtool.repair.machine.steps import Step, create_file, remove_file, replace_file
from rmqtool.store.config.config_json import TOPICS, compacted_topics, topics
from rmqtool.store.config.read_config import read_config
from rmqtool.store.databases.rocksdb import RocksFailure
from rmqtool.store.databases.rocksdb_files import is_rocksdb_used
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.source import Literal, read_range

CHECKPOINT_PATH = "checkpoint"


def abort_reason(store: Store, rules: BrokerRules) -> str | None:
    """Why `abort` has to stay; None where the repair writes all that dispatch would."""
    if store.queue_kind == "mixed":
        return "some consume queues are in RocksDB: only a broker's start after a crash adds missing messages"
    database = store.queue_database
    if database is not None and database.failure is RocksFailure.NO_LIBRARY:
        return "the consume queues are in RocksDB, and rmqtool[rocksdb], which writes them, is not installed"
    compacted = compacted_topics(topics(read_config(store.view, TOPICS)))
    if rules.compaction and (compacted or store.files.get(FileKind.COMPACTION_LOG)):
        return "topics are compacted: only a broker's start after a crash updates the compaction log"
    if is_rocksdb_used(store.files.get(FileKind.ROCKSDB, ())):
        return "rocksdbstore/ is in use: only a broker's start after a crash updates its tables"
    return None


def checkpoint_steps(
    store: Store, rules: BrokerRules, last_record: tuple[int, int] | None, log_end: int
) -> Iterator[Step]:
    """The step that writes the checkpoint of a store whose queues and index are complete; none if it is there.

    Args:
        last_record: physical offset and store time; without one only numbers that no broker writes are replaced.

    Raises:
        UnreadableError: the file is there and may not be read.
    """
    entry = store.first(FileKind.CHECKPOINT)
    if entry is None and last_record is None:
        return
    raw = b""
    if entry is not None:
        with closing(store.view.open(entry.path)) as source:
            raw = read_range(source, 0, FILE_SIZE + 1)
    known, count = parse_checkpoint(raw[:FIELDS_SIZE]), rules.checkpoint_field_count
    if last_record is None:
        checkpoint = replace(known, **dict.fromkeys(impossible_fields(known, log_end), 0))
        why = "set to 0 what no broker writes into the checkpoint"
    else:
        physical_offset, time_ms = last_record
        confirmed = known.confirm_physical_offset
        checkpoint = Checkpoint(
            commitlog_timestamp_ms=time_ms,
            consumequeue_timestamp_ms=time_ms,
            index_timestamp_ms=time_ms,
            confirm_physical_offset=confirmed if count > 4 and 0 <= confirmed <= log_end else 0,
            consumequeue_physical_offset=physical_offset if count > 5 else 0,
        )
        why = "update the checkpoint to the last record"
    content = build_checkpoint(checkpoint)
    if entry is None:
        if store.view.stat(CHECKPOINT_PATH) is not None:
            raise UnreadableError(f"{CHECKPOINT_PATH}: not a file")
        yield create_file(store.view, CHECKPOINT_PATH, Literal(content), why)
    elif raw != content:
        yield replace_file(store.view, entry.path, Literal(content), why)


def abort_steps(store: Store) -> Iterator[Step]:
    """The step that takes `abort` away."""
    if store.first(FileKind.ABORT) is not None:
        yield remove_file(store.view, ABORT_NAME, "mark the store as cleanly shut down")
