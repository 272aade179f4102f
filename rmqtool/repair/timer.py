"""Plans the timer's files again: wheel, log and checkpoint with the messages that wait, so that each comes once.

A message that was delivered is in the log under its own topic, with the same unique key and delivery time.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnknownSizeError, UnsupportedError
from rmqtool.findings.account import Account
from rmqtool.findings.finding import Severity
from rmqtool.formats.timer import DEFAULT_LOG_FILE_SIZE
from rmqtool.repair.machine.plan import PlannedRepair
from rmqtool.repair.machine.steps import Step, create_file, remove_file, replace_file
from rmqtool.scan.runner import OnProgress
from rmqtool.sides.rocksdb_tables import DIRECTORY, SideDatabase
from rmqtool.sides.timer.check import timer_findings
from rmqtool.sides.timer.files import is_timer_checked
from rmqtool.sides.timer.loaded import load_timer, timer_files, timer_queue
from rmqtool.sides.timer.waiting import waiting_messages
from rmqtool.sides.timer.writer import CHECK_PATH, LOG_DIRECTORY, WHEEL_PATH, TimerShape, write_timer
from rmqtool.store.config.config_kinds import TIMER_METRICS
from rmqtool.store.databases.rocksdb_files import is_rocksdb_used
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.source import FilePart

_WHY: Final = "rebuilt with the messages that wait"
_PAGE: Final = 4096


def plan_timer(
    store: Store, rules: BrokerRules, staging: Path, now_ms: int | None = None, on_progress: OnProgress | None = None
) -> PlannedRepair:
    """Check the timer; where something is wrong, write it again into the staging directory and find the steps.

    Args:
        now_ms: from when on a timer is still to come; None: the clock says it.

    Raises:
        UnsupportedError: nothing shows which messages wait.
        UnknownSizeError: nothing shows how large the timer log's files are.
    """
    if not is_timer_checked(store, rules):
        why = "is not made of files" if rules.timer else f"is not known to brokers of version {rules.version}"
        if not store.settings.runs_timer:
            why = "is off in the broker's configuration (timerWheelEnable)"
        raise UnsupportedError(f"{store.view.label}: the timer {why}; it cannot be rebuilt")
    entries = store.files.get(FileKind.ROCKSDB, ())
    database = SideDatabase(store.view, entries)
    if is_rocksdb_used(entries) and (database.timer_marks() or database.failure is not None):
        holds = "has timers" if database.failure is None else "may have timers, and cannot be read"
        raise UnsupportedError(
            f"{store.view.label}: {DIRECTORY}/ {holds} (timerRocksDBEnable): a broker delivers them from there too, "
            "and rmqtool writes no timers into it"
        )
    findings = tuple(timer_findings(store, rules, Account()))
    metrics: tuple[Step, ...] = ()
    if any(finding.file == TIMER_METRICS for finding in findings):  # a broker counts again from nothing
        paths = (TIMER_METRICS, f"{TIMER_METRICS}.bak")
        why = "statistics that a broker cannot read, with which it does not start"
        metrics = tuple(remove_file(store.view, path, why) for path in paths)
    of_timer = [finding for finding in findings if finding.file != TIMER_METRICS]
    if all(finding.repair is None or finding.severity is Severity.NOTE for finding in of_timer):
        return PlannedRepair(metrics, ("the timer matches the commit log",), findings)
    with open_reader(store, rules) as reader:
        queue, files = timer_queue(reader), timer_files(store)
        precision_ms = load_timer(files, reader, queue).precision_ms
        waiting = waiting_messages(reader, queue, on_progress)
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    shape = TimerShape(now_ms, log_file_size(store, files.log_file_size), precision_ms)
    write_timer(staging, waiting.messages, waiting.newest, waiting.queue_end, shape)
    late = sum(message.due_timestamp_ms < now_ms for message in waiting.messages)
    notes = [
        f"timers that wait: {len(waiting.messages)}, {late} of them late; already delivered: {waiting.delivered}",
        "start the broker within six days: it looks no further back for late timers",
    ]
    if waiting.unreadable:
        notes.append(f"units of the timer's queue without a readable message: {waiting.unreadable}")
    rows = (waiting.messages, waiting.newest, waiting.queue_end, precision_ms)
    digest = hashlib.sha256(repr(rows).encode()).hexdigest()
    return PlannedRepair((*_steps(store, staging, f"sha256:{digest}"), *metrics), tuple(notes), findings)


def log_file_size(store: Store, inferred: int) -> int:
    """Bytes of a file of the timer log.

    Raises:
        UnknownSizeError: nothing shows them.
    """
    if store.settings.timer_log_file_size:
        return store.settings.timer_log_file_size
    if store.files.get(FileKind.TIMER_LOG) and inferred % _PAGE == 0:
        return inferred
    if store.uses_default_sizes:
        return DEFAULT_LOG_FILE_SIZE
    raise UnknownSizeError(
        f"{store.view.label}: nothing in the store shows the size of a timer log file (mappedFileSizeTimerLog); "
        "give it with --broker-conf FILE",
        "timer_log_file_size",
        DEFAULT_LOG_FILE_SIZE,
    )


def _steps(store: Store, staging: Path, rows: str) -> Iterator[Step]:
    view = store.view
    built = [staging / WHEEL_PATH, *sorted((staging / LOG_DIRECTORY).iterdir()), staging / CHECK_PATH]
    paths = [str(path.relative_to(staging)) for path in built]
    for path, source in zip(paths, built, strict=True):
        content = FilePart.whole(source)
        make = create_file if view.stat(path) is None else replace_file
        yield replace(make(view, path, content, _WHY), rows=rows)
    for kind in (FileKind.TIMER_WHEEL, FileKind.TIMER_LOG):
        for entry in store.files.get(kind, ()):
            if entry.path not in paths:
                yield remove_file(view, entry.path, "replaced by the rebuilt timer")
