"""The steps of `recover` that concern the log's own files: their sizes, strays among them, and the tail after its end.

Bytes after the end can come back as messages once new records happen to end where old ones begin
(`MappedFileQueue#truncateDirtyFiles` only moves positions), so they are zeroed, and later files go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from rmqtool.engine.rules.versions import first_with
from rmqtool.errors import RefusedError, UnknownSizeError
from rmqtool.findings.finding import MISSING_LOG_FILE, Finding, Severity
from rmqtool.formats import commitlog
from rmqtool.formats.commitlog import MAGIC_AT, PHYSICAL_OFFSET_AT
from rmqtool.formats.queue_name import topic_text
from rmqtool.repair.machine.plan import Loss
from rmqtool.repair.machine.steps import Remove, Step, remove_file, replace_file, write_range
from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.log import ScanOptions, open_log
from rmqtool.scan.rules import Verdict
from rmqtool.store.directory import Segment, Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.sink import DirectorySink
from rmqtool.store.sizes import infer_log_file_size
from rmqtool.store.source import ByteSource, FilePart, Zeros, read_range, read_salvaging
from rmqtool.store.view import StoreView
from rmqtool.verify.files.log_files import misnamed_files

MISNAMED: Final = "commitlog.stray-file"
SHAPE: Final = frozenset({"commitlog.wrong-file-size", "commitlog.empty-file", MISNAMED, MISSING_LOG_FILE})
"""Findings about files as such: no record is damaged, and later ones are reached all the same."""
TAIL: Final = frozenset({"commitlog.torn-record", "commitlog.stale-tail", "commitlog.file-after-end"})
_COPY: Final = 4 << 20
_SEARCHED_MAX: Final = 64 << 20
"""Bytes after a full file's end that are searched for records."""
_MAGIC: Final = commitlog.MAGIC_V1.to_bytes(4, "big", signed=True)


def damage_in(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Damage inside the log, in its order."""
    damage = [
        finding
        for finding in findings
        if finding.id.startswith("commitlog.")
        and finding.severity is Severity.ERROR
        and (finding.id not in SHAPE | TAIL or is_misnamed(finding))
    ]
    return tuple(sorted(damage, key=lambda finding: finding.physical_offset or 0))


def is_misnamed(finding: Finding) -> bool:
    """True if a file of the log has a wrong name: a person renames it, or moves it away."""
    return finding.id == MISNAMED and finding.physical_offset is not None


def tail_begin(findings: Iterable[Finding]) -> int | None:
    """Where the log ends, if something lies after its end; None where nothing does."""
    places = [
        finding.physical_offset for finding in findings if finding.id in TAIL and finding.physical_offset is not None
    ]
    return min(places, default=None)


def shape_steps(store: Store, staging: Path, *, keep_empty: bool = False) -> Iterator[Step]:
    """Steps for files of the wrong size, and for files that are none of the log: both keep a broker from starting.

    Args:
        keep_empty: make a file of length 0 between others a full one, instead of removing it.

    Raises:
        RefusedError: a file holds data beyond the size that all are to have.
        UnknownSizeError: nothing shows the right length.
    """
    size = store.commitlog_file_size
    for segment in store.commitlog:
        if segment.size == size or not size:
            continue
        demand_shown_size(store)
        is_inside = keep_empty and segment is not store.commitlog[-1]
        if segment.size == 0 and len(store.commitlog) > 1 and not is_inside:
            first = first_with("deletes_empty_last_file")
            why = f"a file of length 0 keeps brokers before {first} from starting"
            yield remove_file(store.view, segment.path, why)
        elif segment.size < size:
            why = f"every commit log file has {size} bytes; the rest of this file is unused space"
            yield write_range(store.view, segment.path, segment.size, Zeros(size - segment.size), why)
        else:
            _demand_nothing_behind(store, segment, size)
            place = _copied(store, segment, size, staging)
            yield replace_file(
                store.view, segment.path, FilePart.whole(place), f"truncated to {size} bytes like all others"
            )
    strays = store.files.get(FileKind.STRAY_COMMITLOG, ())
    misnamed = misnamed_files(store) if strays else {}
    directories = {segment.path.rpartition("/")[0] for segment in store.commitlog} | {"commitlog"}
    for entry in strays:
        directory = entry.path.rpartition("/")[0]
        if entry.is_file and directory in directories and entry.path not in misnamed:
            yield remove_file(
                store.view, entry.path, "a file that does not belong to the commit log may keep a broker from starting"
            )


def demand_shown_size(store: Store) -> None:
    """Refuse to give files a length that nothing shows.

    Raises:
        UnknownSizeError: no length or name shows a likely size.
    """
    if store.commitlog and not store.log_file_size.is_shown:
        (segment, *_) = store.commitlog
        raise UnknownSizeError(
            f"{segment.path}: {segment.size} bytes, and nothing shows whether that is the size of a full file; "
            "check that the log's disk is mounted and the copy is complete, or give the size with "
            "--log-file-size BYTES or --broker-conf FILE",
            "commitlog_file_size",
            store.commitlog_file_size,
        )


def _demand_nothing_behind(store: Store, segment: Segment, size: int) -> None:
    """Refuse to cut data off a file without another file for it: then the size is the wrong one."""
    if any(other.start == segment.start + size for other in store.commitlog):
        return
    with closing(store.view.open(segment.path)) as source:
        data_end = last_data_end(source, size, segment.size)
        holds_records = data_end > size and _record_after(source, segment.start, size, data_end)
    if holds_records:
        raise RefusedError(
            f"{segment.path}: holds records up to byte {data_end}, so a full file does not have {size} bytes; give the "
            "right size with --log-file-size BYTES or --broker-conf FILE"
        )


def _record_after(source: ByteSource, start: int, position: int, data_end: int) -> bool:
    """True if a record after a file position confirms its own offset, which noise does not."""
    content = read_range(source, position, min(data_end - position, _SEARCHED_MAX))
    at = content.find(_MAGIC)
    while at >= 0:
        begin = at - MAGIC_AT
        own = content[begin + PHYSICAL_OFFSET_AT : begin + PHYSICAL_OFFSET_AT + 8]
        if begin >= 0 and len(own) == 8 and int.from_bytes(own, "big") == start + position + begin:
            return True
        at = content.find(_MAGIC, at + 1)
    return False


def tail_steps(store: Store, log_end: int, why: str) -> Iterator[Step]:
    """Steps that leave only zeros after the log's end, and no later file but one that alone shows the files' size."""
    for number, segment in enumerate(store.commitlog):
        if segment.end <= log_end or segment.size == 0:
            continue
        if segment.start >= log_end and number > 0 and not (number == 1 and _shows_file_size(store)):
            yield remove_file(store.view, segment.path, "it is after the end of the commit log")
            continue
        position = max(0, log_end - segment.start)
        with closing(store.view.open(segment.path)) as source:
            data_end = last_data_end(source, position, segment.size)
        if data_end > position:
            yield write_range(store.view, segment.path, position, Zeros(data_end - position), why)


def _shows_file_size(store: Store) -> bool:
    """True if the size of the log's files would be inferred differently without the second one, which follows the
    first.
    """
    first, second = store.commitlog[:2]
    size = store.commitlog_file_size
    alone = infer_log_file_size([first], others_are_default=store.has_default_derived_sizes)
    return second.start == first.start + size and second.size == size and alone.bytes != size


def loss_behind(store: Store, log_end: int, delays_ms: tuple[int, ...]) -> Loss:
    """Messages that pass the broker's check now and lie after a new end of the log."""
    messages = lost_bytes = 0
    by_topic: dict[str, int] = {}
    reaching = [segment for segment in store.commitlog if segment.end > log_end]
    with open_log(store.view.open, reaching, ScanOptions(delays_ms), finds_crc=True) as table:
        for batch in table.batches():
            rows = batch.as_array()
            rows = rows[
                (rows["physical_offset"] >= log_end) & (rows["verdict"] == Verdict.GOOD) & (rows["topic_length"] > 0)
            ]
            messages += int(rows.size)
            lost_bytes += int(rows["size"].sum())
            for number in rows["topic_number"].tolist():
                name = topic_text(batch.topics[number])
                by_topic[name] = by_topic.get(name, 0) + 1
    return Loss(messages, lost_bytes, dict(sorted(by_topic.items())))


def _copied(store: Store, segment: Segment, size: int, staging: Path) -> Path:
    """First bytes of a file, copied; holes stay holes."""
    path = f"log/{segment.start:020d}"
    with closing(store.view.open(segment.path)) as source, DirectorySink(staging) as sink:
        sink.create(path, size)
        for start, end in source.extents(0, size):
            for at in range(start, end, _COPY):
                buffer = bytearray(min(_COPY, end - at))
                read_salvaging(source, at, memoryview(buffer))  # what is missing is a finding of the log
                sink.write_at(path, at, memoryview(buffer))
    return staging / path


def over_store(base: StoreView, step: Step) -> Step:
    """A step that was planned on files of the right size, for the store as it is."""
    return remove_file(base, step.path, step.why) if isinstance(step, Remove) else step
