"""Queue writers, held against the put rules taken one entry at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.engine.dispatch.extension_writer import ExtensionWriter
from rmqtool.engine.dispatch.queue_entries import QueueEntries
from rmqtool.engine.dispatch.queue_writer import BatchQueueWriter, QueueEnd, QueueWriter, queue_end
from rmqtool.engine.queues.loaded_files import LoadedFiles
from rmqtool.engine.queues.unit import BATCH, PLAIN, PLAIN_UNITS
from rmqtool.engine.rules.versions import rules_for
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.formats.consumequeue import (
    BATCH_UNIT_SIZE,
    EXTENSION_ADDRESS_BASE,
    EXTENSION_UNIT,
    FILLER_UNIT,
    UNIT_SIZE,
)
from rmqtool.store.directory import QueueFiles, Segment
from rmqtool.store.sink import DirectorySink
from rmqtool.store.view import open_directory
from tests.memory_sink import MemorySink

RULES = rules_for("5.5.0")
OLDEST = rules_for("4.4.0")
DIRECTORY = "consumequeue/Topic/0"
FILE_SIZE = 7 * UNIT_SIZE

Put = tuple[int, int, int, int]
"""Queue offset, physical offset, record size, tags code."""


def _entries(puts: Sequence[Put], *, batch: bool = False, batch_sizes: Sequence[int] = ()) -> QueueEntries:
    columns = list(zip(*puts, strict=True)) or [(), (), (), ()]
    count = len(puts)
    return QueueEntries(
        b"Topic",
        0,
        batch,
        np.array(columns[0], np.int64),
        np.array(columns[1], np.int64),
        np.array(columns[2], np.int32),
        np.array(columns[3], np.int64),
        np.arange(count, dtype=np.int64),
        np.array(batch_sizes or [1] * count, np.int32),
        np.ones(count, np.bool_),
    )


class NaiveQueue:
    """The put rules as the broker goes through them, entry by entry, file by file."""

    def __init__(self, *, ends_at_start: bool = False) -> None:
        self.files: dict[int, bytearray] = {}
        self.written: dict[int, int] = {}
        self.highest = -1
        self.ends_at_start = ends_at_start

    def put(self, put: Put) -> None:
        queue_offset, physical_offset, size, tags_code = put
        end = physical_offset if self.ends_at_start else physical_offset + size
        if end <= self.highest:
            return
        expected = (queue_offset * UNIT_SIZE + (1 << 63)) % (1 << 64) - (1 << 63)
        first = not self.files
        if first:
            self._make(expected - expected % FILE_SIZE)
        last = max(self.files)
        if self.written[last] == FILE_SIZE:
            self._make(last + FILE_SIZE)
            last += FILE_SIZE
        if first and queue_offset != 0:
            while self.written[last] < expected % FILE_SIZE:
                self._append(last, PLAIN.pack(*FILLER_UNIT))
        if queue_offset != 0 and expected < last + self.written[last]:
            return
        self.highest = end
        self._append(last, PLAIN.pack(physical_offset, size, tags_code))

    def _make(self, start: int) -> None:
        self.files[start] = bytearray(FILE_SIZE)
        self.written[start] = 0

    def _append(self, start: int, unit: bytes) -> None:
        at = self.written[start]
        self.files[start][at : at + UNIT_SIZE] = unit
        self.written[start] = at + UNIT_SIZE


def _files(sink: MemorySink) -> dict[int, bytes]:
    return {int(path.rpartition("/")[2]): bytes(content) for path, content in sink.files.items()}


@st.composite
def _puts(draw: st.DrawFn) -> list[Put]:
    """Runs of queue offsets with jumps, over physical offsets that mostly rise."""
    puts: list[Put] = []
    physical_offset = draw(st.integers(0, 500))
    queue_offset = draw(st.sampled_from([0, 0, 1, 6, 7, 8, 40]))
    for _ in range(draw(st.integers(0, 40))):
        size = draw(st.integers(91, 99))
        puts.append((queue_offset, physical_offset, size, draw(st.integers(-(1 << 40), 1 << 40))))
        physical_offset += draw(st.sampled_from([size] * 12 + [0, size - 200, 5 * size]))
        physical_offset = max(0, physical_offset)
        queue_offset += draw(st.sampled_from([1] * 12 + [0, 2, 9, -1, -3, -queue_offset]))
        queue_offset = max(0, queue_offset)
    return puts


@given(puts=_puts(), cuts=st.lists(st.integers(0, 40)), oldest=st.booleans())
def test_files_are_those_of_one_entry_at_a_time(puts: list[Put], cuts: list[int], *, oldest: bool) -> None:
    naive = NaiveQueue(ends_at_start=oldest)
    for put in puts:
        naive.put(put)
    sink = MemorySink()
    writer = QueueWriter(sink, DIRECTORY, FILE_SIZE, OLDEST if oldest else RULES)
    bounds = sorted({0, len(puts), *(cut for cut in cuts if cut < len(puts))})
    for start, stop in pairwise(bounds):
        writer.put(_entries(puts[start:stop]))
        # A writer that goes on from an end does what one that never stopped does.
        writer = QueueWriter(sink, DIRECTORY, FILE_SIZE, OLDEST if oldest else RULES, writer.end)
    assert _files(sink) == {start: bytes(content) for start, content in naive.files.items()}


def test_a_queue_that_begins_in_the_middle_begins_with_filler() -> None:
    sink = MemorySink()
    writer = QueueWriter(sink, DIRECTORY, FILE_SIZE, RULES)
    writer.put(_entries([(9, 5000, 100, 7)]))
    filler = PLAIN.pack(0, 0x7FFFFFFF, 0)
    assert _files(sink) == {FILE_SIZE: filler * 2 + PLAIN.pack(5000, 100, 7) + bytes(4 * UNIT_SIZE)}
    assert (writer.misplaced, writer.ignored) == (0, 0)


def test_entries_out_of_place_are_counted() -> None:
    writer = QueueWriter(MemorySink(), DIRECTORY, FILE_SIZE, RULES)
    writer.put(_entries([(0, 0, 100, 0), (1, 100, 100, 0), (5, 200, 100, 0), (1, 300, 100, 0), (0, 400, 100, 0)]))
    assert (writer.misplaced, writer.ignored) == (2, 1)


def test_an_impossible_queue_offset_makes_no_file() -> None:
    sink = MemorySink()
    writer = QueueWriter(sink, DIRECTORY, FILE_SIZE, RULES)
    writer.put(_entries([(-5, 0, 100, 0), ((1 << 63) - 1, 100, 100, 0), (3 << 61, 200, 100, 0)]))
    assert not sink.files
    assert writer.ignored == 3


WRAPPED = 0x676FD1A610A67648


@pytest.mark.parametrize(("queue_offset", "is_entered"), [
    (WRAPPED, True), (1 << 60, True), ((1 << 63) - 1, False), (1 << 62, False), (3 << 61, False),
])  # fmt: skip
def test_a_queue_offset_after_all_positions_wraps(queue_offset: int, *, is_entered: bool) -> None:
    """Java multiplies without a look at the sign: 5.5.1 put the unit of the first one at its queue's end, offset 22."""
    puts = [(0, 0, 100, 0), (queue_offset, 100, 100, 0), (1, 200, 100, 0)]
    sink, naive = MemorySink(), NaiveQueue()
    writer = QueueWriter(sink, DIRECTORY, FILE_SIZE, RULES)
    writer.put(_entries(puts))
    for put in puts:
        naive.put(put)
    assert _files(sink) == {start: bytes(content) for start, content in naive.files.items()}
    assert PLAIN.unpack_from(_files(sink)[0], UNIT_SIZE)[0] == (100 if is_entered else 200)
    assert writer.ignored == 1


def test_a_queue_on_the_disk_goes_on_where_it_ends(tmp_path: Path) -> None:
    puts = [(number, number * 100, 100, number) for number in range(30)]
    whole = MemorySink()
    QueueWriter(whole, DIRECTORY, FILE_SIZE, RULES).put(_entries(puts))
    for stop in (1, 3, 7, 14, 29, 30):
        sink = DirectorySink(tmp_path)
        # All records again: those that the queue holds are known by where they end.
        writer = QueueWriter(sink, DIRECTORY, FILE_SIZE, RULES, _end_on_disk(tmp_path))
        writer.put(_entries(puts[:stop]))
        sink.close()
        assert _end_on_disk(tmp_path) == writer.end
        assert writer.end.physical_offset == stop * 100
    assert {path: (tmp_path / path).read_bytes() for path in whole.files} == {
        path: bytes(content) for path, content in whole.files.items()
    }


def _end_on_disk(root: Path) -> QueueEnd:
    view = open_directory(root)
    found = [Segment(entry, int(entry.name)) for entry in view.list(DIRECTORY)] if (root / DIRECTORY).exists() else []
    segments = tuple(sorted(found, key=lambda segment: segment.start))
    with OpenFiles(view) as files:
        queue = QueueFiles("Topic", 0, segments) if segments else None
        return queue_end(LoadedFiles.recovered(queue, FILE_SIZE, PLAIN_UNITS, files), RULES)


@pytest.mark.parametrize("size", [24, 60, 62, 64, 70])
def test_extension_units_stand_where_their_addresses_say(size: int) -> None:
    sink = MemorySink()
    writer = ExtensionWriter(sink, "consumequeue_ext/Topic/0", size)
    tags, stamps = np.array([5, -6, 7, 8, 9], np.int64), np.arange(5, dtype=np.int64)
    first = writer.put(tags[:1], stamps[:1])
    writer = ExtensionWriter(sink, "consumequeue_ext/Topic/0", size, writer.end)
    addresses = np.concatenate([first, writer.put(tags[1:], stamps[1:])])
    files = _files(sink)
    # A file keeps four bytes free for its end mark.
    units_per_file = (size - 4) // 20
    assert sorted(files) == [number * size for number in range(-(-5 // units_per_file))]
    for start, content in files.items():
        end = units_per_file * 20
        assert content[end:] == (b"\xff\xff" if start != max(files) else b"\0\0") + bytes(size - end - 2)
    for address, code, stamp in zip(addresses.tolist(), tags.tolist(), stamps.tolist(), strict=True):
        place = address - EXTENSION_ADDRESS_BASE
        unit = EXTENSION_UNIT.struct.parse(files[place // size * size][place % size :])
        assert (unit.size, unit.tags_code, unit.store_timestamp_ms, unit.bitmap_length) == (20, code, stamp, 0)


@given(
    puts=st.lists(
        st.tuples(st.integers(-1, 50), st.integers(0, 9).map(lambda number: number * 100), st.just(100), st.just(3)),
        max_size=20,
    ),
    sizes=st.lists(st.integers(-1, 9), min_size=20, max_size=20),
    cut=st.integers(0, 20),
)
def test_batch_units_follow_each_other(puts: list[Put], sizes: list[int], cut: int) -> None:
    units, highest = [], -1
    for at, (base, physical_offset, size, tags_code) in enumerate(puts):
        if base < 0 or sizes[at] < 0 or physical_offset <= highest:
            continue
        highest = physical_offset
        # Every call numbers its entries' times from 0.
        stamp = at if at < cut else at - cut
        units.append(BATCH.pack(physical_offset, size, tags_code, stamp, base, sizes[at], -1, 0))
    sink, file_size = MemorySink(), 3 * BATCH_UNIT_SIZE
    writer = BatchQueueWriter(sink, "batchconsumequeue/Topic/0", file_size)
    for part in (slice(0, cut), slice(cut, 20)):
        chosen = puts[part]
        writer.put(_entries(chosen, batch=True, batch_sizes=sizes[part][: len(chosen)]))
        writer = BatchQueueWriter(sink, "batchconsumequeue/Topic/0", file_size, writer.end)
    content = b"".join(part for _, part in sorted(_files(sink).items()))
    assert content.rstrip(b"\0") == b"".join(units).rstrip(b"\0")
    assert len(content) == -(-len(units) // 3) * file_size
