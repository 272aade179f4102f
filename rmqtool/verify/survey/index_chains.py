"""The chains through the entries of an index file: entry n leads to the newest older entry of its slot.

A block of entries is looked at in two steps. The first needs nothing of the blocks before it, so a thread that reads
ahead takes it; the second, whose memory accesses lie in no cache, does nothing else.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from rmqtool.engine.dispatch.index_entries import KERNEL
from rmqtool.formats.index import ENTRY
from rmqtool.scan.compiled import load_kernel
from rmqtool.verify.survey.entry_sums import EntrySums
from rmqtool.verify.survey.queue_map import SAMPLE_EVERY, Array

_DTYPE: Final = ENTRY.dtype


class EntryBlock(NamedTuple):
    """Entries that lie one after the other.

    Attributes:
        first_number: of the first one.
        slots, physical_offsets: of each, its slot and the place of its record.
        has_negative: whether any holds a negative hash or time.
    """

    first_number: int
    raw: bytearray
    slots: Array
    physical_offsets: Array
    has_negative: bool


class BlockChains(NamedTuple):
    """What the chains of a block show.

    Attributes:
        expected: the entry that each should lead to.
        wrong: places in the block of those that lead elsewhere, or hold a negative number.
    """

    expected: Array
    wrong: Array


def entry_block(first_number: int, raw: bytearray, slot_count: int, sums: EntrySums | None) -> EntryBlock:
    """What entries say by themselves; with `sums` the compiled kernel tells it, and adds to them."""
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
    """The same, without the sort that takes most of the time for a full index file; uses the block's slots up."""
    raw = np.frombuffer(block.raw, np.uint8)
    wrong = load_kernel(KERNEL).slot_chains(raw, block.first_number, latest, block.slots)
    is_right = not (wrong or block.has_negative)
    return BlockChains(block.slots, np.empty(0, np.int64) if is_right else _wrong(block, block.slots))


def _are_negative(entries: Array) -> Array:
    return np.asarray((entries["key_hash"] < 0) | (entries["time_delta_seconds"] < 0))


def _wrong(block: EntryBlock, expected: Array) -> Array:
    entries = np.frombuffer(block.raw, _DTYPE)
    return np.flatnonzero((entries["previous_entry"] != expected) | _are_negative(entries))
