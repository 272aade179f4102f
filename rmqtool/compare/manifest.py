"""A manifest: what another machine must know of a store to compare it, in one file: layout, writer and reader.

    first line  `rmqtool manifest 1` and a line end
    chunks      one for each block of the log, if there are rows; then the table of blocks; then the description
    last line   24 bytes: places of the table and of the description, and the word `RMQTABLE`

A chunk is its packed length, its plain length, the CRC-32 of the packed bytes (32 bits each, little-endian), and its
bytes, packed with zstd. Rows are kept column by column; what the row before tells is taken off, so that zeros are left.
Every number is checked before it is used, for a file comes from anywhere.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final
from zlib import crc32

import numpy as np
import zstandard

from rmqtool.compare.log_side import Span, StoreLog, Terms
from rmqtool.compare.metadata import StoreMetadata
from rmqtool.compare.rows import ROW, Array, Block, LogTotals, QueueNumbers, TopicTotal
from rmqtool.compare.run import ComparedStore
from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.formats.commitlog import RECORD_SIZE_MIN
from rmqtool.formats.queue_name import QueueKey
from rmqtool.report.own_file import OwnFile, replaced_own
from rmqtool.store.source import reason

VERSION: Final = 1
FIRST_LINE: Final = b"rmqtool manifest "
TRAILER: Final = struct.Struct("<QQ8s")
TRAILER_MARK: Final = b"RMQTABLE"
CHUNK: Final = struct.Struct("<III")
BLOCK: Final = np.dtype([("begin", "<i8"), ("end", "<i8"), ("digest", "<u8"), ("place", "<u8"), ("rows", "<u4")])
"""A row of the table of blocks; `place` is where the block's chunk lies, 0 where there is none."""
COLUMNS: Final = (
    ("identity", "<u8"),
    ("content", "<u4"),
    ("whole", "<u4"),
    ("size", "<i4"),
    ("queue", "<i4"),
    ("queue_offset", "<i8"),
)
"""Columns of a block's rows in the file; the physical offset follows from begin and sizes."""
PLAIN_MAX: Final = 1 << 30
PACKED_MAX: Final = 64
"""Limit of the ratio by which a table or a description is packed; a larger one shows that it is not a manifest."""
BLOCK_SIZE_MAX: Final = 64 << 20
_LEVEL: Final = 1
"""Of packing: most of a manifest is digests, which no effort makes smaller."""


@dataclass(frozen=True)
class Description:
    """Description of the store as a whole in a manifest."""

    label: str
    made_by: str
    terms: Terms
    has_rows: bool
    files: tuple[Span, ...]
    queues: tuple[QueueKey, ...]
    totals: LogTotals
    facts: StoreMetadata
    not_compared: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        totals = self.totals
        return {
            "store": self.label,
            "made_by": self.made_by,
            "by_content": self.terms.by_content,
            "block_size": self.terms.block_size,
            "has_rows": self.has_rows,
            "files": [list(span) for span in self.files],
            "queues": [[_text(topic), queue_id] for topic, queue_id in self.queues],
            "log": {name: getattr(totals, name) for name in _TOTALS},
            "topics": [
                [_text(topic), total.messages, total.bytes, total.digest] for topic, total in totals.topics.items()
            ],
            "queue_ends": None
            if self.facts.queues is None
            else [[*key, *bounds] for key, bounds in self.facts.queues.items()],
            "config": [[*key, text] for key, text in self.facts.config.items()],
            "other_files": self.facts.files,
            "problems": list(self.facts.problems),
            "not_compared": list(self.not_compared),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Description:
        """The reverse of `as_json`; ValueError, KeyError or TypeError if it is none."""
        log = {name: _whole(document["log"][name], optional=name in ("begin", "end")) for name in _TOTALS}
        topics = {
            _bytes(name): TopicTotal(_count(messages), _count(byte_count), _whole(digest, optional=True))
            for name, messages, byte_count, digest in document["topics"]
        }
        files = tuple(Span(_count(start), _count(size)) for start, size in document["files"])
        if any(one.end > other.start for one, other in pairwise(files)):
            raise ValueError("its files overlap")
        block_size = _count(document["block_size"])
        if not RECORD_SIZE_MIN <= block_size <= BLOCK_SIZE_MAX:
            raise ValueError("not a possible block size")
        ends = document["queue_ends"]
        queues = None
        if ends is not None:
            queues = {
                (str(topic), _whole(at)): (_whole(low, optional=True), _whole(high, optional=True))
                for topic, at, low, high in ends
            }
        config = {(str(file), str(table), str(entry)): str(text) for file, table, entry, text in document["config"]}
        for text in config.values():
            json.loads(text)
        files_of_store = document.get("other_files")
        if files_of_store is not None:
            files_of_store = {str(path): str(digest) for path, digest in files_of_store.items()}
        return cls(
            str(document["store"]),
            str(document["made_by"]),
            Terms(bool(document["by_content"]), block_size),
            bool(document["has_rows"]),
            files,
            tuple((_bytes(topic), _whole(queue_id)) for topic, queue_id in document["queues"]),
            LogTotals(topics=topics, **log),
            StoreMetadata(queues, config, files_of_store, tuple(map(str, document["problems"]))),
            tuple(map(str, document["not_compared"])),
        )


_TOTALS: Final = ("begin", "end", "bad_ranges", "bad_bytes", "tail_bytes", "unreadable_bytes")


def write_manifest(
    path: Path,
    subject: ComparedStore,
    made_by: str,
    terms: Terms,
    *,
    has_rows: bool,
    on_progress: Callable[[int, int], None] | None = None,
) -> Description:
    """Write a manifest, with a digest of each message, or of blocks only; errors as of `replaced_own`."""
    log = subject.log
    assert isinstance(log, StoreLog)
    with replaced_own(path, OwnFile.MANIFEST) as file:
        file.write(FIRST_LINE + b"%d\n" % VERSION)
        numbers = QueueNumbers()
        totals = LogTotals()
        tables = [np.empty(0, BLOCK)]
        total = sum(span.size for span in log.files)
        for number, span in enumerate(log.files):
            stream = log.stream(number, numbers, terms)
            table: list[tuple[int, int, int, int, int]] = []
            for block in stream.blocks():
                assert block.rows is not None
                place = _put(file, packed_rows(block.rows)) if has_rows else 0
                table.append((block.begin, block.end, block.digest, place, len(block.rows)))
                if on_progress is not None:
                    on_progress(block.end - log.files[0].start, total)
            tables.append(np.array(table, BLOCK))
            totals.merge(stream.totals)
            log.close(number)
            if on_progress is not None:
                on_progress(span.end - log.files[0].start, total)
        description = Description(
            subject.label,
            made_by,
            terms,
            has_rows,
            log.files,
            tuple(numbers.keys) if has_rows else (),
            totals,
            subject.facts,
            subject.not_compared,
        )
        table_at = _put(file, np.concatenate(tables).tobytes())
        description_at = _put(file, json.dumps(description.as_json()).encode("ascii"))
        file.write(TRAILER.pack(table_at, description_at, TRAILER_MARK))
        return description


def _put(file: BinaryIO, plain: bytes) -> int:
    """Write a chunk; return its place."""
    place = file.tell()
    packed = zstandard.ZstdCompressor(level=_LEVEL).compress(plain)
    file.write(CHUNK.pack(len(packed), len(plain), crc32(packed)))
    file.write(packed)
    return place


class ManifestLog:
    """The log of a manifest, as a `LogSide`; a file is opened for each part, so that threads may share it.

    It pickles, for tasks that find the file at the same absolute path. UnreadableError if the file is no manifest, was
    cut off or damaged, UnsupportedError if it is one of another version.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = path.absolute()  # a task runs in another directory
        self.description, self._table = self._guarded(self._read)
        self.files = self.description.files
        self.has_rows = self.description.has_rows

    def stream(self, number: int, numbers: QueueNumbers, terms: Terms) -> _Stream:
        assert terms == self.description.terms, "the other side has other digests"
        span = self.files[number]
        first, last = np.searchsorted(self._table["begin"], [span.start, span.end]).tolist()
        translation = numbers.translation(self.description.queues)

        def blocks() -> Iterator[Block]:
            with self._guarded(lambda: self._place.open("rb")) as file:
                for table_row in self._table[first:last]:
                    yield self._guarded(partial(self._block, file, table_row, translation))

        return _Stream(blocks)

    def close(self, number: int) -> None:
        """Nothing is held."""

    def _read(self) -> tuple[Description, Array]:
        with self._path.open("rb") as file:
            head = file.read(len(FIRST_LINE) + 10)
            if not head.startswith(FIRST_LINE):
                raise ValueError("not a manifest of rmqtool")
            version = head[len(FIRST_LINE) :].partition(b"\n")[0]
            if version != b"%d" % VERSION:
                raise UnsupportedError(
                    f"{self._path}: the manifest has version {version.decode('ascii', 'replace')}, and not {VERSION}"
                )
            size = file.seek(0, 2)
            file.seek(max(0, size - TRAILER.size))
            table_at, description_at, mark = TRAILER.unpack(file.read(TRAILER.size))
            if mark != TRAILER_MARK:
                raise ValueError("it was cut off, or is damaged at its end")
            plain_max = min(PLAIN_MAX, PACKED_MAX * size + (1 << 20))
            description = Description.from_json(json.loads(_chunk(file, description_at, plain_max)))
            table = np.frombuffer(_chunk(file, table_at, plain_max), BLOCK)
        _check_table(table, description, table_at)
        return description, table

    def _block(self, file: BinaryIO, table_row: Any, translation: Array) -> Block:
        begin, end, digest = int(table_row["begin"]), int(table_row["end"]), int(table_row["digest"])
        if not self.has_rows:
            return Block(begin, end, digest, None)
        count = int(table_row["rows"])
        plain_max = count * sum(np.dtype(kind).itemsize for _, kind in COLUMNS)
        raw = _chunk(file, int(table_row["place"]), plain_max)
        if len(raw) != plain_max:
            raise ValueError("a block has another number of rows than the table says")
        return Block(begin, end, digest, unpacked_rows(raw, count, begin, end, translation))

    def _guarded(self, work: Callable[[], Any]) -> Any:
        """Result of the work; every error in the file's format becomes one error of the class."""
        try:
            return work()
        except OSError as error:
            raise UnreadableError(f"{self._path}: {reason(error)}") from error
        except zstandard.ZstdError as error:
            raise UnreadableError(f"{self._path}: a damaged manifest: {error}") from error
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError, struct.error) as error:
            raise UnreadableError(f"{self._path}: {error} (the manifest is incomplete)") from error


@dataclass
class _Stream:
    """A `BlockStream`; the totals of single files are not in a manifest."""

    blocks: Callable[[], Iterator[Block]]
    totals: LogTotals = field(default_factory=LogTotals)


def packed_rows(rows: Array) -> bytes:
    """Rows of a block column by column; of a queue offset only what the message before in the queue does not tell."""
    order = np.argsort(rows["queue"], kind="stable")
    steps = rows["queue_offset"].copy()  # less one more than that of the message before in the same queue
    again = np.diff(rows["queue"][order]) == 0
    steps[order[1:][again]] -= rows["queue_offset"][order[:-1][again]] + 1
    return b"".join(
        (steps if name == "queue_offset" else rows[name]).astype(kind).tobytes() for name, kind in COLUMNS
    )  # of `whole` the lower bits stay


def unpacked_rows(raw: bytes, count: int, begin: int, end: int, translation: Array) -> Array:
    """The reverse of `packed_rows`, with the comparison's queue numbers for those of the file; ValueError if the rows
    do not lie in [begin, end) one after the other, or name a queue that is not there.
    """
    rows = np.zeros(count, ROW)
    at = 0
    for name, kind in COLUMNS:
        width = np.dtype(kind).itemsize * count
        rows[name] = np.frombuffer(raw[at : at + width], kind)
        at += width
    ends = begin + np.cumsum(rows["size"], dtype=np.int64)
    if (rows["size"] <= 0).any() or ends[-1] != end:
        raise ValueError("the records of a block do not follow each other")
    rows["physical_offset"] = ends - rows["size"]
    messages = rows["queue"] >= 0
    if (rows["queue"][messages] >= translation.size).any():
        raise ValueError("a record is in a queue that is not described")
    order = np.argsort(rows["queue"], kind="stable")
    steps = rows["queue_offset"][order]
    sums = np.cumsum(steps)
    firsts = np.flatnonzero(np.concatenate([[True], np.diff(rows["queue"][order]) != 0]))
    before = np.repeat(sums[firsts] - steps[firsts], np.diff([*firsts.tolist(), count]))
    rows["queue_offset"][order] = (
        sums - before + (np.arange(count) - np.repeat(firsts, np.diff([*firsts.tolist(), count])))
    )
    rows["queue"][messages] = translation[rows["queue"][messages]]
    return rows


def _chunk(file: BinaryIO, place: int, plain_max: int) -> bytes:
    file.seek(place)
    packed_length, plain_length, crc = CHUNK.unpack(_exactly(file, CHUNK.size))
    if plain_length > plain_max:
        raise ValueError("one section has an impossible size")
    packed = _exactly(file, packed_length)
    if crc32(packed) != crc:
        raise ValueError("one section is damaged")
    plain = zstandard.ZstdDecompressor().decompress(packed, max_output_size=max(1, plain_length))
    if len(plain) != plain_length:
        raise ValueError("one section has a wrong length")
    return plain


def _exactly(file: BinaryIO, length: int) -> bytes:
    """Bytes of a file; a length beyond its end is not allocated."""
    if length > os.fstat(file.fileno()).st_size - file.tell():
        raise ValueError("it was cut off")
    return file.read(length)


def _check_table(table: Array, description: Description, table_at: int) -> None:
    begins, ends = table["begin"], table["end"]
    ordered = (begins >= 0).all() and (ends > begins).all() and (begins[1:] >= ends[:-1]).all()
    starts = np.array([span.start for span in description.files], np.int64)
    stops = np.array([span.end for span in description.files], np.int64)
    at = np.searchsorted(starts, begins, side="right") - 1
    inside = (at >= 0).all() and (not at.size or (ends <= stops[at]).all())
    if not (ordered and inside):
        raise ValueError("its blocks are not in order")
    if description.has_rows:
        # A bad range stands between two records at least, for two in a row are one.
        rows_max = 2 * (description.terms.block_size // RECORD_SIZE_MIN) + 4
        if (table["place"] >= table_at).any() or (table["rows"] < 1).any() or (table["rows"] > rows_max).any():
            raise ValueError("its blocks are at wrong positions")


def _whole(value: Any, *, optional: bool = False) -> Any:
    """A whole number of at most 64 bits."""
    if value is None and optional:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 63) <= value < 1 << 64:
        raise ValueError(f"{value!r} is not a valid number here")
    return value


def _count(value: Any) -> int:
    number: int = _whole(value)
    if not 0 <= number < 1 << 62:
        raise ValueError(f"{value!r} is not a valid size or position")
    return number


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _bytes(name: Any) -> bytes:
    return str(name).encode("utf-8", "surrogateescape")
