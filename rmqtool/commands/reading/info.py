"""`rmqtool info`: one screen about a store, from `engine.reading.summary`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import typer

from rmqtool.commands.messages import messages_of
from rmqtool.commands.options.store import (
    ObjectFormatOption,
    OpenedStore,
    ReadStore,
    StoreOptions,
    command_line,
    foreign_owner,
    lock_of,
    open_store,
    user_name,
)
from rmqtool.commands.options.store_parameters import FILE_SIZES, with_store_options
from rmqtool.commands.reading.judgement import assessment_of, unknown_to_repair
from rmqtool.commands.screen import screen
from rmqtool.engine.reading.log_presence import may_hold_messages
from rmqtool.engine.reading.summary import Shutdown, StoreSummary, summarize
from rmqtool.errors import RmqtoolError, UnknownSizeError, UnsupportedError
from rmqtool.findings.finding import REBUILD_DELAYS
from rmqtool.findings.registry import BY_ID
from rmqtool.forecast.demands import demand_simulated
from rmqtool.repair.machine.journal import recorded_places
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.machine.undo import last_repair
from rmqtool.report.screens.info_screen import summary_lines
from rmqtool.report.text import counted
from rmqtool.report.writers import ObjectFormat, OutputFormat, json_text
from rmqtool.sides.kinds import unread_files
from rmqtool.sides.unread import UnreadFiles
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.location import StoreLocation, log_directories
from rmqtool.store.probe_lock import LockReport
from rmqtool.verdict.command_line import CommandLine
from rmqtool.verdict.next_step import NextStep, blocked_step, repair_step, undecoded_step
from rmqtool.verdict.tally import FindingTally
from rmqtool.verdict.verdict import Assessment, StoreVerdict
from rmqtool.verify.files.log_files import log_file_findings
from rmqtool.verify.files.lost_configs import lost_configs


@with_store_options(*FILE_SIZES)
def info(
    context: typer.Context,
    store: ReadStore,
    *,
    store_options: StoreOptions,
    form: ObjectFormatOption = ObjectFormat.TABLE,
) -> None:
    """Show what a store holds, how its broker stopped, and what to do next.

    It reads no message bodies, so it takes seconds on a terabyte. It changes nothing in the store.

    Example: rmqtool info /home/rocketmq/store
    """
    output = OutputFormat(form)
    messages = messages_of(context)
    opened = open_store(store, store_options)
    opened.tell(messages)
    if (warning := foreign_owner(opened.store)) is not None:
        messages.warn(warning)
    lock = lock_of(store, opened.store, opened.foreign)
    with messages.progress("info"):
        summary = summarize(opened.store, opened.rules)
        store_info = info_object(store, opened, summary, lock, command_line(store, store_options))
    if output is OutputFormat.TABLE:
        terminal = screen()
        lines = summary_lines(
            store_info,
            terminal.width,
            color=terminal.color,
            all_rows=messages.verbose or terminal.shows_all,
            crops=not terminal.shows_all,
        )
        sys.stdout.writelines(f"{line}\n" for line in lines)
    else:
        sys.stdout.write(json_text(store_info, indent=2 if output is OutputFormat.JSON else None) + "\n")


def info_object(
    place: StoreLocation, opened: OpenedStore, summary: StoreSummary, lock: LockReport, line: CommandLine
) -> dict[str, Any]:
    """What `--format json` writes."""
    store = opened.store
    coverage = tuple(_not_read(store))
    tally = _tally(opened, summary, is_all_read=not coverage)
    assessment = assessment_of(opened, line, "info", tally, coverage)
    if assessment.inconsistent is None and _lacks_queues(summary):
        assessment = replace(assessment, inconsistent="there are messages but no consume queues")
    unlisted = set(map(str, store.unread_places))
    seen = [problem for problem in summary.problems if problem not in unlisted]
    if assessment.inconsistent is None and seen:
        more = f" (and {counted(len(seen) - 1, 'more problem')})" if len(seen) > 1 else ""
        assessment = replace(assessment, inconsistent=f"{seen[0]}{more}")
    problems = [probed_lock.problem for probed_lock in (lock.lock, *lock.databases) if probed_lock.problem is not None]
    if store.queue_database is not None and not store.are_queues_known:
        problems.append(f"{store.queue_database.directory}: the queues in RocksDB: {store.queue_database.reason}")
    repair = _last_repair(place, store, problems)
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
        "owner": ", ".join(map(user_name, sorted(store.owner_ids))) or None if place.path is not None else None,
        "free_bytes": _free_bytes(place.path) if place.path is not None else None,
        "commitlog": _log_object(store, summary),
        "consumequeue": _queue_object(store, summary),
        "index": _index_object(store, summary),
        "checkpoint": vars(summary.checkpoint) if summary.checkpoint is not None else None,
        "other_files": [{"kind": kind.value, "file_count": count} for kind, count in summary.undecoded.items()],
        "unknown_files": list(summary.unknown_files),
        "problems": [*summary.problems, *problems],
        **assessment.as_json(),
        **next_step(line, opened, assessment, tally, summary, lock, repair).as_json(),
    }


def _last_repair(place: StoreLocation, store: Store, problems: list[str]) -> dict[str, Any] | None:
    """The latest repair whose journal is there, and whether it can be rolled back; what fails becomes a problem."""
    if place.path is None:
        return None
    try:
        latest = last_repair(recorded_places(StorePaths(place.path, log_directories(store))))
    except RmqtoolError as error:
        problems.append(str(error))
        return None
    if latest is None:
        return None
    repair, can_undo = latest
    return {**repair.to_json(), "can_undo": can_undo}


def _tally(opened: OpenedStore, summary: StoreSummary, *, is_all_read: bool) -> FindingTally:
    """What names and lengths of the files show, beside what keeps a broker from starting.

    After a crash the log may be damaged as well: that the broker did not stop cleanly is not the worst of it before
    the log is read.
    """
    tally, store = FindingTally(), opened.store
    configs = lost_configs(store, opened.rules)
    lost = (finding for finding in configs if finding.repair != REBUILD_DELAYS)
    for finding in chain(log_file_findings(store, None), lost):
        tally.add(finding, BY_ID[finding.id].remedy)
    tally.crashed = summary.shutdown is Shutdown.ABNORMAL and is_all_read and may_hold_messages(store)
    return tally


def _not_read(store: Store) -> Iterator[UnreadFiles]:
    """What a broker uses and info does not read, all of it."""
    yield from unread_files(store)
    if any(segment.size for segment in store.commitlog):
        yield UnreadFiles("commitlog", FileKind.COMMITLOG.value, "info looks at names, sizes and the log's ends only")


def next_step(
    line: CommandLine,
    opened: OpenedStore,
    assessment: Assessment,
    tally: FindingTally,
    summary: StoreSummary,
    lock: LockReport,
    repair: dict[str, Any] | None,
) -> NextStep:
    """A command to type, if one helps, and why: what matters most comes first."""
    if lock.is_in_use:
        return NextStep(None, "reading is safe; stop the broker before you copy or change the store")
    if summary.has_unfinished_repair and repair is None:
        reason = (
            "an unfinished repair blocks every broker start, and its journal in .rmqtool/undo is gone or cannot be "
            "read: restore the journal, or the store from a copy"
        )
        return NextStep(None, reason, needs_decision=True)
    if summary.has_unfinished_repair:
        return repair_step(line, "undo", "an unfinished repair blocks every broker start; roll it back with:")
    if summary.shutdown is Shutdown.NEVER_STARTED:
        return NextStep(None, "nothing to do; if you expected messages here, the path is wrong")
    if (step := blocked_step(assessment)) is not None:
        return step
    if FileKind.DLEDGER in summary.undecoded and summary.min_physical_offset is None:
        return undecoded_step(assessment, line)
    if (command := tally.repair()) is not None:
        unknown = tuple(unknown_to_repair(opened, queues=False, index=False))
        return repair_step(line, command, "repair what names and sizes of the files show:", unknown)
    if summary.shutdown is Shutdown.ABNORMAL and may_hold_messages(opened.store):
        return _step_after_crash(line, opened)
    if tally.remedy is not None:
        return NextStep(None, tally.remedy, needs_decision=True)
    if _lacks_queues(summary):
        reason = (
            "there are messages but no consume queues: a start rebuilds them, some versions only for the last files of "
            "the commit log; rebuild all of them first:"
        )
        return repair_step(line, "rebuild --queues", reason, tuple(unknown_to_repair(opened, queues=True, index=False)))
    if assessment.verdict is StoreVerdict.OK:
        return NextStep(None, "nothing to do; the store holds no messages")
    return NextStep(line("verify"), "info looks at names, sizes and the log's ends only; to check everything, run:")


def _step_after_crash(line: CommandLine, opened: OpenedStore) -> NextStep:
    """What to do before a broker is started that reads the log again."""
    warning = (
        "do not start the broker and do not delete abort: a start truncates the commit log at the first record that "
        "it cannot read. Copy the store if there is room (cp -a --sparse=always). "
    )
    try:
        demand_simulated(opened.store, opened.rules)
    except UnknownSizeError as error:
        return NextStep(None, f"{warning}{error}. Then run: {line('forecast')}", needs_decision=True)
    except UnsupportedError:
        return NextStep(line("verify"), f"{warning}To see what of it can be read, run:")
    return NextStep(line("forecast"), f"{warning}To see what a start would lose, run:")


def _lacks_queues(summary: StoreSummary) -> bool:
    is_rocksdb = FileKind.CONSUMEQUEUE_ROCKSDB in summary.undecoded
    return summary.log_end.last_record is not None and not (summary.queues or is_rocksdb)


def _index_object(store: Store, summary: StoreSummary) -> dict[str, Any]:
    is_listed = FileKind.INDEX not in summary.unlisted
    return {
        "file_count": len(store.index_files) if is_listed else None,
        "entry_count": summary.index_entry_count if is_listed else None,
    }


def _log_object(store: Store, summary: StoreSummary) -> dict[str, Any]:
    return {
        "file_count": len(store.commitlog) if FileKind.COMMITLOG not in summary.unlisted else None,
        "file_size": store.commitlog_file_size or None,
        "min_offset": summary.min_physical_offset,
        "max_offset": summary.log_end.physical_offset if store.commitlog else None,
        "max_offset_is": "exact" if summary.log_end.is_exact and not summary.unlisted else "at-least",
        "max_offset_reason": summary.log_end.reason,
        "first_store_timestamp_ms": summary.first_store_timestamp_ms,
        "last_store_timestamp_ms": summary.last_store_timestamp_ms,
    }


def _queue_object(store: Store, summary: StoreSummary) -> dict[str, Any]:
    """Counts are None where the queues' database or directory cannot be read: unknown, not none."""
    is_known = store.are_queues_known and FileKind.CONSUMEQUEUE not in summary.unlisted
    return {
        "topic_count": len({queue.topic for queue in summary.queues}) if is_known else None,
        "queue_count": len(summary.queues) if is_known else None,
        "kind": store.queue_kind,
        "queues": [queue._asdict() for queue in summary.queues],
    }


def _free_bytes(path: Path) -> int | None:
    """Bytes that this user may still write to the store's file system."""
    try:
        file_system = os.statvfs(path)
    except OSError:
        return None
    return file_system.f_bavail * file_system.f_frsize
