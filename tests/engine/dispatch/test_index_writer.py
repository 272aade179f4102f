"""The index writer, held against the put rules taken one entry at a time, and key hashes against Java's."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.engine.dispatch.index_entries import COLUMNS_MAX, IndexEntries, text_hashes
from rmqtool.engine.dispatch.index_writer import IndexWriter, creation_name, path_behind, read_index_file
from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UnreadableError
from rmqtool.formats.index import ENTRY, ENTRY_SIZE, HEADER, HEADER_SIZE, SLOT_SIZE, entry_position, slot_position
from rmqtool.formats.java_text import decode_java_utf8, java_hash, java_length
from rmqtool.store.source import BytesSource
from tests.memory_sink import MemorySink

SLOTS, ENTRIES = 5, 8
RULES = rules_for("5.5.0")

Put = tuple[int, int, int]
"""Key hash, physical offset, store time in ms."""


class NaiveIndex:
    """The put rules as the broker goes through them: numbers written straight into the file, entry by entry."""

    def __init__(self, *, counts_used: bool = True) -> None:
        self.files: list[bytearray] = []
        self.header: dict[str, int] = {}
        self.counts_used = counts_used

    def put(self, put: Put) -> None:
        key_hash, physical_offset, stamp = put
        self.make_room()
        if physical_offset < self.header["end_physical_offset"]:
            return
        header, content = self.header, self.files[-1]
        number = header["next_entry_number"]
        place = slot_position(key_hash % SLOTS)
        newest = int.from_bytes(content[place : place + SLOT_SIZE], "big")
        delta = (stamp - header["begin_timestamp_ms"]) // 1000
        if header["begin_timestamp_ms"] <= 0 or delta < 0:
            delta = 0
        entry = ENTRY.struct.build(
            {
                "key_hash": key_hash,
                "physical_offset": physical_offset,
                "time_delta_seconds": min(delta, (1 << 31) - 1),
                "previous_entry": newest,
            }
        )
        at = entry_position(number, SLOTS)
        content[at : at + ENTRY_SIZE] = entry
        content[place : place + SLOT_SIZE] = number.to_bytes(4, "big")
        if number == 1:
            header["begin_physical_offset"], header["begin_timestamp_ms"] = physical_offset, stamp
        header["used_slot_count"] += newest == 0 or not self.counts_used
        header["next_entry_number"] += 1
        header["end_physical_offset"], header["end_timestamp_ms"] = physical_offset, stamp
        content[:HEADER_SIZE] = HEADER.struct.build(header)

    def make_room(self) -> None:
        if self.header and self.header["next_entry_number"] < ENTRIES:
            return
        carried_offset = max(0, self.header.get("end_physical_offset", 0))
        carried_stamp = max(0, self.header.get("end_timestamp_ms", 0))
        self.header = {
            "begin_timestamp_ms": carried_stamp,
            "end_timestamp_ms": carried_stamp,
            "begin_physical_offset": carried_offset,
            "end_physical_offset": carried_offset,
            "used_slot_count": 0,
            "next_entry_number": 1,
        }
        self.files.append(bytearray(entry_position(ENTRIES, SLOTS)))
        # The counter is in the file only once an entry is.
        self.files[-1][:HEADER_SIZE] = HEADER.struct.build({**self.header, "next_entry_number": 0})


def _entries(puts: list[Put], *, ends_without: bool = False) -> IndexEntries:
    columns = list(zip(*puts, strict=True)) or [(), (), ()]
    return IndexEntries(
        np.array(columns[0], np.int32), np.array(columns[1], np.int64), np.array(columns[2], np.int64), ends_without
    )


def _clock() -> Callable[[], int]:
    return lambda: 1_700_000_000_000  # it stands still: names must differ all the same


def _contents(sink: MemorySink) -> list[bytes]:
    return [bytes(content) for _, content in sorted(sink.files.items())]


@st.composite
def _puts(draw: st.DrawFn) -> list[Put]:
    puts: list[Put] = []
    physical_offset, stamp = draw(st.integers(0, 500)), draw(st.sampled_from([-5, 0, 1, 1_700_000_000_000]))
    for _ in range(draw(st.integers(0, 40))):
        puts.append((draw(st.integers(0, 12)), physical_offset, stamp))
        physical_offset = max(0, physical_offset + draw(st.sampled_from([0, 100, 100, 200, -100])))
        stamp += draw(st.sampled_from([0, 1, 999, 1000, 5000, -3000, 1 << 42]))
    return puts


@given(puts=_puts(), cuts=st.lists(st.integers(0, 40)), ends_without=st.booleans(), oldest=st.booleans())
def test_files_are_those_of_one_entry_at_a_time(
    puts: list[Put], cuts: list[int], *, ends_without: bool, oldest: bool
) -> None:
    rules = rules_for("4.4.0") if oldest else RULES
    naive = NaiveIndex(counts_used=not oldest)
    for put in puts:
        naive.put(put)
    if ends_without:
        naive.make_room()
    sink = MemorySink()
    writer = IndexWriter(sink, SLOTS, ENTRIES, rules, _clock())
    bounds = sorted({0, len(puts), *(cut for cut in cuts if cut < len(puts))})
    for start, stop in pairwise(bounds):
        writer.put(_entries(puts[start:stop]))
    writer.put(_entries([], ends_without=ends_without))
    writer.finish(clean=False)
    assert _contents(sink) == [bytes(content) for content in naive.files]


@given(puts=_puts(), cut=st.integers(0, 40))
def test_a_file_on_the_disk_is_gone_on_with(puts: list[Put], cut: int) -> None:
    puts = [(key_hash, number * 100, stamp) for number, (key_hash, _, stamp) in enumerate(puts)]
    whole, sink = MemorySink(), MemorySink()
    writer = IndexWriter(whole, SLOTS, ENTRIES, RULES, _clock())
    writer.put(_entries(puts))
    writer.finish(clean=True)
    writer = IndexWriter(sink, SLOTS, ENTRIES, RULES, _clock())
    writer.put(_entries(puts[:cut]))
    writer.finish(clean=True)
    paths = sorted(sink.files)
    current = read_index_file(paths[-1], BytesSource("", bytes(sink.files[paths[-1]])), SLOTS) if paths else None
    writer = IndexWriter(sink, SLOTS, ENTRIES, RULES, lambda: 1_800_000_000_000, current)
    writer.put(_entries(puts[cut:]))
    writer.finish(clean=True)
    assert _contents(sink) == _contents(whole)


def test_a_full_file_names_its_last_time_for_the_checkpoint() -> None:
    writer = IndexWriter(MemorySink(), SLOTS, ENTRIES, RULES, _clock())
    times = []
    for number in range(ENTRIES):
        writer.put(_entries([(1, number, 1000 + number)]))
        times.append(writer.full_timestamp_ms)
    assert times == [None] * (ENTRIES - 1) + [1000 + ENTRIES - 2]
    assert len(writer.full_paths) == 1


def test_an_empty_file_is_counted_only_by_a_clean_stop_that_flushes() -> None:
    for version, clean, expected in (("5.5.0", True, 1), ("5.5.0", False, 0), ("4.9.7", True, 0)):
        sink = MemorySink()
        writer = IndexWriter(sink, SLOTS, ENTRIES, rules_for(version), _clock())
        writer.put(_entries([], ends_without=True))
        writer.finish(clean=clean)
        (content,) = sink.files.values()
        assert HEADER.struct.parse(bytes(content)).next_entry_number == expected


def test_a_slot_that_names_a_later_entry_counts_as_empty() -> None:
    content = bytearray(entry_position(ENTRIES, SLOTS))
    content[slot_position(1) : slot_position(2)] = (6).to_bytes(4, "big")
    sink = MemorySink()
    sink.files["index/20200101000000000"] = content
    current = read_index_file("index/20200101000000000", BytesSource("", bytes(content)), SLOTS)
    writer = IndexWriter(sink, SLOTS, ENTRIES, RULES, _clock(), current)
    writer.put(_entries([(2, 0, 1), (1, 100, 1), (1, 200, 1)]))
    writer.finish(clean=True)
    entries = np.frombuffer(bytes(content), ENTRY.dtype, 3, entry_position(1, SLOTS))
    assert entries["previous_entry"].tolist() == [0, 0, 2]


def test_a_short_file_is_not_gone_on_with() -> None:
    with pytest.raises(UnreadableError, match="slots"):
        read_index_file("index/1", BytesSource("", bytes(50)), SLOTS)


def test_names_are_times_of_seventeen_digits() -> None:
    name = creation_name(1_700_000_000_007)
    assert len(name) == 17
    assert name.isdigit()
    assert name.endswith("007")


def test_a_file_is_named_behind_the_one_before_though_clocks_go_back() -> None:
    time_ms = 1_700_000_000_007
    path = path_behind("", time_ms)
    assert path_behind(path, time_ms + 1) == f"index/{creation_name(time_ms + 1)}"
    assert path_behind(path, time_ms) == path_behind(path, time_ms - 3_600_000) == f"{path[:-1]}8"


@given(
    texts=st.lists(
        st.one_of(
            st.text(max_size=40).map(str.encode),
            st.binary(max_size=20),
            st.integers(COLUMNS_MAX - 2, COLUMNS_MAX + 2).map(lambda length: b"k" * length),
        )
    )
)
def test_hashes_are_javas(texts: list[bytes]) -> None:
    buffer = np.frombuffer(b"".join(texts), np.uint8)
    lengths = np.array([len(text) for text in texts], np.int64)
    hashes, powers = text_hashes(buffer, np.cumsum(lengths) - lengths, lengths)
    decoded = [decode_java_utf8(text) for text in texts]
    assert hashes.tolist() == [java_hash(text) & 0xFFFFFFFF for text in decoded]
    assert powers.tolist() == [pow(31, java_length(text), 1 << 32) for text in decoded]
