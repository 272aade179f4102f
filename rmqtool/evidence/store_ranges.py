"""Copies ranges of a store that is too large for a whole copy: what lies around damage, and the start of each file.

A terabyte with a million queues takes no more room than `RANGES_MAX`. Nothing can be computed from such a copy: the
bundle holds the answers that were given where the store is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Final

from rmqtool.errors import UnreadableError
from rmqtool.evidence.pseudonyms import Pseudonyms
from rmqtool.evidence.redact_log import Chunks, read_or_zeros, redact_range
from rmqtool.evidence.redact_units import redact_numbers
from rmqtool.evidence.store_copy import (
    SIDE_DATABASES,
    CopiedFile,
    Included,
    current_of,
    files_of,
    included_of,
    inside,
    redact_config,
    shown_path,
    write_chunks,
)
from rmqtool.findings.finding import Finding, Severity
from rmqtool.scan.split import Split
from rmqtool.store.directory import Segment, Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.source import read_range
from rmqtool.store.view import Entry

RANGES_MAX: Final = 256 << 20
"""Bytes of all ranges together."""
FILES_MAX: Final = 1_000_000
"""Files that are listed; a manifest has to fit into memory."""
AROUND: Final = 4096
"""Bytes before and after a damage, and of the start of a file."""
DAMAGE_MAX: Final = 65_536
"""Bytes of one damage; a hole may be as large as a file."""
DAMAGES_MAX: Final = 2_000
SMALL: Final = 65_536
"""Bytes up to which a file of a broker's offsets and names is copied whole."""
_RECORD_MAX: Final = 1 << 20
"""Bytes of a record up to which its body and properties are copied, redacted."""
_FIRST_KINDS: Final = (FileKind.CONFIG, FileKind.CHECKPOINT, FileKind.ABORT, FileKind.COMMITLOG)
Ranges = list[tuple[int, int]]


@dataclass
class DamagePlaces:
    """Where damage lies, the gravest findings first to be kept.

    Attributes:
        by_file: start and end of each in its file.
        left_out: findings beyond `DAMAGES_MAX`, whose bytes are not copied.
    """

    by_file: dict[str, Ranges] = field(default_factory=dict)
    left_out: int = 0
    _count: int = 0

    def add(self, finding: Finding) -> None:
        """Note where a finding lies."""
        if finding.file_position is None or finding.severity is Severity.NOTE:
            return
        if self._count >= DAMAGES_MAX:
            self.left_out += 1
            return
        self._count += 1
        start = max(0, finding.file_position - AROUND)
        end = finding.file_position + min(finding.length or 0, DAMAGE_MAX) + AROUND
        self.by_file.setdefault(finding.file, []).append((start, end))

    def of(self, path: str, size: int) -> Ranges:
        """Ranges of a file in order, those that touch as one, its start first."""
        ranges: Ranges = []
        for start, end in sorted([(0, AROUND), *self.by_file.get(path, ())]):
            if ranges and start <= ranges[-1][1]:
                ranges[-1] = (ranges[-1][0], max(ranges[-1][1], min(end, size)))
            elif start < size:
                ranges.append((start, min(end, size)))
        return ranges


def copy_ranges(
    store: Store,
    target: Path,
    pseudonyms: Pseudonyms | None,
    places: DamagePlaces,
    *,
    with_log: bool,
) -> tuple[list[CopiedFile], int]:
    """Copy ranges into an empty directory, each to its position in its file.

    Args:
        pseudonyms: None copies bodies, keys, tags and property values too.

    Returns:
        The files by path, and how many more there are than can be listed.

    Raises:
        UnsupportedError: a part of the store lies outside of its directory.
        WriteError: the copy cannot be written.
    """
    segments = {segment.path: segment for segment in store.commitlog}
    order = {kind: number for number, kind in enumerate(_FIRST_KINDS)}
    files = sorted(
        files_of(store), key=lambda file: (file[1].path not in places.by_file, order.get(file[0], len(order)))
    )
    left, copied = RANGES_MAX, []
    for kind, entry in islice(files, FILES_MAX):
        included, ranges = included_of(kind, entry, is_redacted=pseudonyms is not None), tuple[tuple[int, int], ...]()
        path = shown_path(entry.path, pseudonyms)
        if included in (Included.WHOLE, Included.REDACTED):
            included = Included.SIZE
            if left > 0 and (with_log or kind is not FileKind.COMMITLOG):
                chunks = list(_chunks(store, kind, entry, segments.get(entry.path), pseudonyms, places))
                size = sum(len(data) for _, data in chunks)
                if 0 < size <= left:
                    left -= size
                    write_chunks(inside(target, path), entry.size, chunks)
                    included, ranges = Included.RANGES, tuple((at, len(data)) for at, data in chunks)
        copied.append(CopiedFile(path, entry.size, entry.mtime_ns, kind.value, included, ranges))
    return sorted(copied, key=lambda file: file.path), max(0, len(files) - FILES_MAX)


def _chunks(
    store: Store,
    kind: FileKind,
    entry: Entry,
    segment: Segment | None,
    pseudonyms: Pseudonyms | None,
    places: DamagePlaces,
) -> Chunks:
    if kind is FileKind.COMPACTION_LOG:
        return
    try:
        source = store.view.open(entry.path)
    except UnreadableError:
        return
    with closing(source):
        if kind in (FileKind.CONFIG, FileKind.COMPACTION_CHECKPOINT):
            raw = read_range(source, 0, entry.size)
            yield 0, redact_config(entry.path, raw, pseudonyms) if pseudonyms is not None else raw
        elif kind in SIDE_DATABASES:
            yield 0, current_of(source)
        elif kind is FileKind.COMMITLOG and pseudonyms is not None:
            if segment is not None and not segment.has_entries:
                split = Split(source, 0, source.size, segment.start, more_follows=True)
                yield from _log_chunks(split, places.of(entry.path, source.size), pseudonyms)
        else:
            is_small = source.size <= SMALL and kind is not FileKind.COMMITLOG
            ranges = [(0, source.size)] if is_small else places.of(entry.path, source.size)
            if pseudonyms is None:
                yield from ((start, read_or_zeros(source, start, end - start)) for start, end in ranges)
            else:
                slot_count = store.index_slot_count if kind is FileKind.INDEX else None
                yield from redact_numbers(kind, source, slot_count, ranges)


def _log_chunks(split: Split, ranges: Ranges, pseudonyms: Pseudonyms) -> Chunks:
    """Records that begin in the ranges, redacted, and the frames of ranges that are not records."""
    position = 0
    for start, end in ranges:
        part = replace(split, start=start, end=end, anchor=start > 0)
        for at, data in _merged(redact_range(part, pseudonyms, _RECORD_MAX)):
            if at >= position:
                yield at, data
                position = at + len(data)


def _merged(chunks: Chunks) -> Iterator[tuple[int, bytes]]:
    """Chunks with adjacent ones joined."""
    start, content = 0, bytearray()
    for at, data in chunks:
        if content and at != start + len(content):
            yield start, bytes(content)
            content = bytearray()
        if not content:
            start = at
        content += data
    if content:
        yield start, bytes(content)
