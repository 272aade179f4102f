"""Results of scans of a log, kept in a few columns: the next scan of the same bytes reads none of them.

Only runs of plain records are kept; see `plain_rows`. A file in which a scan meets anything else is read again by
whoever asks.
A record takes some 17 bytes, 12 of them for three keys; beyond a limit they go to an unnamed temporary file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, cast

from rmqtool.errors import UnreadableError
from rmqtool.formats import commitlog
from rmqtool.formats.properties import SCHEDULE_TOPIC
from rmqtool.memory import memory_budget
from rmqtool.scan.rules import Verdict
from rmqtool.scan.split import Split, SplitOutcome
from rmqtool.scan.walk import Batch, KeyHashes, Walk
from rmqtool.store.source import ByteSource, Closable, reason

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    from rmqtool.scan.columns import Row
    from rmqtool.scan.row_columns import PlainRows, RowColumns

KEPT: Final = (
    "size",
    "queue_offset",
    "store_timestamp_ms",
    "prepared_transaction_offset",
    "tags_code",
    "queue_id",
    "sys_flag",
    "topic_number",
)
"""The columns that are kept; position, verdict, magic and features follow from what a plain record is."""
MEMORY_MAX: Final = 32 << 20
"""Bytes of rows that stay in memory."""
_SCHEDULE: Final = SCHEDULE_TOPIC.encode()


class _Keys(NamedTuple):
    """`KeyHashes` of a block; `counts` holds the number of hashes of each row."""

    version: str
    size: int
    hashes: KeptColumn
    counts: KeptColumn


@dataclass(frozen=True)
class _Block:
    """Adjacent plain rows, without the blank at a file's end."""

    physical_offset: int
    count: int
    columns: tuple[KeptColumn, ...]
    keys: _Keys | None

    def has_keys_of(self, version: str) -> bool:
        """True if the keys that the version enters into the index are known."""
        return self.keys is not None and self.keys.version == version


@dataclass(frozen=True)
class _Run:
    """Rows of one walk from its first record to its end, all of them plain."""

    start: int
    end: int
    is_anchored: bool
    delays_ms: tuple[int, ...]
    record_crc: bool
    more_follows: bool
    outcome: SplitOutcome
    blocks: tuple[_Block, ...]
    blank: tuple[int, int] | None
    """Physical offset and size of the blank at the file's end."""
    topics: tuple[bytes, ...]

    def is_of(self, split: Split) -> bool:
        return (self.start, self.end, self.is_anchored) == (split.start, split.end, split.anchor)

    def suits(self, walk: Walk) -> bool:
        return (
            (self.record_crc or not walk.record_crc)
            and (self.more_follows == walk.split.more_follows or not self.ends(walk.split) or self.blank is not None)
            and (self.delays_ms == tuple(walk.delays_ms) or _SCHEDULE not in self.topics)
            and (walk.keys_of is None or all(block.has_keys_of(walk.keys_of) for block in self.blocks))
        )

    def ends(self, split: Split) -> bool:
        return self.outcome.ended or self.outcome.tail_bytes > 0 or self.outcome.data_end >= split.source.size


class RowCache(Closable):
    """Notes what walks see, and answers later ones; any thread may do either. A context manager."""

    def __init__(self, memory_max: int | None = None) -> None:
        self._runs: dict[Hashable, dict[int, _Run]] = {}
        self._lock = Lock()
        self._memory_left = memory_budget().share(MEMORY_MAX, 8) if memory_max is None else memory_max
        self._spill: IO[bytes] | None = None
        self._spilled = 0
        self._is_full = False
        self._kept: dict[Hashable, tuple[object, Any]] = {}
        self._digests: dict[Hashable, str] = {}
        self.notes: dict[Hashable, Any] = {}
        """Results for whole files, by their identity and the question."""

    def batches(self, walk: Walk, *, answers: bool) -> Iterator[Batch]:
        """The batches of a walk; nothing is read where its bytes were seen before.

        Args:
            answers: whether rows of `KEPT`, `physical_offset`, `own_offset`, `verdict`, `magic`, `features` and
                `topic_length` do, without the bytes of the records.
        """
        key = _key(walk.split)
        if key is None:
            return walk.scanned()
        if answers and (known := self._chain(key, walk)):
            return self._answered(walk, known)
        return walk.scanned() if self._is_full or self._knows(key, walk) else self._noted(key, walk)

    def answers(self, walk: Walk) -> bool:
        """True if a walk would read nothing."""
        key = _key(walk.split)
        return walk.columns_only and key is not None and bool(self._chain(key, walk))

    def messages(self, walk: Walk) -> tuple[int, int] | None:
        """Number of messages of a walk and its end, for a file that holds nothing else; else None.

        A file with a tombstone counts as holding something else: its `prepared_transaction_offset` is not zero.
        """
        key, at = _key(walk.split), KEPT.index("prepared_transaction_offset")
        chain = [] if key is None else self._chain(key, walk)
        blocks = [block for run in chain for block in run.blocks]
        is_sent = all((block.columns[at].kind, block.columns[at].least) == ("", 0) for block in blocks)
        return (sum(block.count for block in blocks), chain[-1].outcome.data_end) if blocks and is_sent else None

    def know_again(self, digests: Mapping[Hashable, str]) -> None:
        """Be told the digests of files, by identity: what was kept of content with such a digest holds for them."""
        self._digests.update(digests)

    def identity(self, source: ByteSource) -> Hashable | None:
        """Identity of the bytes: their digest where it is known."""
        identity = source.identity
        return self._digests.get(identity, identity)

    def recall(self, name: Hashable, made_of: object) -> Any | None:
        """The value kept under a name, if it was made of the same object; else None."""
        known, result = self._kept.get(name, (None, None))
        return result if known == made_of else None

    def keep(self, name: Hashable, made_of: object, result: Any) -> None:
        """Keep a result of seen rows, until the cache is closed or another result takes its name."""
        self._kept[name] = made_of, result

    def close(self) -> None:
        """Forget everything."""
        self._runs.clear()
        self._kept.clear()
        self.notes.clear()
        if self._spill is not None:
            self._spill.close()

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        """A process elsewhere has none of it: it unpickles as None."""
        return _nothing, ()

    # Noting

    def _noted(self, key: Hashable, walk: Walk) -> Iterator[Batch]:
        from rmqtool.scan.plain_rows import columns_of

        blocks: list[_Block] = []
        blank: tuple[int, int] | None = None
        is_plain = True
        for batch in walk.scanned():
            plain = columns_of(batch) if is_plain and blank is None else None  # what follows a blank has no place here
            if plain is None and is_plain:
                rows = batch.as_array()
                row = rows[0]
                is_blank = row["magic"] == commitlog.MAGIC_BLANK and row["verdict"] == Verdict.GOOD
                is_plain = blank is None and rows.size == 1 and bool(is_blank)
                blank = int(row["physical_offset"]), int(row["size"])
            batch.is_noted = plain is not None
            yield batch
            if plain is not None:
                blocks.append(self._block(plain, batch.keys))
        first, outcome = walk.outcome.first_record, walk.outcome
        if not is_plain or self._is_full or first is None or _key(walk.split) != key:
            return
        split = walk.split
        run = _Run(
            split.start, split.end, split.anchor, tuple(walk.delays_ms), walk.record_crc, split.more_follows,
            replace(outcome), tuple(blocks), blank, tuple(walk.topics.names),
        )  # fmt: skip
        with self._lock:
            self._runs.setdefault(key, {})[first] = run

    def _block(self, plain: PlainRows, keys: KeyHashes | None) -> _Block:
        import numpy

        rows, bounds = plain
        columns = keep_columns([(rows.columns[name], bounds[name]) for name in KEPT], self._keep)
        kept_keys = None
        if keys is not None and (keys.rows[1:] >= keys.rows[:-1]).all():
            counts = numpy.bincount(keys.rows, minlength=rows.size).astype(numpy.int32)
            hashes, kept_counts = keep_columns([(keys.hashes, None), (counts, None)], self._keep)
            kept_keys = _Keys(keys.version, keys.hashes.size, hashes, kept_counts)
        return _Block(int(rows["physical_offset"][0]), rows.size, columns, kept_keys)

    def _keep(self, content: bytes) -> bytes | int:
        """The content itself while there is memory for it, else its position in the temporary file."""
        with self._lock:
            self._memory_left -= len(content)
            if self._memory_left >= 0:
                return content
            place = self._spilled
            self._spilled += len(content)
            try:
                if self._spill is None:
                    self._spill = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by close()
                done = os.pwrite(self._spill.fileno(), content, place)
                self._is_full |= done < len(content)
            except OSError:
                self._is_full = True  # then the log is read again
        return place

    # Answering

    def _knows(self, key: Hashable, walk: Walk) -> bool:
        begins, split = self._known(key), walk.split
        return any(split.start <= begin < split.end and run.suits(walk) for begin, run in begins.items())

    def _known(self, key: Hashable) -> dict[int, _Run]:
        with self._lock:
            return dict(self._runs.get(key, {}))

    def _chain(self, key: Hashable, walk: Walk) -> list[_Run]:
        """Adjacent runs from the walk's start to the file's end; empty where there are none."""
        split, by_begin = walk.split, self._known(key)
        same = [known for known in by_begin.values() if known.is_of(split)]
        if same:
            return same if same[0].suits(walk) else []
        if not by_begin or split.anchor or split.end < split.source.size:
            return []
        if walk.keys_of is not None and split.start not in by_begin:
            return []
        chain: list[_Run] = []
        at = max((begin for begin in by_begin if begin <= split.start), default=-1)
        while (run := by_begin.get(at)) is not None and run.suits(walk):
            chain.append(run)
            if run.ends(split):
                return chain if self._has_record_at(chain[0], split) else []
            if run.outcome.data_end <= at:
                return []
            at = run.outcome.data_end
        return []

    def _has_record_at(self, run: _Run, split: Split) -> bool:
        begin = split.physical_offset + split.start
        if split.start == run.outcome.first_record or begin == (run.blank or (-1,))[0]:
            return True
        block = next((block for block in reversed(run.blocks) if block.physical_offset <= begin), None)
        return block is not None and begin in _offsets(
            block, columns_values(block.columns[:1], block.count, self._read)[0]
        )

    def _answered(self, walk: Walk, chain: Sequence[_Run]) -> Iterator[Batch]:
        from rmqtool.scan.row_columns import PlainRows

        split = walk.split
        begin = split.physical_offset + split.start
        names: dict[bytes, int] = {}
        topics: list[bytes] = []
        for run in chain:
            for name in run.topics:
                if name not in names:
                    names[name] = len(topics)
                    topics.append(name)
        for run in chain:
            numbers = [names[name] for name in run.topics]
            for block in run.blocks:
                rows = self._rows(block, numbers, topics)
                if block.physical_offset < begin:
                    rows = rows[rows["physical_offset"] >= begin]
                if rows.size:
                    keys = self._keys(block) if walk.keys_of is not None and rows.size == block.count else None
                    batch = _batch(split, rows, topics, walk, keys)
                    batch.plain = PlainRows(rows, {})
                    yield batch
            if run.blank is not None:
                yield _batch(split, _blank_row(*run.blank), topics, walk, _no_keys(walk))
        first = chain[0].outcome.first_record if split.anchor else split.start
        walk.outcome = replace(chain[-1].outcome, first_record=first)

    def _rows(self, block: _Block, numbers: Sequence[int], topics: Sequence[bytes]) -> RowColumns:
        import numpy

        from rmqtool.scan.plain_rows import with_constants

        columns = dict(zip(KEPT, columns_values(block.columns, block.count, self._read), strict=True))
        columns["topic_number"] = numpy.array(numbers, columns["topic_number"].dtype)[columns["topic_number"]]
        columns["physical_offset"] = _offsets(block, columns["size"])
        lengths = numpy.array([len(name) for name in topics], numpy.int32)
        columns["topic_length"] = lengths[columns["topic_number"]]
        return with_constants(columns)

    def _keys(self, block: _Block) -> KeyHashes | None:
        import numpy

        if block.keys is None:
            return None
        version, size, hashes, counts = block.keys
        [repeats] = columns_values([counts], block.count, self._read)
        [values] = columns_values([hashes], size, self._read)
        return KeyHashes(version, values, numpy.arange(block.count, dtype=numpy.int32).repeat(repeats))

    def _read(self, place: int, length: int) -> bytes:
        assert self._spill is not None, "a column lies in a file that was never made"
        try:
            return os.pread(self._spill.fileno(), length, place)
        except OSError as error:
            raise UnreadableError(f"the temporary file of the log's cache: {reason(error)}") from error


def _key(split: Split) -> Hashable | None:
    """Key of the file's content and start: under another name, each record would be wrong about its own offset."""
    identity = split.source.identity
    return None if identity is None else (identity, split.physical_offset)


def _offsets(block: _Block, sizes: NDArray[Any]) -> NDArray[numpy.int64]:
    """Physical offset of each record of a block: the end of the one before it."""
    offsets: NDArray[numpy.int64] = sizes.cumsum(dtype="i8") + (block.physical_offset - sizes)
    return offsets


def _nothing() -> None:
    return None


def _blank_row(physical_offset: int, size: int) -> RowColumns:
    import numpy

    from rmqtool.scan.columns import row_dtype
    from rmqtool.scan.row_columns import RowColumns

    dtype = row_dtype()
    values = {"physical_offset": physical_offset, "size": size, "magic": commitlog.MAGIC_BLANK}
    names = (*KEPT, "physical_offset", "own_offset", "verdict", "magic", "features", "topic_length")
    return RowColumns({name: numpy.full(1, values.get(name, 0), dtype[name]) for name in names})


def _no_keys(walk: Walk) -> KeyHashes | None:
    import numpy

    nothing = numpy.empty(0, numpy.int32)
    return None if walk.keys_of is None else KeyHashes(walk.keys_of, nothing, nothing)


def _batch(split: Split, rows: RowColumns, topics: list[bytes], walk: Walk, keys: KeyHashes | None = None) -> Batch:
    return Batch(split, cast("Sequence[Row]", rows), topics, walk.window, keys)


# A column of numbers in as few bytes a number as its range, or its few distinct numbers, need.


FEW: Final = 64
"""Distinct numbers of a column in which the place of each is kept; all are among its first rows."""


class KeptColumn(NamedTuple):
    """One column of a block.

    Attributes:
        kind: of the numbers of the content; empty where all numbers of the column are the same.
        least: the smallest number.
        few: distinct numbers of the column, of which the content has the places; empty where it has differences to
            the smallest one.
        content: bytes in memory, or their place in a file.
    """

    dtype: str
    kind: str
    least: int
    few: bytes
    content: bytes | int


def keep_column(
    values: NDArray[Any], keep: Callable[[bytes], bytes | int], bounds: tuple[int, int] | None = None
) -> KeptColumn:
    """The column as it is kept; `keep` is told its bytes, if it has any, and says where they are.

    Args:
        bounds: the smallest and the largest number, where they are known.
    """
    dtype = values.dtype.str
    if bounds is None:
        bounds = (int(values.min()), int(values.max())) if values.size else (0, 0)
    least, most = bounds
    if least == most:
        return KeptColumn(dtype, "", least, b"", b"")
    narrow, few = _narrow(values, least, most)
    return KeptColumn(dtype, narrow.dtype.str, least, few, keep(narrow.tobytes()))


def keep_columns(
    columns: Iterable[tuple[NDArray[Any], tuple[int, int] | None]], keep: Callable[[bytes], bytes | int]
) -> tuple[KeptColumn, ...]:
    """Columns as they are kept, each given with its bounds; see `keep_column`."""
    return tuple([keep_column(values, keep, bounds) for values, bounds in columns])


def _narrow(values: NDArray[Any], least: int, most: int) -> tuple[NDArray[Any], bytes]:
    """Numbers in fewer bytes: indexes into a few values, which follow, or differences to the least one.

    A difference that is too large for the numbers' own type wraps, and so does the sum that undoes it.
    """
    import numpy

    kind = numpy.min_scalar_type(most - least)
    if kind.itemsize > 1:
        few = numpy.unique(values[: 4 * FEW])
        if few.size <= FEW:
            places = few.searchsorted(values).astype(numpy.uint8)
            places[places == few.size] = 0
            if (few[places] == values).all():
                return places, few.tobytes()
    return (values - least).astype(kind), b""


def columns_values(columns: Iterable[KeptColumn], count: int, read: Callable[[int, int], bytes]) -> list[NDArray[Any]]:
    """The numbers of columns, `count` in each.

    Args:
        read: the bytes at a place of the file, as many as it is told.
    """
    return [_column_values(column, count, read) for column in columns]


def _column_values(column: KeptColumn, count: int, read: Callable[[int, int], bytes]) -> NDArray[Any]:
    import numpy

    if not column.kind:
        return numpy.full(count, column.least, column.dtype)
    content = column.content
    if isinstance(content, int):
        content = read(content, count * numpy.dtype(column.kind).itemsize)
    narrow = numpy.frombuffer(content, column.kind)
    if column.few:
        chosen: NDArray[Any] = numpy.frombuffer(column.few, column.dtype)[narrow]
        return chosen
    values = narrow.astype(column.dtype)
    values += column.least
    return values
