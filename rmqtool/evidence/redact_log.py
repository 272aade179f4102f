"""Redacts the files of a commit log, record by record; all other bytes are masked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from rmqtool.evidence.pseudonyms import Pseudonyms
from rmqtool.evidence.redact_record import masked, redact_frame, redact_record
from rmqtool.formats import commitlog
from rmqtool.formats.commitlog import MESSAGE_MAGICS
from rmqtool.scan.judge import judge_frame
from rmqtool.scan.log import ScanOptions, open_log
from rmqtool.scan.rules import Verdict
from rmqtool.scan.split import Split
from rmqtool.store.directory import Segment
from rmqtool.store.source import ByteSource, read_salvaging

RECORD_MAX: Final = 64 << 20
"""Bytes of a record that is taken into memory; a broker refuses messages that are far smaller."""
CHUNK: Final = 1 << 20
Chunks = Iterator[tuple[int, bytes]]


def redact_log(
    open_file: Callable[[str], ByteSource], segments: Iterable[Segment], pseudonyms: Pseudonyms
) -> Iterator[tuple[str, Chunks]]:
    """Files of the log that hold data, by path, each with its redacted bytes by file position, in order.

    What no chunk covers is zeros. The chunks of one file are to be read before the next file is asked for.
    """
    files = list(segments)
    table = open_log(open_file, files)
    for segment, split in zip(files, table.splits, strict=False):
        yield segment.path, _redacted(split, pseudonyms)
        split.source.close()


def redact_records(source: ByteSource, pseudonyms: Pseudonyms) -> Chunks:
    """Redact a file of adjacent records, whatever their own offsets: that of a compacted topic."""
    position = 0
    while position + 8 <= source.size:
        verdict, size, magic = judge_frame(read_or_zeros(source, position, 8), source.size - position)
        is_record = verdict is Verdict.GOOD and magic in MESSAGE_MAGICS and size >= commitlog.RECORD_SIZE_MIN
        if not is_record or size > RECORD_MAX:
            frame = read_or_zeros(source, position, 8)
            yield position, redact_frame(frame, position, source.size - position, pseudonyms)
            position += 8
            break
        yield position, redact_record(read_or_zeros(source, position, size), pseudonyms, None)
        position += size
    yield from _masked_chunks(source, position, source.size)


def redact_range(split: Split, pseudonyms: Pseudonyms, record_max: int) -> Chunks:
    """Redact records that begin in a split: of larger ones, and of damage, only frame and header are kept."""
    for start, end in _ranges(split):
        if end - start <= record_max:
            yield from _range_chunks(split, start, end, pseudonyms)
        else:
            frame = read_or_zeros(split.source, start, commitlog.HEAD_SIZE_MAX)
            yield start, redact_frame(frame, split.physical_offset + start, split.source.size - start, pseudonyms)


def _redacted(split: Split, pseudonyms: Pseudonyms) -> Chunks:
    position = 0
    for start, end in _ranges(split):
        yield from _masked_chunks(split.source, position, start)
        yield from _range_chunks(split, start, end, pseudonyms)
        position = end
    yield from _masked_chunks(split.source, position, split.source.size)


def _ranges(split: Split) -> Iterator[tuple[int, int]]:
    """File positions of each record, blank and bad range, in order."""
    position = 0
    for batch in ScanOptions(compiled=False).walk(split).batches():
        for row in batch.as_rows():
            start = max(row.physical_offset - split.physical_offset, position)
            end = min(row.physical_offset - split.physical_offset + row.size, split.source.size)
            if start < end:
                yield start, end
                position = end


def _range_chunks(split: Split, start: int, end: int, pseudonyms: Pseudonyms) -> Chunks:
    frame = read_or_zeros(split.source, start, min(commitlog.HEAD_SIZE_MAX, end - start))
    remaining = split.source.size - start
    if len(frame) < 8:
        yield start, masked(frame)
        return
    verdict, size, magic = judge_frame(frame, remaining)
    if verdict is Verdict.GOOD and magic in MESSAGE_MAGICS and commitlog.RECORD_SIZE_MIN <= size <= RECORD_MAX:
        covered = min(size, end - start)
        record = redact_record(read_or_zeros(split.source, start, size), pseudonyms, split.physical_offset + start)
        yield start, record[:covered]
    else:
        yield start, redact_frame(frame, split.physical_offset + start, remaining, pseudonyms)
        covered = len(frame)
    yield from _masked_chunks(split.source, start + covered, end)


def _masked_chunks(source: ByteSource, start: int, end: int) -> Chunks:
    for data_start, data_end in source.extents(start, end):
        for at in range(data_start, data_end, CHUNK):
            raw = read_or_zeros(source, at, min(CHUNK, data_end - at))
            if any(raw):
                yield at, masked(raw)


def read_or_zeros(source: ByteSource, position: int, length: int) -> bytes:
    """Bytes of a range; zeros where the disk gives none."""
    buffer = bytearray(length)
    read_salvaging(source, position, memoryview(buffer))
    return bytes(buffer)
