"""Scans a whole log: its files in order, each a split, with the reader that suits; in one thread or several."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from rmqtool.errors import UnreadableError
from rmqtool.formats import commitlog, dledger
from rmqtool.formats.commitlog import MESSAGE_MAGICS
from rmqtool.formats.record_crc import is_record_crc_lost, record_crc_matches
from rmqtool.formats.tags import parse_delay_levels
from rmqtool.scan.blocks import BLOCK_SIZE, Window, last_data_end
from rmqtool.scan.columns import Row, bare_row
from rmqtool.scan.judge import judge_frame
from rmqtool.scan.kernels.compile_notice import ON_PLAIN_READING
from rmqtool.scan.rules import Verdict
from rmqtool.scan.runner import ThreadRunner
from rmqtool.scan.split import LazySource, Split, whole_file
from rmqtool.scan.walk import FRAME_SIZE, Batch, PlainReader, RecordReader, Walk, find_next
from rmqtool.store.source import ByteSource, Closable, read_range

if TYPE_CHECKING:
    from rmqtool.scan.row_cache import RowCache

KEPT_FROM_BYTES: Final = 48 << 20
"""Log bytes from which compiled code pays that is kept: it loads in 0.5 s, the plain reader takes 12 µs a record."""
COMPILED_FROM_BYTES: Final = 384 << 20
"""Bytes of a log from which the compiled reader is faster where it must be compiled first, for some seven seconds."""
PROBE_BYTES: Final = 4096
SEARCHED_FOR_CRC: Final = 8 << 20
"""Bytes of a file, whose first message is damaged, in which another one is looked for."""
DISPATCH_BLOCK_SIZE: Final = 4 << 20
"""Bytes of a window where each batch is dispatched: that costs less for many rows at once."""

T = TypeVar("T")


@dataclass(frozen=True)
class LogFile:
    """One file of the log, not yet opened."""

    open: Callable[[], ByteSource]
    physical_offset: int
    has_entries: bool = False
    """True for a file of DLedger."""


class StoredSegment(Protocol):
    """A file of a store's log."""

    @property
    def path(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def has_entries(self) -> bool: ...


@dataclass(frozen=True)
class ScanOptions:
    """Options for the rows of a log.

    Attributes:
        compiled: True or False chooses the reader, None leaves it to the size of the log.
        block_size: bytes of a window; with few more than fit into a core's cache, work over a batch's rows costs less.
        cache, columns_only, keys_of: see `Walk`.
        log_bytes: of the whole log, by which the reader is chosen.
    """

    delays_ms: Sequence[int] = field(default_factory=parse_delay_levels)
    record_crc: bool = False
    compiled: bool | None = None
    block_size: int = BLOCK_SIZE
    cache: RowCache | None = None
    columns_only: bool = False
    keys_of: str | None = None
    log_bytes: int = 0

    def walk(self, split: Split, reader: RecordReader | None = None) -> Walk:
        """The walk over a split, not begun."""
        return (EntryWalk if split.has_entries else Walk)(
            split,
            reader or reader_for(self.log_bytes, self.compiled),
            self.delays_ms,
            self.record_crc,
            self.block_size,
            cache=self.cache,
            columns_only=self.columns_only,
            keys_of=self.keys_of,
        )

    def is_known(self, split: Split) -> bool:
        """True if a walk over a split would read nothing, since the cache knows all of it."""
        if split.has_entries or self.cache is None:
            return False
        return self.cache.answers(self.walk(split, PlainReader()))

    def known_messages(self, split: Split) -> tuple[int, int] | None:
        """Number of messages of a split, and the file position after them; None where the cache does not know it."""
        if split.has_entries or self.cache is None:
            return None
        return self.cache.messages(self.walk(split, PlainReader()))


@dataclass(frozen=True)
class RecordTable(Closable):
    """The records of a log as rows, batch by batch, for every walk over a log. A context manager.

    A file is opened when rows of it are asked for and closed after them: a log has more files than a process may hold.

    Attributes:
        splits: the files up to the last one that holds data, each a split; zero files after it are only preallocated.
        scan: with `log_bytes`, the bytes of the files that are no holes.
    """

    splits: tuple[Split, ...]
    scan: ScanOptions

    @classmethod
    def of(cls, files: Sequence[LogFile], scan: ScanOptions | None = None, *, finds_crc: bool = False) -> RecordTable:
        """Read facts of each file that must be known of all of them before any is scanned.

        Args:
            finds_crc: look too whether the store writes whole-record CRCs, and check them if so.

        Raises:
            UnreadableError: a file may not be opened.
        """
        sources: list[LazySource] = []
        log_bytes, last = 0, 0
        for number, file in enumerate(files):
            source = LazySource.look(file.open)
            log_bytes += sum(end - start for start, end in source.extents(0, source.size))
            if holds_data(source):
                last = number
            source.close()
            sources.append(source)
        splits = tuple(
            whole_file(source, file.physical_offset, more_follows=number < last, has_entries=file.has_entries)
            for number, (file, source) in enumerate(zip(files[: last + 1], sources, strict=False))
        )
        scan = replace(scan or ScanOptions(), log_bytes=log_bytes)
        return cls(splits, replace(scan, record_crc=carries_record_crc(splits)) if finds_crc else scan)

    def batches(self, *splits: Split) -> Iterator[Batch]:
        """Batches of the whole log, or of some of its splits, in log order."""
        for split in splits or self.splits:
            yield from self.scan.walk(split).batches()
            split.source.close()

    def map(self, work: Callable[[Walk], T], threads: int, splits: Sequence[Split]) -> Generator[T, None, None]:
        """Results of `work` over the walk of each split, in the order of the splits, computed by several threads."""

        def run(split: Split) -> T:
            try:
                return work(self.scan.walk(split))
            finally:
                split.source.close()

        yield from ThreadRunner(threads).map(run, splits)

    def close(self) -> None:
        """Close all open files; a file that is read later is opened again."""
        for split in self.splits:
            split.source.close()


def open_log(
    open_file: Callable[[str], ByteSource],
    segments: Iterable[StoredSegment],
    scan: ScanOptions | None = None,
    *,
    finds_crc: bool = False,
) -> RecordTable:
    """The records in files of a store's log; see `RecordTable.of`."""
    files = [LogFile(partial(open_file, segment.path), segment.start, segment.has_entries) for segment in segments]
    return RecordTable.of(files, scan, finds_crc=finds_crc)


def reader_for(log_bytes: int, compiled: bool | None = None) -> RecordReader:
    """A reader of one split: compiled for much data where the compiler can be loaded, else plain."""
    if compiled is False or (compiled is None and not is_compiled_faster(log_bytes)):
        return PlainReader()
    from rmqtool.scan import compiled as compiled_module

    if compiled is None and not compiled_module.is_available():
        while ON_PLAIN_READING:
            ON_PLAIN_READING.pop()()
        return PlainReader()
    return compiled_module.CompiledReader()


def is_compiled_faster(log_bytes: int) -> bool:
    """True if the compiled reader is done sooner, its compiler included; False where a limit of memory has no room."""
    if log_bytes < min(KEPT_FROM_BYTES, COMPILED_FROM_BYTES):
        return False
    from rmqtool.scan.compiled import has_room
    from rmqtool.scan.kernels.code_cache import is_kept

    return (log_bytes >= COMPILED_FROM_BYTES or is_kept("walk_block")) and has_room()


def starts_with_data(source: ByteSource) -> bool:
    """True if the first bytes of a file are not all zero.

    Raises:
        UnreadableError: they cannot be read.
    """
    return any(read_range(source, 0, PROBE_BYTES))


def holds_data(source: ByteSource) -> bool:
    """True if any byte of a file is not zero, or its start cannot be read."""
    try:
        if starts_with_data(source):
            return True
    except UnreadableError:
        return True
    return last_data_end(source, 0, source.size) > 0


def may_hold_data(open_file: Callable[[str], ByteSource], path: str) -> bool:
    """True if any byte of the file at a path is not zero, or it cannot be opened or read."""
    try:
        with closing(open_file(path)) as source:
            return holds_data(source)
    except UnreadableError:
        return True


def carries_record_crc(splits: Sequence[Split]) -> bool:
    """True if the first message of any file has a right whole-record CRC, so that the store writes them.

    Where that is damaged, a later one counts. One that is right is proof enough: a text that an application put there
    would not be.
    """
    for split in splits:
        has_crc = _carries_record_crc(split)
        if isinstance(split.source, LazySource):
            split.source.close()
        if has_crc:
            return True
    return False


def _carries_record_crc(split: Split) -> bool:
    source = split.source
    try:
        first = _has_right_crc(source, 0)
        if first is not False:
            return bool(first)
        end = min(source.size, SEARCHED_FOR_CRC)
        is_right = partial(_has_right_crc, source)
        at = find_next(Window(source), 0, end, split.physical_offset, lambda position: is_right(position) is True)
        return at is not None and is_right(at) is True
    except UnreadableError:
        return False


def _has_right_crc(source: ByteSource, position: int) -> bool | None:
    """True if a whole message with a right whole-record CRC is at a file position; None if it has none."""
    frame = read_range(source, position, FRAME_SIZE)
    if len(frame) < FRAME_SIZE:
        return False
    verdict, size, magic = judge_frame(frame, source.size - position)
    if verdict != Verdict.GOOD or magic not in MESSAGE_MAGICS or size > BLOCK_SIZE:
        return False
    record = read_range(source, position, size)
    return False if is_record_crc_lost(record) else record_crc_matches(record)


# The walk over a file of a DLedger log: the record in each entry is a row, and what lies between records is a blank.


ROWS_MAX: Final = 1 << 15
_HEADER: Final = Struct(dledger.ENTRY.struct_code)
_BODY_LENGTH: Final = [field.name for field in dledger.ENTRY.fields].index("body_length")


class EntryWalk(Walk):
    """State of the scan of one file; always from its first byte."""

    def batches(self) -> Iterator[Batch]:
        """Rows of the file; a cache, which knows records that lie side by side, is not asked."""
        return self.scanned()

    def scanned(self) -> Iterator[Batch]:
        """Rows of the file, read and judged."""
        source, more_follows = self.split.source, self.split.more_follows
        self.outcome.first_record, self.outcome.ended = self.split.start, True
        end = last_data_end(source, 0, source.size)
        rows: list[Row] = []
        position = self.split.start
        while position < end:
            if not self.window.holds(position, min(end, position + self.block_size // 2)):
                if rows:
                    yield self._batch(rows)
                    rows = []
                self.window.fill(position, end)
            entry = self._entry(position)
            if entry is None:
                break
            rows += entry
            position += sum(row.size for row in entry)
            if len(rows) >= ROWS_MAX:
                yield self._batch(rows)
                rows = []
        end = max(end, position)  # a message without properties ends in zeros, and so does an entry without a message
        place = self.split.physical_offset + position
        mark = bytes(self.window.bytes_at(position, dledger.END_SIZE_MIN))  # with the length of what it ends
        is_mark = int.from_bytes(mark[:4], "big", signed=True) == dledger.END_OF_FILE
        if is_mark and len(mark) == dledger.END_SIZE_MIN:
            end = source.size
            rows.append(bare_row(place, end - position, Verdict.GOOD, commitlog.MAGIC_BLANK))
        elif position < end:
            unreadable = self.window.unreadable_in(position, position + dledger.ENTRY_SIZE)
            # DLedger cuts off what follows the last entry of the last file.
            verdict = Verdict.BAD_SIZE if more_follows else Verdict.STALE
            rows.append(bare_row(place, end - position, Verdict.UNREADABLE_RANGE if unreadable else verdict))
        if rows:
            yield self._batch(rows)
        self.outcome.data_end, self.outcome.tail_bytes = end, source.size - end

    def _entry(self, position: int) -> list[Row] | None:
        """Rows of the entry at a file position: its header, and its record; None if it has no entry there."""
        raw = self.window.bytes_at(position, dledger.ENTRY_SIZE)
        if len(raw) < dledger.ENTRY_SIZE:
            return None
        values = _HEADER.unpack(raw)
        magic, size, length = values[0], values[1], values[_BODY_LENGTH]
        is_whole = size == dledger.ENTRY_SIZE + length <= self.split.source.size - position
        if magic not in dledger.KINDS or length < 0 or not is_whole:
            return None
        place = self.split.physical_offset + position
        if magic != dledger.MESSAGE:
            return [bare_row(place, size, Verdict.GOOD, commitlog.MAGIC_BLANK)]
        header = bare_row(place, dledger.ENTRY_SIZE, Verdict.GOOD, commitlog.MAGIC_BLANK)
        row = self.judge(position + dledger.ENTRY_SIZE)
        if row.size != length or row.magic not in MESSAGE_MAGICS:
            verdict = Verdict.BAD_LENGTHS if row.verdict == Verdict.GOOD else Verdict(row.verdict)
            row = bare_row(place + dledger.ENTRY_SIZE, length, verdict)
        return [header, row]


PROOF_BYTES: Final = 4 << 20
"""Distance before a cut at which the walk that proves it begins: the default limit of a message's size."""


def first_row_from(whole: Split, cut: int, scan: ScanOptions, proof_bytes: int = PROOF_BYTES, row_at: int = 0) -> int:
    """File position of the first row at or after a cut, as the walk over the whole file has it.

    A part of a file is scanned without the ones before it. The first good record from its cut on may lie inside the
    body of one that reaches over the cut, and after damage the walk over the whole file may continue elsewhere. So a
    record some way before the cut is looked up and walked from: a walk of good records only is the walk over the whole
    file, unless somebody made a body of records that say they lie where they lie. Where anything else is met, the file
    is walked from its start. The same is asked of the cut after the part, so each part proves the seam to the next.

    Args:
        whole: of the whole file, which is not the last one of the log that holds data: what lies after the log's end
            is told only from all that is before it.
        row_at: file position before the cut at which a row is known to begin.

    Returns:
        The file's size where no row begins after the cut.
    """
    if cut <= 0:
        return 0
    if cut - row_at > proof_bytes or row_at > 0:
        is_far = cut - row_at > proof_bytes
        before = replace(whole, start=cut - proof_bytes if is_far else row_at, end=cut, anchor=is_far)
        position = _end_of_walk(scan.walk(before), only_good=True)
        if position is not None:
            return position
    position = _end_of_walk(scan.walk(replace(whole, end=cut)), only_good=False)
    return whole.source.size if position is None else position


def _end_of_walk(walk: Walk, *, only_good: bool) -> int | None:
    """File position of a walk's end; None if it has no row, or any bad row where only good ones are allowed."""
    end = None
    for batch in walk.batches():
        last = batch.as_array()[-1]
        if only_good and (batch.as_array()["verdict"] != Verdict.GOOD).any():
            return None
        end = int(last["physical_offset"]) + int(last["size"]) - walk.split.physical_offset
    return end
