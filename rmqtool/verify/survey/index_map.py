"""Looks at an index file alone: header, chains and slots, and where its entries point to.

The order in which entries were put decides every chain: entry n leads to the newest older entry of its slot, and the
slot to its newest. So the whole file is told from its hashes, which takes one pass and the slots in memory. Long runs
of entries are compared by keyed sums, without being read again: each entry adds a number that is made of all that it
says, with a key that nobody knew when the file was written: other entries have the same sum by chance of 1 in 2^64.
Broker: `IndexFile#putKey`, `IndexHeader`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from secrets import token_bytes
from typing import Any, Final, NamedTuple

import numpy as np

from rmqtool.engine.dispatch.index_entries import KERNEL
from rmqtool.errors import UnreadableError
from rmqtool.findings.account import Account
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import finding
from rmqtool.formats.index import ENTRY, ENTRY_SIZE, HEADER, HEADER_SIZE, SLOT_SIZE, entry_position
from rmqtool.memory import THREAD_BYTES, memory_budget
from rmqtool.scan.compiled import is_worth, load_kernel
from rmqtool.scan.runner import read_ahead
from rmqtool.store.source import ByteSource, read_salvaging
from rmqtool.store.view import Entry
from rmqtool.verify.survey.queue_map import SAMPLE_EVERY, Array, OffsetRuns, Open, RunsBuilder

_MASK: Final = (1 << 64) - 1


class SummedEntries(NamedTuple):
    """Entries of which only the sum is at hand."""

    entry_count: int
    total: int


@dataclass(frozen=True)
class EntrySums:
    """The sums of one file; `totals` are of all entries below each multiple of `SAMPLE_EVERY`."""

    key: Array
    totals: Array

    @classmethod
    def of(cls, entry_count: int) -> EntrySums:
        """For a file of so many entries, of which none has been added."""
        return cls(np.frombuffer(token_bytes(16), np.uint64), np.zeros(entry_count // SAMPLE_EVERY + 2, np.uint64))

    def between(self, first: int, stop: int) -> SummedEntries:
        """Entries [first, stop), both multiples of `SAMPLE_EVERY`."""
        low, high = (int(self.totals[number // SAMPLE_EVERY]) for number in (first, stop))
        return SummedEntries(stop - first, high - low & _MASK)


BLOCK_ENTRIES: Final = 1 << 17
"""With intermediate values, about as much as a core keeps in its cache."""
BLOCK_ENTRY_BYTES: Final = 64
"""Memory for an entry and its intermediate values while its block is checked."""
SLOTS_AT_A_TIME: Final = 1 << 20
COMPILED_FROM_ENTRIES: Final = 1 << 20
"""Entries of a file from which loading the compiled loop pays."""
FINDINGS_MAX: Final = 100
"""Findings of one kind in one file; more of them are said in one."""
_DTYPE: Final = ENTRY.dtype


@dataclass(frozen=True)
class IndexMap:
    """One index file; entries are 1 to `count`, and `is_whole` tells that its header says so too."""

    path: str
    slot_count: int
    count: int
    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_physical_offset: int
    end_physical_offset: int
    entries: OffsetRuns
    sums: EntrySums | None = None
    is_whole: bool = True

    @property
    def is_zero(self) -> bool:
        """True if nothing was ever entered, and no earlier file handed anything on."""
        return not (self.count or self.begin_timestamp_ms or self.end_timestamp_ms or self.end_physical_offset)

    def position(self, number: int) -> int:
        return entry_position(number, self.slot_count)

    def parts(self, open_file: Open, begin: int, end: int) -> Iterator[tuple[int, bytearray | SummedEntries]]:
        """First number and bytes of ranges of entries, which together hold all that point into [begin, end).

        Of what needs not to be read again there is the sum alone.
        """
        ranges = self.entries.ranges(begin, end)
        inner = self.entries.inner(begin, end) if self.sums is not None and len(ranges) == 1 else None
        if self.sums is None or inner is None:
            yield from self._read(open_file, ranges)
            return
        (low, high), (first, stop) = ranges[0], inner
        yield from self._read(open_file, [(low, first)])
        yield first, self.sums.between(first, stop)
        yield from self._read(open_file, [(stop, high)])

    def has_sum(self, summed: SummedEntries, first_number: int, expected: Sequence[Array]) -> bool:
        """True if expected entries (hashes, physical offsets, times) are those of a part, of which only the sum is
        known.
        """
        assert self.sums is not None, "a part was summed"
        kernel = load_kernel(KERNEL)
        total = kernel.expected_sum(self.sums.key, first_number, self.begin_timestamp_ms, *expected)
        return int(total) == summed.total

    def _read(self, open_file: Open, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, bytearray]]:
        if not ranges:
            return
        try:
            source = open_file(self.path)
        except UnreadableError:
            return
        try:
            for low, high in ranges:
                buffer = bytearray((high - low) * ENTRY_SIZE)
                read_salvaging(source, self.position(low), memoryview(buffer))
                yield low, buffer
        finally:
            source.close()

    def pointing_into(self, open_file: Open, begin: int, end: int) -> tuple[Array, Array]:
        """Numbers and entries, of those that point into [begin, end)."""
        numbers, entries = [np.empty(0, np.int64)], [np.empty(0, _DTYPE)]
        for low, buffer in self._read(open_file, self.entries.ranges(begin, end)):
            block_entries = np.frombuffer(buffer, _DTYPE)
            places = np.arange(low, low + len(block_entries))
            inside = self.entries.chosen(places, block_entries["physical_offset"].astype(np.int64), begin, end)
            numbers.append(places[inside])
            entries.append(block_entries[inside])
        return np.concatenate(numbers), np.concatenate(entries)

    def around(self, open_file: Open, number: int) -> tuple[list[int], list[int]]:
        """Physical offsets of up to two entries before an entry, and of up to two after it."""
        low, high = max(1, number - 2), min(self.count, number + 2) + 1
        offsets: list[int] = []
        for _, buffer in self._read(open_file, [(low, high)]):
            offsets = np.frombuffer(buffer, _DTYPE)["physical_offset"].tolist()
        return offsets[: number - low], offsets[number - low + 1 :]


@dataclass
class IndexPass:
    """The pass over one file."""

    entry: Entry
    slot_count: int
    full_room: int | None
    """Entries for which a full file has room, the unused entry 0 included; None where nothing tells."""
    account: Account
    findings: list[Finding] = field(default_factory=list)
    answers: dict[str, tuple[Hashable, object]] = field(default_factory=dict)

    def run(self, open_file: Open) -> IndexMap | None:
        """Check the file; None where nothing of it can be used."""
        account = self.account.file(self.entry.path, self.entry.size)
        if self.entry.size < self._entries_at + ENTRY_SIZE:
            account.reported += self.entry.size
            text = f"{self.entry.size} bytes, which is less than the header and {self.slot_count} slots have"
            self._say("index.bad-header", text, length=self.entry.size)
            return None
        try:
            source = open_file(self.entry.path)
        except UnreadableError as error:
            account.reported += self.entry.size
            self._say("store.unreadable", str(error))
            return None
        try:
            size = self._entries_at + self._room * ENTRY_SIZE
            if self.entry.size != size:
                text = f"{self.entry.size} bytes, a full file has {size}"
                if self.full_room is None:
                    text = f"{self.entry.size} bytes, which fits no number of entries with {self.slot_count} slots"
                self._say(
                    "index.wrong-file-size",
                    text,
                    length=self.entry.size,
                    expected=str(size) if self.full_room else None,
                    found=str(self.entry.size),
                )
            index_map = self._check(source)
        finally:
            source.close()
        used = entry_position(index_map.count + 1, self.slot_count)
        account.checked += min(used, self.entry.size)
        account.zero_tail += max(0, self.entry.size - used)
        return index_map

    @property
    def _room(self) -> int:
        """Entries for which the file has room to a broker, which uses no more of a long file than a full one has."""
        return self.full_room or -(-(self.entry.size - self._entries_at) // ENTRY_SIZE)

    @cached_property
    def _entries_at(self) -> int:
        """File position of entry 0, which is never used."""
        return entry_position(0, self.slot_count)

    def _check(self, source: ByteSource) -> IndexMap:
        header = np.frombuffer(self._read(source, 0, HEADER_SIZE), HEADER.dtype)[0]
        following = int(header["next_entry_number"])
        capacity = min(self._room, (self.entry.size - self._entries_at) // ENTRY_SIZE)
        counted = self._last_entry(source, capacity)
        # A broker lengthens a short file with zeros, so only the entries that were cut off are lost.
        is_cut = capacity < following <= self._room
        count = counted
        if 1 < following <= counted:
            # The header's number counts if it names that entry's record too.
            raw = self._read(source, entry_position(following - 1, self.slot_count), ENTRY_SIZE)
            if np.frombuffer(raw, _DTYPE)[0]["physical_offset"] == header["end_physical_offset"]:
                count = following - 1
        if (following - 1 != count and (counted or is_cut)) or not 0 <= following <= self._room:
            self._say(
                "index.bad-header",
                f"its next entry number is {following}, but its entries end with {count}",
                file_position=HEADER.position("next_entry_number"),
                expected=str(count + 1),
                found=str(following),
            )
        elif counted > count:
            self._say(
                "index.bad-header",
                f"bytes that are not an entry after entry {count}, the last one",
                file_position=entry_position(count + 1, self.slot_count),
                length=(counted - count) * ENTRY_SIZE,
            )
        # In the order of the file, if there is memory for the slots: who reads a built file so knows its digest.
        size = self._entries_at + ENTRY_SIZE - HEADER_SIZE  # with entry 0
        has_room = not is_cut and memory_budget().share(size, 8) == size
        slots = self._read(source, HEADER_SIZE, size) if has_room else None
        latest, runs, sums = self._chains(source, count)
        if not is_cut:
            self._slots(source, slots, latest)
            self._header(source, header, count, int(np.count_nonzero(latest)))
        return IndexMap(
            self.entry.path,
            self.slot_count,
            count,
            int(header["begin_timestamp_ms"]),
            int(header["end_timestamp_ms"]),
            int(header["begin_physical_offset"]),
            int(header["end_physical_offset"]),
            runs,
            sums,
            is_whole=following - 1 == count == counted,
        )

    def _last_entry(self, source: ByteSource, capacity: int) -> int:
        """Number of the last entry that is not zeros; no record makes an entry of zeros."""
        start, end = self._entries_at, self._entries_at + capacity * ENTRY_SIZE
        longest = 1 << 12
        for low, high in reversed(list(source.extents(start, end))):
            at = high
            while at > low:
                step, longest = min(longest, at - low), min(2 * longest, 1 << 20)
                stripped = self._read(source, at - step, step).rstrip(b"\0")
                if stripped:
                    return (at - step + len(stripped) - 1 - start) // ENTRY_SIZE
                at -= step
        return 0

    def _chains(self, source: ByteSource, count: int) -> tuple[Array, OffsetRuns, EntrySums | None]:
        """Compare every entry's previous one with the one its hash requires; return the newest entry of each slot."""
        latest = np.zeros(self.slot_count, np.int32)
        runs = RunsBuilder(may_repeat=True)
        sums = EntrySums.of(count) if is_worth(count, COMPILED_FROM_ENTRIES) else None
        wrong = 0
        step = memory_budget().share(BLOCK_ENTRIES * BLOCK_ENTRY_BYTES, 4) // BLOCK_ENTRY_BYTES

        def read_blocks() -> Iterator[EntryBlock]:
            for low in range(1, count + 1, step):
                size = (min(low + step, count + 1) - low) * ENTRY_SIZE
                raw = self._read(source, entry_position(low, self.slot_count), size)
                yield entry_block(low, raw, self.slot_count, sums)

        blocks = read_blocks()
        follow = plain_chains if sums is None else compiled_chains
        for block in blocks if sums is None or memory_budget().threads(2, THREAD_BYTES) == 1 else read_ahead(blocks):
            chains = follow(block, latest)
            runs.take(block.first_number, block.physical_offsets)
            for index in chains.wrong.tolist():
                wrong += 1
                if wrong <= FINDINGS_MAX:
                    entry = np.frombuffer(block.raw, _DTYPE)[index]
                    self._chain(block.first_number + index, int(chains.expected[index]), entry)
        if wrong > FINDINGS_MAX:
            rest = wrong - FINDINGS_MAX
            self._say("index.wrong-slot", f"{rest} more entries in wrong chains", count=rest)
        return latest, runs.finish(), sums

    def _chain(self, number: int, expected: int, entry: Any) -> None:
        position, previous = entry_position(number, self.slot_count), int(entry["previous_entry"])
        details = {
            "file_position": position,
            "length": ENTRY_SIZE,
            "physical_offset": int(entry["physical_offset"]),
            "expected": str(expected),
            "found": str(previous),
        }
        if entry["key_hash"] < 0 or entry["time_delta_seconds"] < 0:
            self._say("index.bad-entry", f"entry {number} has a negative hash or time", **details)
        elif previous >= number:
            self._say("index.chain-loop", f"entry {number} leads to entry {previous}, which is not older", **details)
        else:
            self._say("index.wrong-slot", f"entry {number} leads to entry {previous} and not to {expected}", **details)

    def _slots(self, source: ByteSource, known: bytearray | None, latest: Array) -> None:
        """Compare the slots, which are read if they are not known yet, with the newest entry of each."""
        wrong = 0
        unreadable: list[tuple[int, int]] = []
        for low in range(0, self.slot_count, SLOTS_AT_A_TIME):
            high = min(low + SLOTS_AT_A_TIME, self.slot_count)
            raw = bytearray((high - low) * SLOT_SIZE) if known is None else known[SLOT_SIZE * low : SLOT_SIZE * high]
            ranges = read_salvaging(source, HEADER_SIZE + SLOT_SIZE * low, memoryview(raw)) if known is None else ()
            for start, end in ranges:
                is_same = unreadable and unreadable[-1][1] == start
                unreadable.append((unreadable.pop()[0] if is_same else start, end))
            slots = np.frombuffer(raw, ">i4")
            for index in np.flatnonzero(slots != latest[low:high]).tolist():
                wrong += 1
                if wrong <= FINDINGS_MAX:
                    expected, actual = int(latest[low + index]), int(slots[index])
                    self._say(
                        "index.wrong-slot",
                        f"slot {low + index} begins with entry {actual} and not with {expected}",
                        file_position=HEADER_SIZE + SLOT_SIZE * (low + index),
                        length=SLOT_SIZE,
                        expected=str(expected),
                        found=str(actual),
                    )
        if wrong > FINDINGS_MAX:
            self._say("index.wrong-slot", f"{wrong - FINDINGS_MAX} more wrong slots", count=wrong - FINDINGS_MAX)
        self._tell_unreadable(unreadable)

    def _header(self, source: ByteSource, header: Any, count: int, used: int) -> None:
        """Compare the header with the first and the last entry; old releases count slots by another rule."""
        if not count:
            return
        first = np.frombuffer(self._read(source, entry_position(1, self.slot_count), ENTRY_SIZE), _DTYPE)[0]
        last = np.frombuffer(self._read(source, entry_position(count, self.slot_count), ENTRY_SIZE), _DTYPE)[0]
        told: dict[str, Sequence[int]] = {
            "begin_physical_offset": (first["physical_offset"],),
            "end_physical_offset": (last["physical_offset"],),
            # Old releases count every entry and one more, and newer ones continue such a file.
            "used_slot_count": range(used, count + 2),
        }
        for name, expected in told.items():
            if int(header[name]) not in expected:
                self._say(
                    "index.bad-header",
                    f"{name} is {int(header[name])}, the entries say {int(expected[0])}",
                    file_position=HEADER.position(name),
                    expected=str(int(expected[0])),
                    found=str(int(header[name])),
                )
        begin, end = int(header["begin_timestamp_ms"]), int(header["end_timestamp_ms"])
        # Times that fall are told by the records (`IndexMatch`). Where those have expired, a clock that was set back
        # explains them.
        if not min(begin, end) > 0:
            self._say(
                "index.bad-header",
                f"by its header its records were stored from {begin} to {end}",
                file_position=HEADER.position("begin_timestamp_ms"),
            )

    def _read(self, source: ByteSource, position: int, length: int) -> bytearray:
        buffer = bytearray(length)
        there = max(0, min(length, source.size - position))
        self._tell_unreadable(read_salvaging(source, position, memoryview(buffer)[:there]))
        return buffer

    def _tell_unreadable(self, ranges: Sequence[tuple[int, int]]) -> None:
        for start, end in ranges:
            text = f"{end - start} bytes cannot be read"
            self._say("store.unreadable", text, file_position=start, length=end - start)

    def _say(self, kind: str, message: str, **details: Any) -> None:
        self.findings.append(finding(kind, self.entry.path, message, **details))


# The chains through the entries of an index file: entry n leads to the newest older entry of its slot.


class EntryBlock(NamedTuple):
    """Entries that lie one after the other, from a number on: slot and place of the record of each, and whether any
    holds a negative hash or time.
    """

    first_number: int
    raw: bytearray
    slots: Array
    physical_offsets: Array
    has_negative: bool


class BlockChains(NamedTuple):
    """Chains of a block: the entry that each should lead to, and the places of those that are wrong, or negative."""

    expected: Array
    wrong: Array


def entry_block(first_number: int, raw: bytearray, slot_count: int, sums: EntrySums | None) -> EntryBlock:
    """Fields of entries alone; with `sums` the compiled kernel reads them, and adds to the sums."""
    entries = np.frombuffer(raw, _DTYPE)
    if sums is None:
        offsets = entries["physical_offset"].astype(np.int64)
        slots = entries["key_hash"].astype(np.int64) % slot_count
        return EntryBlock(first_number, raw, slots, offsets, bool(_are_negative(entries).any()))
    slots, offsets = np.empty(len(entries), np.int32), np.empty(len(entries), np.int64)
    negative = load_kernel(KERNEL).entry_slots(
        np.frombuffer(raw, np.uint8), first_number, slot_count, slots, offsets, sums.key, sums.totals, SAMPLE_EVERY
    )
    return EntryBlock(first_number, raw, slots, offsets, bool(negative))


def plain_chains(block: EntryBlock, latest: Array) -> BlockChains:
    """Follow the chains through a block; `latest`, the newest entry of every slot, is brought up to date."""
    slots = block.slots
    numbers = np.arange(block.first_number, block.first_number + len(slots), dtype=np.int64)
    order = np.argsort(slots, kind="stable")
    in_slot = slots[order]
    begins = np.concatenate([[True], in_slot[1:] != in_slot[:-1]])
    expected = np.empty(len(slots), np.int32)
    before = np.concatenate([[0], numbers[order][:-1]])
    expected[order] = np.where(begins, latest[in_slot], before)
    finishes = np.concatenate([begins[1:], [True]])
    latest[in_slot[finishes]] = numbers[order][finishes]
    return BlockChains(expected, _wrong(block, expected))


def compiled_chains(block: EntryBlock, latest: Array) -> BlockChains:
    """Chains of a block, without the sort that takes most of the time for a full index file; uses the slots up."""
    raw = np.frombuffer(block.raw, np.uint8)
    wrong = load_kernel(KERNEL).slot_chains(raw, block.first_number, latest, block.slots)
    is_right = not (wrong or block.has_negative)
    return BlockChains(block.slots, np.empty(0, np.int64) if is_right else _wrong(block, block.slots))


def _are_negative(entries: Array) -> Array:
    return np.asarray((entries["key_hash"] < 0) | (entries["time_delta_seconds"] < 0))


def _wrong(block: EntryBlock, expected: Array) -> Array:
    entries = np.frombuffer(block.raw, _DTYPE)
    return np.flatnonzero((entries["previous_entry"] != expected) | _are_negative(entries))
