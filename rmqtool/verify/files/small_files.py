"""Checks the checkpoint, `abort`, lengths of extensions, left-overs of compaction, and files that no broker makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Final

from rmqtool.engine.dispatch.index_writer import DIRECTORY
from rmqtool.engine.queues.extension import chain_end
from rmqtool.engine.reading.log_presence import may_hold_messages
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError
from rmqtool.findings.account import Account
from rmqtool.findings.finding import Finding, Severity
from rmqtool.findings.registry import finding
from rmqtool.formats.checkpoint import CHECKPOINT, FIELDS_SIZE, FILE_SIZE, impossible_fields, parse_checkpoint
from rmqtool.formats.queue_name import topic_text, unsafe_name
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind, is_java_long
from rmqtool.store.source import read_range
from rmqtool.verify.files.log_files import fences
from rmqtool.verify.survey.context import VerifyContext
from rmqtool.verify.survey.result import SplitResult

CLOCK_MARGIN_MS: Final = 1000
"""A checkpoint may be written by another clock's tick than the record."""
_QUEUE_ROOTS: Final = ("consumequeue", "batchconsumequeue")
_BELOW_QUEUE: Final = 3
"""Names below the root of the queues in the path of a queue's file: topic, queue id, file."""
_IN_INDEX: Final = f"{DIRECTORY}/"
_LOG_TIME: Final = "commitlog_timestamp_ms"
_QUEUE_TIME: Final = "consumequeue_timestamp_ms"
_DISPATCHED: Final = "consumequeue_physical_offset"


def state_findings(store: Store, rules: BrokerRules, *, broker_runs: bool = False) -> Iterator[Finding]:
    """Findings about the last stop of the broker, an unfinished repair, and paths that could not be read."""
    matters = not broker_runs and may_hold_messages(store)  # a running broker has it; without messages nothing is lost
    for entry in store.files.get(FileKind.ABORT, ()) if matters else ():
        yield finding("store.abort-present", entry.path, "the broker did not stop cleanly")
    for entry in fences(store):
        yield finding("store.repair-unfinished", entry.path, "a repair was interrupted")
    for place in store.problems:
        yield finding("store.unreadable", place.path, str(place))
    for entry in store.files.get(FileKind.COMPACTION_LEFTOVER, ()):
        if entry.name.endswith(".delete"):
            yield finding("compaction.leftover-file", entry.path, "a file that a compaction should have removed")
    for entry in store.files.get(FileKind.STRAY_QUEUE, ()):
        yield finding("consumequeue.stray-file", entry.path, "not a queue file", length=entry.size)
    for path in store.directories if not rules.skips_directories else ():
        root, *names = path.split("/")
        if root in _QUEUE_ROOTS and len(names) == _BELOW_QUEUE and is_java_long(names[1]):
            # Old brokers take it for a file of another length.
            yield finding("consumequeue.stray-file", path, "a directory among the queue files")
    for entry in store.files.get(FileKind.STRAY_INDEX, ()):
        if "/" in entry.path.removeprefix(_IN_INDEX):
            continue  # in a directory, which is named below
        if is_java_long(entry.name):
            text = "its name is a number, so a broker opens it as an index file, but no broker gives such a name"
            yield finding("index.misnamed-file", entry.path, text, length=entry.size)
        else:
            yield finding("index.stray-file", entry.path, "its name is not a time", length=entry.size)
    for path in store.directories:
        name = path.removeprefix(_IN_INDEX)
        if path.startswith(_IN_INDEX) and "/" not in name:
            is_opened = is_java_long(name)
            kind = "index.directory" if is_opened else "index.stray-file"
            text = "a directory that a broker opens as an index file" if is_opened else "a directory"
            yield finding(kind, path, f"{text}: its name is {'a' if is_opened else 'no'} number")


def extension_findings(store: Store) -> Iterator[Finding]:
    """Files of the queues' extensions that have another length than a full one, or whose units lead out of them."""
    with OpenFiles(store.view) as files:
        size = store.extension_file_size
        for queue in store.extensions.values():
            of_queue = partial(finding, topic=queue.topic, queue_id=queue.queue_id)
            for segment in queue.segments:
                if segment.size != size:
                    yield of_queue(
                        "consumequeue.wrong-file-size", segment.path,
                        f"{segment.size} bytes, a full file of an extension has {size}",
                        length=segment.size, expected=str(size), found=str(segment.size),
                    )  # fmt: skip
                    continue
                try:
                    position, fails = chain_end(segment.path, size, files)
                except UnreadableError as error:
                    kind = "consumequeue.unreadable-range"
                    yield of_queue(kind, segment.path, str(error), file_position=0, length=size)
                    continue
                if fails:
                    text = "the length of a unit reaches past the end of the file, so a broker does not load the store"
                    yield of_queue("consumequeue.bad-extension", segment.path, text, file_position=position)


def checkpoint_findings(context: VerifyContext, account: Account, log: SplitResult | None) -> Iterator[Finding]:
    """Compare the checkpoint with log and queues; `log` is as of `config_findings`."""
    store = context.store
    entry = store.first(FileKind.CHECKPOINT)
    if entry is None:
        if any(node.path == "checkpoint" for node in store.nodes):
            return  # said with all that is no file
        if log is not None and (log.record_count or context.newest_unit >= 0):
            text = f"the log has {log.record_count} messages" if log.record_count else "the queues have units"
            yield finding("checkpoint.missing", "checkpoint", text)
        return
    file_account = account.file(entry.path, entry.size)
    try:
        with closing(store.view.open(entry.path)) as source:
            raw = read_range(source, 0, FILE_SIZE)
        is_cut = len(raw) < min(entry.size, FILE_SIZE)
        why = f"{entry.path}: {len(raw)} of {entry.size} bytes are left" if is_cut else None
    except UnreadableError as error:
        why = str(error)
    if why is not None:
        file_account.reported += entry.size
        yield finding("store.unreadable", entry.path, why)
        return
    file_account.checked += min(entry.size, FIELDS_SIZE)
    rest = raw[FIELDS_SIZE:]
    if any(rest):
        yield _field(entry.path, "checkpoint.bad-time", "bytes after its fields are not zero", FIELDS_SIZE, len(rest))
        file_account.reported += len(rest)
    else:
        file_account.zero_tail += len(rest)
    if entry.size != FILE_SIZE:
        yield finding(
            "checkpoint.bad-size", entry.path, f"{entry.size} bytes", expected=str(FILE_SIZE), found=str(entry.size)
        )
        file_account.reported += max(0, entry.size - FILE_SIZE)
        if entry.size < FIELDS_SIZE:
            return
    yield from _fields(context, entry.path, raw, log)


def _fields(context: VerifyContext, path: str, raw: bytes, log: SplitResult | None) -> Iterator[Finding]:
    checkpoint = parse_checkpoint(raw)
    values = vars(checkpoint)
    files_end = None
    if log is not None and not log.record_count:  # no record of the log can have reached the end of its last file
        size = context.store.commitlog_file_size
        files_end = max((segment.start + max(size, segment.size) for segment in context.store.commitlog), default=None)
    flaws = set(impossible_fields(checkpoint, files_end))
    for name, value in values.items():
        if name in flaws:
            yield _field(path, "checkpoint.bad-time", f"{name} is {value}", CHECKPOINT.position(name), 8)
    if log is None or context.live_end is not None:
        return
    if log.record_count or context.newest_unit >= 0:
        yield from _zero_times(context, path, values, log)
    if not log.record_count:
        return
    for name in (_LOG_TIME, _QUEUE_TIME, "index_timestamp_ms"):
        if name not in flaws and values[name] > log.newest_ms + CLOCK_MARGIN_MS:
            text = f"{name} is {values[name]}, the newest message was stored at {log.newest_ms}"
            ahead = _field(path, "checkpoint.ahead-of-log", text, CHECKPOINT.position(name), 8)
            if context.store.log_start:
                text += ": the clock was set back and newer messages have expired, or the field is damaged"
                ahead = replace(ahead, severity=Severity.NOTE, message=text, repair=None)
            yield ahead
            flaws.add(name)
    for name in ("confirm_physical_offset", "consumequeue_physical_offset"):
        # One is the end of what was confirmed, the other the start of the last message that was dispatched.
        behind = log.end if name == "confirm_physical_offset" else log.end - 1
        if name not in flaws and values[name] > behind:
            text = f"{name} is {values[name]}, the log ends at {log.end}"
            yield _field(path, "checkpoint.ahead-of-log", text, CHECKPOINT.position(name), 8)
            flaws.add(name)
            entries = context.store.files.get(FileKind.CONSUMEQUEUE_ROCKSDB)
            if name == "consumequeue_physical_offset" and not context.has_file_queues and entries:
                # The one thing that tells of queues in RocksDB without opening the database.
                directory = entries[0].path.rpartition("/")[0]
                yield finding("rocksdb.ahead-of-log", directory, f"by the checkpoint: {text}")
    if not context.has_file_queues or context.newest_unit < 0 or _DISPATCHED in flaws:
        return  # queues that are gone altogether are findings of their own
    # Dispatch skips records of which no unit tells, as it should; units for some topics lie outside of the store.
    elsewhere = (run.last_physical_offset for run in log.missing if unsafe_name(topic_text(run.topic)))
    if values[_DISPATCHED] > max(context.newest_unit, log.last_unseen, *elsewhere):
        text = f"{_DISPATCHED} is {values[_DISPATCHED]}, the newest unit is of the record at {context.newest_unit}"
        yield _field(path, "checkpoint.ahead-of-queues", text, CHECKPOINT.position(_DISPATCHED), 8)


def _zero_times(context: VerifyContext, path: str, values: Mapping[str, int], log: SplitResult) -> Iterator[Finding]:
    """Times that are zero though there are messages: a note, unless a broker must have written them."""
    names = [_LOG_TIME]
    if context.has_file_queues and (context.newest_unit >= 0 or log.missing):
        names.append(_QUEUE_TIME)
    names = [name for name in names if not values[name]]
    if not names:
        return
    is_clean, because = not context.store.has_abort, None
    if is_clean and not any(values.values()) and sum(not file.is_zero for file in context.index) > 1:
        because = "though a full index file has set at least one of the times"
    elif is_clean and _QUEUE_TIME in names and not context.rules.checkpoint_after_queue_flush:
        names, because = [_QUEUE_TIME], "though a clean stop writes the time of the last message in a queue"
    text = f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} 0"
    kind = "checkpoint.bad-time" if because else "checkpoint.zero-time"
    text += f", {because or 'as after a run of less than a minute'}"
    yield _field(path, kind, text, CHECKPOINT.position(names[0]), 8)


def _field(path: str, kind: str, text: str, position: int, length: int) -> Finding:
    return finding(kind, path, text, file_position=position, length=length)
