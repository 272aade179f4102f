"""Checks names and lengths of the commitlog's files, and what else lies in its directories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from rmqtool.engine.log_tail import LogTail, log_tail
from rmqtool.store.directory import Store
from rmqtool.store.kinds import FENCE_NAME, FileKind, segment_name
from rmqtool.store.view import Entry
from rmqtool.verify.catalog import finding
from rmqtool.verify.finding import Finding

OFFSET_MAX: Final = (1 << 63) - 1


def log_file_findings(
    store: Store, units_into: Callable[[int, int], int] | None, known: Iterable[tuple[int, int]] = ()
) -> Iterator[Finding]:
    """Findings about the files as such.

    Args:
        units_into: how many units of the queues point into [begin, end) of the log; None where nobody has looked.
        known: physical offset and size of records near the log's end.
    """
    size = store.commitlog_file_size
    segments = store.commitlog
    tail = log_tail(store, known)
    tail_start = tail.files[0].start if tail is not None and tail.files else OFFSET_MAX
    for before, segment in zip((None, *segments), segments, strict=False):
        if segment.size == 0:
            yield finding(
                "commitlog.empty-file", segment.path, "a file of length 0", physical_offset=segment.start, length=0
            )
        elif segment.size != size:
            yield finding(
                "commitlog.wrong-file-size",
                segment.path,
                f"{segment.size} bytes, a full file has {size}",
                length=segment.size,
                expected=str(size),
                found=str(segment.size),
            )
        if before is None or not size:
            continue
        following = before.start + size
        if segment.start > following and segment.start < tail_start:
            lost = units_into(following, segment.start) if units_into is not None else None
            yield _missing(before.path, following, segment.start, size, lost)
        elif segment.start < following:
            yield finding(
                "commitlog.stray-file",
                segment.path,
                f"by its name it begins inside the file before it, which reaches to {following}: the name is wrong",
                physical_offset=segment.start,
            )
    if tail is not None and tail.files and tail.is_odd:
        yield _after_end(tail)
    yield from _strays(store)


def _after_end(tail: LogTail) -> Finding:
    count = len(tail.files)
    text = "a file of zeros" if count == 1 else f"{count} files of zeros"
    return finding(
        "commitlog.file-after-end",
        tail.files[0].path,
        f"{text} after the log's end at {tail.log_end}, where brokers leave one at most, the next one",
        physical_offset=tail.log_end,
        count=count,
    )


def missing_end(store: Store, log_end: int, units_into: Callable[[int, int], int]) -> Iterator[Finding]:
    """The files that the queues point into behind the last one, if that one is written to its end.

    Else the log ends inside the last file, and what the queues have behind it was cut away by a broker.
    """
    segments = store.commitlog
    if segments and log_end < segments[-1].end:
        return
    behind = segments[-1].start + store.commitlog_file_size if segments else 0
    lost = units_into(behind, OFFSET_MAX)
    if lost or (not segments and (store.queues or store.batch_queues or store.index_files)):
        yield _missing(segments[-1].path if segments else "commitlog/", behind, None, store.commitlog_file_size, lost)


def _missing(neighbour: str, begin: int, end: int | None, size: int, lost: int | None) -> Finding:
    """A file, or several, that are missing from `begin` on."""
    count = max(1, (end - begin) // size) if end is not None and size else 1
    text = "the file is missing" if count == 1 else f"{count} files are missing from this one on"
    return finding(
        "commitlog.missing-file",
        neighbour.rpartition("/")[0] + "/" + segment_name(begin),
        text if lost is None else f"{text}; {lost} units of the queues point there",
        physical_offset=begin,
        length=None if end is None else end - begin,
        count=count,
    )


def _strays(store: Store) -> Iterator[Finding]:
    seen = set()
    for entry in store.files.get(FileKind.STRAY_COMMITLOG, ()):
        directory, _, rest = entry.path.rpartition("/")
        parts = entry.path.split("/")
        # What lies in a directory of its own is said once, with that directory.
        top = "/".join(parts[:2]) if parts[0].startswith("commitlog") else f"{directory}/{rest}"
        if top not in seen:
            seen.add(top)
            is_directory = top != entry.path
            text = "a directory" if is_directory else f"a file of {entry.size} bytes"
            yield finding("commitlog.stray-file", top, f"{text} that is none of the log", length=entry.size)
    for directory in store.directories:
        if directory.startswith("commitlog") and directory.count("/") == 1 and directory not in seen:
            yield finding("commitlog.stray-file", directory, "a directory that is none of the log")


def fences(store: Store) -> list[Entry]:
    """Files of an interrupted repair with which no broker starts, one in each directory of the log."""
    return [entry for entry in store.files.get(FileKind.RMQTOOL, ()) if entry.name == FENCE_NAME]
