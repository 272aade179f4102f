"""The compiled loops over index entries: those that records should have, and those that lie in a file."""

# The compiler infers the types of what it compiles; annotations would say less, and not be checked against it.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"
# ruff: noqa: ANN001, ANN201
from __future__ import annotations

from numpy import int32, int64, uint8, uint32, uint64

from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.index import ENTRY, ENTRY_SIZE
from rmqtool.scan.kernels.jit import (
    BYTES,
    DIGESTS,
    FLAG,
    FLAGS,
    INT_TABLE,
    INTS,
    KEY,
    LONG,
    LONGS,
    ROWS,
    WORDS,
    compiled,
    int_at,
    kernel,
    long_at,
)
from rmqtool.scan.rules import Verdict

GOOD, BLANK = int(Verdict.GOOD), commitlog.MAGIC_BLANK
TRANSACTION, ROLLBACK = system_flag.TRANSACTION_MASK, system_flag.TRANSACTION_ROLLBACK
SPACE = uint8(0x20)
INT_MIN, INT_MAX = int32(-(1 << 31)), int64((1 << 31) - 1)
FACTOR, FINISH = uint64(0x9FB21C651E98DF25), uint64(0xD6E8FEB86659FD93)
TWO, THREE, FOUR = uint32(31**2), uint32(31**3), uint32(31**4)
AT_HASH, AT_OFFSET = uint64(ENTRY.position("key_hash")), uint64(ENTRY.position("physical_offset"))
AT_TIME, AT_PREVIOUS = uint64(ENTRY.position("time_delta_seconds")), uint64(ENTRY.position("previous_entry"))


@compiled
def java_hash_of(buffer, at, length, value):
    """Java's hash of an ASCII text, continued from that of the text before it; and all its bytes together.

    Four bytes at a time, for each multiplication waits for the one before.
    """
    seen = uint8(0)
    fours = length >> 2
    for _ in range(fours):
        a, b, c, d = buffer[at], buffer[at + uint64(1)], buffer[at + uint64(2)], buffer[at + uint64(3)]
        seen |= a | b | c | d
        four = (uint32(a) * THREE + uint32(b) * TWO) + (uint32(c) * uint32(31) + uint32(d))
        value = uint32(value * FOUR + four)
        at += uint64(4)
    for k in range(length - (fours << 2)):
        unit = buffer[at + uint64(k)]
        seen |= unit
        value = uint32(value * uint32(31) + uint32(unit))
    return value, seen


@compiled
def key_hash_of(value):
    """Java's abs of an int, where the smallest number counts as 0."""
    number = int32(value)
    if number >= 0:
        return number
    return int32(0) if number == INT_MIN else int32(-number)


@kernel(BYTES, LONG, ROWS, WORDS, WORDS, FLAG, INTS, INTS, LONGS, LONGS)
def key_entries(
    buffer, base, rows, key_prefixes, tag_prefixes, with_tags, hashes, numbers, physical_offsets, times
):  # fmt: skip
    """The index entries of all good messages among the rows, in the broker's order: unique key, keys, tags.

    `base` is the physical offset of the buffer's first byte. `hashes`, `numbers`, `physical_offsets` and `times` take
    the hash of each, its row, and that row's place and store time.
    The number of entries, and whether the last message has none; -1 where a text is not ASCII, or properties do not lie
    in the buffer.
    """
    count, seen, ends_without = 0, uint8(0), False
    for number in range(rows.size):
        row = rows[number]
        if row.verdict != GOOD or row.magic == BLANK:
            continue
        ends_without = True
        if row.sys_flag & TRANSACTION == ROLLBACK:
            continue
        behind = row.physical_offset + row.size - base
        if behind < row.properties_length or behind > buffer.size:
            return -1, False
        start = uint64(row.physical_offset - base)
        prefix = key_prefixes[row.topic_number]
        first = count
        if row.unique_key_length > 0:
            value, units = java_hash_of(buffer, start + uint64(row.unique_key_position), row.unique_key_length, prefix)
            seen |= units
            hashes[count] = key_hash_of(value)
            count += 1
        at = start + uint64(row.keys_position)
        value, length = prefix, 0
        for k in range(max(0, row.keys_length)):
            unit = buffer[at + uint64(k)]
            if unit != SPACE:
                seen |= unit
                value = uint32(value * uint32(31) + uint32(unit))
                length += 1
            elif length:
                hashes[count] = key_hash_of(value)
                count += 1
                value, length = prefix, 0
        if length:
            hashes[count] = key_hash_of(value)
            count += 1
        if with_tags and row.tags_length > 0:
            value, units = java_hash_of(
                buffer, start + uint64(row.tags_position), row.tags_length, tag_prefixes[row.topic_number]
            )
            seen |= units
            hashes[count] = key_hash_of(value)
            count += 1
        for entry in range(first, count):
            numbers[entry] = number
            physical_offsets[entry] = row.physical_offset
            times[entry] = row.store_timestamp_ms
            ends_without = False
    return (-1, False) if seen >= 0x80 else (count, ends_without)


@kernel(INTS, LONGS, LONGS, LONG, LONGS, INTS, LONG, FLAGS, INT_TABLE)
def enter_entries(hashes, physical_offsets, times, first_number, begins, slots, page_slots, changed_pages, words):
    """Enter entries into the slots: `words` takes the five words of each; how many found their slot empty.

    `begins` are the times from which the first entry and all others count. A slot that names an entry which is not
    written yet is taken for empty.
    """
    # Slots lie in no cache. A loop that does nothing else lets the processor wait for many of them at a time.
    for index in range(hashes.size):
        slot = hashes[index] % int32(slots.size)
        words[index, 4] = slots[slot]
        slots[slot] = first_number + index
    for index in range(hashes.size):
        changed_pages[hashes[index] % int32(slots.size) // int32(page_slots)] = True
    newly_used = 0
    begin = begins[0]
    for index in range(hashes.size):
        if words[index, 4] <= 0 or words[index, 4] > first_number + index:
            words[index, 4] = 0
            newly_used += 1
        delta = min(max(int64(0), (times[index] - begin) // 1000), INT_MAX) if begin > 0 else int64(0)
        words[index, 0] = hashes[index]
        words[index, 1] = physical_offsets[index] >> 32
        words[index, 2] = physical_offsets[index]
        words[index, 3] = delta
        begin = begins[1]
    return newly_used


@compiled
def spread(state):
    """A number of 64 bits spread over all of them."""
    state = (state ^ (state >> uint64(32))) * FACTOR
    state = (state ^ (state >> uint64(29))) * FINISH
    return state ^ (state >> uint64(32))


@compiled
def entry_value(first_key, second_key, number, key_hash, physical_offset, delta):
    """Share of an entry in the sum of a file: unpredictable without the keys."""
    state = spread(uint64(physical_offset) + first_key)
    state = spread(state ^ ((uint64(uint32(key_hash)) << uint64(32)) | uint64(uint32(delta))))
    return spread(state + uint64(number) * FACTOR + second_key)


@kernel(KEY, LONG, LONG, INTS, LONGS, LONGS)
def expected_sum(key, first_number, begin_timestamp_ms, hashes, physical_offsets, times):
    """The sum of the entries that are expected, of which the first has this number; see `entry_slots`."""
    first_key, second_key, total = key[0], key[1], uint64(0)
    for index in range(hashes.size):
        delta = min(max(int64(0), (times[index] - begin_timestamp_ms) // 1000), INT_MAX)
        number = first_number + index
        total += entry_value(first_key, second_key, number, hashes[index], physical_offsets[index], int32(delta))
    return total


@kernel(BYTES, LONG, LONG, INTS, LONGS, KEY, DIGESTS, LONG)
def entry_slots(raw, first_number, slot_count, slots, physical_offsets, key, sums, step):
    """Slot and record position of each entry of a file that begins in `raw`, from the entry alone.

    `sums[k]` takes the sum of all entries below number k * `step`. Returns how many hold a negative number.
    """
    first_key, second_key, negative, begin = key[0], key[1], 0, 0
    while begin < slots.size:
        part = (first_number + begin) // step
        if (first_number + begin) % step == 0:
            sums[part + 1] = sums[part]
        stop = min(slots.size, (part + 1) * step - first_number)
        total = uint64(0)
        for index in range(begin, stop):
            entry = uint64(index * ENTRY_SIZE)
            key_hash, delta = int_at(raw, entry + AT_HASH), int_at(raw, entry + AT_TIME)
            # Without a sign it is divided in half the time.
            without_sign = int32(uint32(key_hash) % uint32(slot_count))
            slots[index] = without_sign if key_hash >= 0 else int32(key_hash % int32(slot_count))
            physical_offset = long_at(raw, entry + AT_OFFSET)
            physical_offsets[index] = physical_offset
            negative += key_hash < 0 or delta < 0
            total += entry_value(first_key, second_key, first_number + index, key_hash, physical_offset, delta)
        sums[part + 1] += total
        begin = stop
    return negative


@kernel(BYTES, LONG, INTS, INTS)
def slot_chains(raw, first_number, latest, slots):
    """Where the entries that begin in `raw` lead to, which replaces their slots: the newest older one of the slot.

    `latest` holds the newest entry of every slot, and is brought up to date. How many entries lead elsewhere.
    """
    # Slots lie in no cache. A loop that does nothing else lets the processor wait for many of them at a time.
    wrong = 0
    for index in range(slots.size):
        slot = slots[index]
        previous = latest[slot]
        latest[slot] = first_number + index
        slots[index] = previous
        wrong += previous != int_at(raw, uint64(index * ENTRY_SIZE) + AT_PREVIOUS)
    return wrong


@kernel(BYTES, LONG, LONG, LONG, LONG, INTS, LONGS, LONGS, LONG)
def entries_met(raw, first_number, begin, end, begin_timestamp_ms, hashes, physical_offsets, times, at):
    """Number after the last expected entry that the entries in `raw` which point into [begin, end) meet in order.

    They are met from `at` on; -1 where one is another than expected. `first_number` is that of the first in `raw`,
    `begin_timestamp_ms` the file's; the time of a file's entry 1 goes by the file before, and is not compared.
    """
    for index in range(raw.size // ENTRY_SIZE):
        entry = uint64(index * ENTRY_SIZE)
        physical_offset = long_at(raw, entry + AT_OFFSET)
        if physical_offset < begin or physical_offset >= end:
            continue
        if at >= hashes.size or physical_offset != physical_offsets[at]:
            return -1
        if int_at(raw, entry + AT_HASH) != hashes[at]:
            return -1
        if first_number + index != 1:
            delta = min(max(int64(0), (times[at] - begin_timestamp_ms) // 1000), INT_MAX)
            if int64(int_at(raw, entry + AT_TIME)) != delta:
                return -1
        at += 1
    return at
