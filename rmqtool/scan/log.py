"""Scans a whole log: its files in order, each a piece, with the reader that suits its size; in this thread or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, TypeVar

from rmqtool.errors import UnreadableError
from rmqtool.formats import commitlog
from rmqtool.formats.record_crc import record_crc_matches
from rmqtool.formats.tags import parse_delay_levels
from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.judge import MESSAGE_MAGICS, judge_frame
from rmqtool.scan.piece import Piece, whole_file
from rmqtool.scan.plain import PlainReader
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import Batch, Reader, Walk
from rmqtool.store.source import ByteSource, read_range

COMPILED_FROM_BYTES: Final = 24 << 20
"""Log bytes from which loading the compiled reader (0.4 s, 3 s the very first time) pays; the plain one needs some 4 µs a record."""
PROBE_BYTES: Final = 4096

T = TypeVar("T")


@dataclass(frozen=True)
class LogFile:
    """One file of the log, not yet opened."""

    open: Callable[[], ByteSource]
    physical_offset: int


@dataclass(frozen=True)
class ScanOptions:
    """How to scan.

    Attributes:
        compiled: True or False chooses the reader, None leaves it to the size of the data.
    """

    delays_ms: Sequence[int] = field(default_factory=parse_delay_levels)
    record_crc: bool = False
    compiled: bool | None = None


@dataclass(frozen=True)
class LogPlan:
    """The files of a log with what must be known of all of them before any is scanned."""

    pieces: tuple[Piece, ...]
    data_bytes: int

    def close(self) -> None:
        for piece in self.pieces:
            piece.source.close()


def plan_log(files: Sequence[LogFile]) -> LogPlan:
    """Open the files and tell which is the last one that holds data; zero files behind it are only preallocated.

    Raises:
        UnreadableError: a file may not be opened.
    """
    sources = [file.open() for file in files]
    last = max((at for at, source in enumerate(sources) if _has_data(source)), default=-1)
    pieces = tuple(
        whole_file(source, file.physical_offset, more_follows=at < last)
        for at, (file, source) in enumerate(zip(files, sources, strict=True))
        if at <= max(last, 0)
    )
    return LogPlan(
        pieces, sum(end - start for piece in pieces for start, end in piece.source.extents(0, piece.source.size))
    )


def scan_log(plan: LogPlan, options: ScanOptions | None = None) -> Iterator[Batch]:
    """Batches of the whole log, in log order."""
    options = options or ScanOptions()
    make_reader = reader_for(plan.data_bytes, options.compiled)
    for piece in plan.pieces:
        yield from walk_piece(piece, make_reader(), options).batches()


def map_pieces(
    plan: LogPlan, work: Callable[[Walk], T], options: ScanOptions | None = None, threads: int = 2
) -> Iterator[T]:
    """Results of `work` over the walk of each piece, in log order, computed by several threads."""
    options = options or ScanOptions()
    make_reader = reader_for(plan.data_bytes, options.compiled)
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(lambda piece: work(walk_piece(piece, make_reader(), options)), plan.pieces)


def walk_piece(piece: Piece, reader: Reader, options: ScanOptions) -> Walk:
    """The walk of one piece with these options."""
    return Walk(piece, reader, options.delays_ms, options.record_crc)


def reader_for(data_bytes: int, compiled: bool | None = None) -> Callable[[], Reader]:
    """A maker of readers: compiled for much data where the compiler can be loaded, else plain."""
    if compiled is False or (compiled is None and data_bytes < COMPILED_FROM_BYTES):
        return PlainReader
    from rmqtool.scan import compiled as compiled_module

    if compiled is None and not compiled_module.is_available():
        return PlainReader
    return compiled_module.CompiledReader


def carries_record_crc(pieces: Sequence[Piece]) -> bool:
    """Whether the log's first readable message carries a right whole-record CRC, so that the store writes them."""
    for piece in pieces:
        try:
            frame = read_range(piece.source, 0, 8)
            verdict, size, magic = (
                judge_frame(frame, piece.source.size) if len(frame) == 8 else (Verdict.BAD_SIZE, 0, 0)
            )
            if verdict == Verdict.GOOD and magic in MESSAGE_MAGICS and size <= commitlog.PROPERTIES_LENGTH_MAX << 8:
                return bool(record_crc_matches(read_range(piece.source, 0, size)))
        except UnreadableError:
            continue
    return False


def _has_data(source: ByteSource) -> bool:
    try:
        if any(read_range(source, 0, PROBE_BYTES)):
            return True
    except UnreadableError:
        return True
    return last_data_end(source, 0, source.size) > 0
