"""`rmqtool info`: one screen about a store, from `engine.reading.summary`."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from typing import Any

import typer

from rmqtool.answer.info_answer import answer_of_summary
from rmqtool.answer.opened_store import CommandLine, OpenedStore
from rmqtool.commands.messages import messages_of
from rmqtool.commands.options import store as shared
from rmqtool.commands.screen import screen, show_object
from rmqtool.engine.reading.summary import StoreSummary, summarize
from rmqtool.errors import RmqtoolError
from rmqtool.repair.machine.journal import recorded_places
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.machine.undo import last_repair
from rmqtool.report.screens.info_screen import summary_lines
from rmqtool.report.writers import ObjectFormat
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.location import StoreLocation, log_directories
from rmqtool.store.probe_lock import LockReport


@shared.with_store_options(*shared.FILE_SIZES)
def info(
    context: typer.Context,
    store: shared.ReadStore,
    *,
    store_options: shared.StoreOptions,
    form: shared.ObjectFormatOption = ObjectFormat.TABLE,
) -> None:
    """Show what a store holds, how its broker stopped, and what to do next.

    It reads no message bodies, so it takes seconds on a terabyte. It changes nothing in the store.

    Example: rmqtool info /home/rocketmq/store
    """
    messages = messages_of(context)
    opened = shared.open_store(store, store_options)
    shared.tell_opened(opened, messages)
    if (warning := shared.foreign_owner(opened.store)) is not None:
        messages.warn(warning)
    lock = shared.lock_of(store, opened.store, opened.foreign)
    with messages.progress("info"):
        summary = summarize(opened.store, opened.rules)
        store_info = info_object(store, opened, summary, lock, shared.command_line(store, store_options))
    shows_all = screen().shows_all
    lines_of = partial(summary_lines, all_rows=messages.verbose or shows_all, crops=not shows_all)
    show_object(store_info, lines_of, form)


def info_object(
    place: StoreLocation, opened: OpenedStore, summary: StoreSummary, lock: LockReport, line: CommandLine
) -> dict[str, Any]:
    """What `--format json` writes."""
    store = opened.store
    problems = [probed_lock.problem for probed_lock in (lock.lock, *lock.databases) if probed_lock.problem is not None]
    if store.queue_database is not None and not store.are_queues_known:
        problems.append(f"{store.queue_database.directory}: the queues in RocksDB: {store.queue_database.reason}")
    repair, free_bytes = None, None
    if place.path is not None:
        with suppress(OSError):
            file_system = os.statvfs(place.path)
            free_bytes = file_system.f_bavail * file_system.f_frsize
        try:
            latest = last_repair(recorded_places(StorePaths(place.path, log_directories(store))))
        except RmqtoolError as error:
            problems.append(str(error))
        else:
            repair = None if latest is None else {**latest[0].to_json(), "can_undo": latest[1]}
    is_log_listed = FileKind.COMMITLOG not in summary.unlisted
    is_index_listed = FileKind.INDEX not in summary.unlisted
    # Unknown, not none, where the queues' database or directory cannot be read.
    are_queues_listed = store.are_queues_known and FileKind.CONSUMEQUEUE not in summary.unlisted
    return {
        "store": str(place),
        "shutdown": str(summary.shutdown),
        "lock": lock.lock.status.value,
        "lock_owner_pid": lock.lock.owner_pid,
        "in_use": lock.is_in_use,
        "abort_process_id": summary.abort_process_id,
        "unfinished_repair": summary.has_unfinished_repair,
        "last_repair": repair,
        "broker_version": {
            "inferred": opened.inferred,
            "evidence": list(opened.evidence),
            "rules": opened.rules.version,
            "chosen": opened.chosen,
        },
        "owner": ", ".join(map(shared.user_name, sorted(store.owner_ids))) or None if place.path is not None else None,
        "free_bytes": free_bytes,
        "commitlog": {
            "file_count": len(store.commitlog) if is_log_listed else None,
            "file_size": store.commitlog_file_size or None,
            "min_offset": summary.min_physical_offset,
            "max_offset": summary.log_end.physical_offset if store.commitlog else None,
            "max_offset_is": "exact" if summary.log_end.is_exact and not summary.unlisted else "at-least",
            "max_offset_reason": summary.log_end.reason,
            "first_store_timestamp_ms": summary.first_store_timestamp_ms,
            "last_store_timestamp_ms": summary.last_store_timestamp_ms,
        },
        "consumequeue": {
            "topic_count": len({queue.topic for queue in summary.queues}) if are_queues_listed else None,
            "queue_count": len(summary.queues) if are_queues_listed else None,
            "kind": store.queue_kind,
            "queues": [queue._asdict() for queue in summary.queues],
        },
        "index": {
            "file_count": len(store.index_files) if is_index_listed else None,
            "entry_count": summary.index_entry_count if is_index_listed else None,
        },
        "checkpoint": vars(summary.checkpoint) if summary.checkpoint is not None else None,
        "other_files": [{"kind": kind.value, "file_count": count} for kind, count in summary.undecoded.items()],
        "unknown_files": list(summary.unknown_files),
        "problems": [*summary.problems, *problems],
        **answer_of_summary(opened, line, summary, lock, repair).as_json(),
    }
