"""Reports units and index entries that point outside the log: below its start, after its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from rmqtool.engine.dispatch.index_writer import holds_no_entry
from rmqtool.errors import UnreadableError
from rmqtool.findings.account import Account
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import finding
from rmqtool.formats.checkpoint import Checkpoint
from rmqtool.quantities import OFFSETS_END
from rmqtool.scan.row_cache import RowCache
from rmqtool.store.checkpoint_file import shows_index
from rmqtool.store.directory import Store
from rmqtool.store.view import Entry
from rmqtool.verify.survey.context import VerifyContext
from rmqtool.verify.survey.index_map import IndexMap, IndexPass
from rmqtool.verify.survey.queue_map import OffsetRuns, QueueMap
from rmqtool.verify.survey.recall import seen_by
from rmqtool.verify.survey.result import SplitResult

_KINDS: Final = {
    "consumequeue.below-log": "before the start of the commit log: the files have expired, or somebody removed them",
    "consumequeue.ahead-of-log": "after the end of the commit log",
}


def units_below(context: VerifyContext) -> Iterator[Finding]:
    """Units for records before the start of the log, queue by queue: expired and removed files look the same."""
    if context.store.commitlog:
        begin = context.store.commitlog[0].start
        for _, queue in context.queues_into(-1, begin):
            yield from _units(context, queue, "consumequeue.below-log", -1, begin)


def units_ahead(context: VerifyContext, log_end: int) -> Iterator[Finding]:
    """Units after the end of the commit log, queue by queue."""
    for _, queue in context.queues_into(log_end, OFFSETS_END):
        yield from _units(context, queue, "consumequeue.ahead-of-log", log_end, OFFSETS_END)


def _units(context: VerifyContext, queue: QueueMap, kind: str, begin: int, end: int) -> Iterator[Finding]:
    count, first = queue.count_in(context.open_file, begin, end)
    if not count:
        return
    path, position = queue.position(first)
    yield finding(
        kind,
        path,
        f"{count} units point {_KINDS[kind]}" if count > 1 else f"a unit points {_KINDS[kind]}",
        file_position=position,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=None if queue.is_batch else first,
        count=count,
        expected=f"below {begin}" if begin > 0 else None,
    )


def entries_outside(context: VerifyContext, file: IndexMap, log_end: int) -> Iterator[Finding]:
    """Index entries that point after the end of the commit log, or before any log."""
    count, first = 0, 0
    for begin, end in ((-OFFSETS_END, 0), (log_end, OFFSETS_END)):
        numbers, _ = file.pointing_into(context.open_file, begin, end)
        if len(numbers):
            first = first or int(numbers[0])
            count += len(numbers)
    if count:
        yield finding(
            "index.dangling-entry",
            file.path,
            f"{count} entries point after the end of the commit log, the first is entry {first}",
            file_position=file.position(first),
            count=count,
        )


def index_findings(context: VerifyContext, log: SplitResult, checkpoint: Checkpoint | None) -> Iterator[Finding]:
    """Findings about messages that are missing in the index, and entries that a start would drop."""
    if context.store.settings.makes_index is False:
        return  # what it has is of an earlier time, and not continued
    if not context.store.index_files:
        if log.keyed_count:
            is_lost = log.missing or shows_index(context.store, checkpoint)
            kind = "index.missing-file" if is_lost else "index.absent"
            yield finding(kind, "index", f"{log.keyed_count} keys, and no index file", count=log.keyed_count)
        return
    newest = max((file.end_physical_offset for file in context.index), default=-1)
    if not context.index and log.keyed_count and context.is_index_known:
        yield finding("index.missing-key", "index", f"{log.keyed_count} keys, and no entries", count=log.keyed_count)
    for first, last, count, _, _ in log.missing_keys:
        if first > newest and context.live_end is not None:
            continue  # entered by and by
        where = "after the last entry" if first > newest else f"up to physical offset {last}"
        yield finding(
            "index.missing-key",
            "index",
            f"{count} key{'' if count == 1 else 's'} from physical offset {first} "
            f"{'is' if count == 1 else 'are'} not in the index, {where}",
            physical_offset=first,
            count=count,
        )
    if context.store.has_abort:
        until = checkpoint.index_timestamp_ms if checkpoint else 0
        for file in context.index:
            if file.end_timestamp_ms > until:
                entries = "1 entry" if file.count == 1 else f"{file.count} entries"
                text = f"newer than the checkpoint's index time {until}: {entries} would be dropped"
                yield finding("index.would-be-dropped", file.path, text, count=max(1, file.count))


def misordered_files(files: Iterable[IndexMap]) -> Iterator[Finding]:
    """Index files, in the order of their names, that begin before the end of an earlier one."""
    newest: IndexMap | None = None
    for file in files:
        if newest is not None and file.begin_physical_offset < newest.end_physical_offset:
            text = (
                f"its entries start at {file.begin_physical_offset}, but those of {newest.path}, which has the earlier "
                f"name, end at {newest.end_physical_offset}"
            )
            yield finding("index.misordered-file", file.path, text, physical_offset=file.begin_physical_offset)
        if newest is None or file.end_physical_offset > newest.end_physical_offset:
            newest = file


def newest_start(units: OffsetRuns, below: int) -> tuple[int, int]:
    """Place and physical offset of the newest unit below an offset; (-1, -1) without one."""
    inside = units.runs[units.runs["last"] < below]
    if not len(inside):
        return -1, -1
    run = inside[int(inside["last"].argmax())]
    return int(run["end"]) - 1, int(run["last"])


def units_into(context: VerifyContext, begin: int, end: int) -> int:
    """Number of units that point into [begin, end) of the log."""
    return sum(queue.count_in(context.open_file, begin, end)[0] for _, queue in context.queues_into(begin, end))


def newest_record(context: VerifyContext) -> tuple[int, int]:
    """Physical offset and size of the newest record that a unit points to; -1 and 0 without one."""
    if context.order is not None:
        return context.order.newest
    end = context.store.log_end
    place, newest, owner = -1, -1, None
    for queue in chain(context.queues.values(), context.batch_queues.values()):
        last_place, physical_offset = newest_start(queue.units, end)
        if physical_offset > newest:
            place, newest, owner = last_place, physical_offset, queue
    if owner is None:
        return -1, 0
    units = owner.read(context.open_file, place, place + 1)[1]
    return newest, int(units[0]["record_size"]) if len(units) else 0  # its file was cut since it was looked at


@dataclass
class IndexFiles:
    """What the look at each of the index files alone came to; `is_known` if every one with an entry was checked."""

    maps: list[IndexMap] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    is_known: bool = True
    seen: list[object] = field(default_factory=list)


def read_index(store: Store, account: Account, cache: RowCache | None = None) -> IndexFiles:
    """Check the index files of a store; a cache recalls what was seen of files that are the same."""
    index = IndexFiles()
    slots, room = store.index_slot_count, store.index_entry_count
    empty, ordered = [], []
    for entry in store.index_files:
        if not slots:
            empty += [entry.path] if _is_empty(store, entry, account, index) else []
            continue
        one = IndexPass(entry, slots, room, account)
        seen = seen_by(one, [entry.path], (entry.size, slots, room), store.view.open, cache)
        file = seen.result
        index.findings += seen.findings
        index.seen.append(seen)
        if file is not None:
            empty += [entry.path] if file.is_zero else []
            index.maps.append(file)
            is_right = not any(row.id == "index.bad-header" for row in seen.findings)
            if file.count and is_right and file.begin_timestamp_ms <= file.end_timestamp_ms:
                ordered.append(file)
    index.findings += misordered_files(ordered)
    # A broker makes the first file before it has any key for it.
    for path in empty if len(empty) < len(store.index_files) else empty[1:]:
        index.findings.append(finding("index.zero-file", path, "only zeros, beside other index files"))
    return index


def _is_empty(store: Store, entry: Entry, account: Account, index: IndexFiles) -> bool:
    """True if a file has no entry, which needs no slot count; any other is a finding, and not checked."""
    part = account.file(entry.path, entry.size)
    try:
        with closing(store.view.open(entry.path)) as source:
            if holds_no_entry(source):
                part.zero_tail = entry.size
                return True
        text = f"{entry.size} bytes, and nothing shows the number of slots: the file was not checked"
        index.findings.append(finding("index.unknown-slot-count", entry.path, text, length=entry.size))
    except UnreadableError as error:
        index.findings.append(finding("store.unreadable", entry.path, str(error)))
    part.left_out = entry.size
    index.is_known = False
    return False
