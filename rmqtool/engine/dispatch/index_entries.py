"""Index entries of log records: key hashes of thousands of rows at once, in the broker's order.

Broker: `IndexService#buildIndex`, `IndexService#buildKey`, `IndexFile#indexKeyHashMethod`. The text under which a
record is found begins with its topic, so hash(topic + "#" + key) = hash(topic + "#") * 31 ** length(key) + hash(key).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.dispatch.queue_entries import Int32s, Int64s, RowBytes, Rows, batch_bytes
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.formats import system_flag
from rmqtool.formats.index import key_text, tag_text
from rmqtool.formats.java_text import decode_java_utf8, java_hash, java_length
from rmqtool.scan.compiled import is_worth, load_kernel
from rmqtool.scan.row_columns import RowColumns, message_rows
from rmqtool.scan.walk import Batch, KeyHashes

COLUMNS_MAX: Final = 512
"""Bytes of a text up to which it is hashed together with the others, a byte of each at a time."""
COMPILED_FROM_ROWS: Final = 1 << 18
"""Rows from which the compiled kernel is asked; fewer at once come from a small log, for which it is not loaded."""
FEW_TOPICS: Final = 64
"""Topics of which the hashes are looked up for each batch, whichever occur in it."""
KERNEL: Final = "rmqtool.engine.dispatch.index_kernel"
_BASE: Final = 31
_SPACE: Final = 0x20
_WORD: Final = 0xFFFFFFFF

UInt32s = NDArray[np.uint32]


class IndexEntries(NamedTuple):
    """Entries in the order in which they are put, one number per entry in each array.

    `ends_without` tells that the last record has no entry: a broker makes room in a file before it looks for keys.
    """

    key_hashes: Int32s
    physical_offsets: Int64s
    store_timestamps_ms: Int64s
    ends_without: bool


class _Texts(NamedTuple):
    """Texts in a buffer, each with the number of its row."""

    rows: Int64s
    starts: Int64s
    lengths: Int64s


def index_entries(rows: Rows, topics: Sequence[bytes], texts: RowBytes, rules: BrokerRules) -> IndexEntries:
    """The entries of the rows: UNIQ_KEY, each of KEYS, and the tags where the version enters them.

    Args:
        topics: names by the rows' topic numbers.
    """
    return _numbered_entries(rows, topics, texts, rules)[0]


def batch_entries(batch: Batch, rows: Any, rules: BrokerRules) -> IndexEntries:
    """The entries of a batch's rows, or of a part of them; results for all of them are reused."""
    keys = batch.keys
    if (batch.is_noted or isinstance(rows, RowColumns)) and (keys is None or keys.version != rules.version):
        entries, numbers = _numbered_entries(batch.as_array(), batch.topics, batch_bytes(batch), rules)
        keys = batch.keys = KeyHashes(rules.version, entries.key_hashes, numbers)
    if keys is None or keys.version != rules.version:
        return index_entries(rows, batch.topics, batch_bytes(batch), rules)
    all_messages = message_rows(batch.as_array()) if batch.plain is None else batch.plain.rows
    messages = message_rows(rows)
    offsets = all_messages["physical_offset"][keys.rows]
    asked = np.isin(offsets, messages["physical_offset"]) if messages.size < all_messages.size else slice(None)
    hashes, offsets = keys.hashes[asked], offsets[asked]
    times_ms = all_messages["store_timestamp_ms"][keys.rows[asked]]
    ends_without = messages.size > 0 and (not offsets.size or offsets[-1] != messages["physical_offset"][-1])
    return IndexEntries(hashes, offsets, times_ms, bool(ends_without))


def joined_index_entries(parts: Sequence[IndexEntries]) -> IndexEntries:
    """Entries that were told in several parts, in the order of the log."""
    if len(parts) == 1:
        return parts[0]
    hashes, offsets, times_ms, _ = zip(*parts, strict=True)
    return IndexEntries(
        np.concatenate(hashes), np.concatenate(offsets), np.concatenate(times_ms), parts[-1].ends_without
    )


def _numbered_entries(
    rows: Rows, topics: Sequence[bytes], texts: RowBytes, rules: BrokerRules
) -> tuple[IndexEntries, NDArray[Any]]:
    """Entries, and for each the number of its row among those that count."""
    if is_worth(rows.size, COMPILED_FROM_ROWS):
        compiled = _compiled_entries(rows, topics, texts, rules)
        if compiled is not None:
            return compiled
    rows = message_rows(rows)
    transaction = rows["sys_flag"] & system_flag.TRANSACTION_MASK
    entered = np.flatnonzero(transaction != system_flag.TRANSACTION_ROLLBACK)
    starts = rows["physical_offset"] + rows["size"] - rows["properties_length"] - texts.physical_offset
    inside = (starts >= 0) & (starts + rows["properties_length"] <= texts.buffer.size)
    parts = [_hashed(rows, entered[inside[entered]], topics, texts.buffer, texts.physical_offset, rules)]
    for index in entered[~inside[entered]]:
        row = rows[index]
        block = np.frombuffer(texts.properties(row), np.uint8)
        first = int(row["physical_offset"]) + int(row["size"]) - block.size
        parts.append(_hashed(rows, np.array([index]), topics, block, first, rules))
    of_rows = np.concatenate([column for column, _ in parts])
    hashes = np.concatenate([column for _, column in parts])
    if len(parts) > 1:
        order = np.argsort(of_rows, kind="stable")
        of_rows, hashes = of_rows[order], hashes[order]
    ends_without = rows.size > 0 and (of_rows.size == 0 or int(of_rows[-1]) != rows.size - 1)
    offsets, times_ms = rows["physical_offset"][of_rows], rows["store_timestamp_ms"][of_rows]
    return IndexEntries(hashes, offsets, times_ms, ends_without), of_rows.astype(np.int32)


def _compiled_entries(
    rows: Rows, topics: Sequence[bytes], texts: RowBytes, rules: BrokerRules
) -> tuple[IndexEntries, NDArray[Any]] | None:
    """The same by the compiled kernel; None where a text is not ASCII or is outside the buffer."""
    buffer = texts.buffer
    # Other kinds of arrays would each have to be compiled for.
    if not (buffer.flags.writeable and buffer.flags.c_contiguous and rows.flags.c_contiguous and rows.flags.writeable):
        return None
    room = 2 * rows.size + int(((rows["keys_length"].clip(min=0) + 1) // 2).sum())
    hashes, numbers = np.empty((2, room), np.int32)
    offsets, times_ms = np.empty((2, room), np.int64)
    count, ends_without = load_kernel(KERNEL).key_entries(
        buffer, texts.physical_offset, rows, *_prefixes(rows, topics), rules.index_tags, hashes, numbers, offsets,
        times_ms,
    )  # fmt: skip
    if count < 0:
        return None
    return IndexEntries(hashes[:count], offsets[:count], times_ms[:count], ends_without), numbers[:count]


def _hashed(
    rows: Rows,
    chosen: Int64s,
    topics: Sequence[bytes],
    buffer: NDArray[np.uint8],
    physical_offset: int,
    rules: BrokerRules,
) -> tuple[Int64s, Int32s]:
    """Row and key hash of each entry of the chosen rows, whose properties all lie in the buffer."""
    unique = _texts_of("unique_key", rows, chosen, physical_offset)
    keys = _tokens(_texts_of("keys", rows, chosen, physical_offset), buffer)
    kinds = [unique, keys]
    if rules.index_tags:
        kinds.append(_texts_of("tags", rows, chosen, physical_offset))
    of_rows = np.concatenate([kind.rows for kind in kinds])
    hashes, powers = text_hashes(
        buffer, np.concatenate([kind.starts for kind in kinds]), np.concatenate([kind.lengths for kind in kinds])
    )
    key_prefixes, tag_prefixes = _prefixes(rows, topics)
    numbers = rows["topic_number"][of_rows]
    prefixes = key_prefixes[numbers]
    if rules.index_tags:
        tags_from = of_rows.size - kinds[2].rows.size
        prefixes[tags_from:] = tag_prefixes[numbers[tags_from:]]
    whole = np.abs((prefixes * powers + hashes).view(np.int32).astype(np.int64))
    whole[whole == 1 << 31] = 0  # Java's abs leaves the smallest number negative, which then counts as 0
    # Each kind is in order of the rows already; put together they stand kind after kind.
    order = np.argsort(of_rows.astype(np.uint16) if rows.size <= 1 << 16 else of_rows, kind="stable")
    return of_rows[order], whole.astype(np.int32)[order]


def _texts_of(column: str, rows: Rows, chosen: Int64s, physical_offset: int) -> _Texts:
    lengths = rows[f"{column}_length"][chosen]
    there = lengths > 0
    present_rows = chosen if there.all() else chosen[there]
    starts = rows["physical_offset"][present_rows] + rows[f"{column}_position"][present_rows] - physical_offset
    return _Texts(present_rows, starts, lengths[there].astype(np.int64))


def _tokens(texts: _Texts, buffer: NDArray[np.uint8]) -> _Texts:
    """The texts split at single spaces, empty tokens left out (`String.split(" ")`)."""
    total = int(texts.lengths.sum())
    if not total:
        return texts
    ends = np.cumsum(texts.lengths)
    places = np.arange(total) + np.repeat(texts.starts - (ends - texts.lengths), texts.lengths)
    inside = buffer[places] != _SPACE
    if inside.all():
        return texts
    begins = inside.copy()
    begins[1:] &= ~inside[:-1]
    begins[ends[:-1]] = inside[ends[:-1]]
    finishes = inside.copy()
    finishes[:-1] &= ~inside[1:]
    finishes[ends - 1] = inside[ends - 1]
    first, last = np.flatnonzero(begins), np.flatnonzero(finishes)
    of_texts = np.searchsorted(ends, first, side="right")
    return _Texts(texts.rows[of_texts], places[first], last - first + 1)


def _prefixes(rows: Rows, topics: Sequence[bytes]) -> tuple[UInt32s, UInt32s]:
    """Hashes of the texts before the key, and before the tags, by topic number; of many topics those that occur.

    A row that is no message says topic 0, which there may not be.
    """
    keys, tags = np.zeros(len(topics), np.uint32), np.zeros(len(topics), np.uint32)
    numbers = rows["topic_number"]
    if len(topics) <= FEW_TOPICS:
        occurring = np.arange(len(topics))
    elif len(topics) > len(numbers):  # a store of a million topics: nothing is done for each of them in every batch
        has_text = (rows["unique_key_length"] > 0) | (rows["keys_length"] > 0) | (rows["tags_length"] > 0)
        occurring = np.unique(numbers[has_text])
        occurring = occurring[occurring < len(topics)]
    else:
        occurring = np.flatnonzero(np.bincount(numbers)[: len(topics)])
    for number in occurring.tolist():
        keys[number], tags[number] = _prefix_hashes(topics[number])
    return keys, tags


@lru_cache(maxsize=1 << 16)
def _prefix_hashes(topic: bytes) -> tuple[int, int]:
    name = decode_java_utf8(topic)
    return java_hash(key_text(name, "")) & _WORD, java_hash(tag_text(name, "")) & _WORD


def text_hashes(buffer: NDArray[np.uint8], starts: Int64s, lengths: Int64s) -> tuple[UInt32s, UInt32s]:
    """Java hashes of texts in a buffer, and 31 to the power of their lengths in UTF-16 units, both modulo 2 ** 32.

    ASCII texts are hashed a column at a time: the first byte of each, then the second. All others one by one.
    """
    columns_of = np.minimum(lengths, COLUMNS_MAX)
    order = np.argsort(-columns_of.astype(np.int16), kind="stable")
    at, longest_first = starts[order], lengths[order]
    # How many texts have a byte in column i: those before the first one that is too short.
    counts = np.searchsorted(-longest_first.clip(max=COLUMNS_MAX), -np.arange(1, COLUMNS_MAX + 1), side="right")
    sums, seen = np.zeros(order.size, np.uint32), np.zeros(order.size, np.uint8)
    for count in counts.tolist():
        if not count:
            break
        units = buffer[at[:count]]
        seen[:count] |= units
        sums[:count] *= np.uint32(_BASE)
        sums[:count] += units
        at[:count] += 1
    hashes = np.empty_like(sums)
    hashes[order] = sums
    powers = _POWERS[columns_of]
    doubtful = np.flatnonzero((lengths > COLUMNS_MAX) | (seen >= 0x80)[np.argsort(order)])
    for index in doubtful.tolist():
        start = int(starts[index])
        text = decode_java_utf8(buffer[start : start + int(lengths[index])].tobytes())
        hashes[index] = java_hash(text) & _WORD
        powers[index] = pow(_BASE, java_length(text), 1 << 32)
    return hashes, powers


_POWERS: Final = np.array([pow(_BASE, exponent, 1 << 32) for exponent in range(COLUMNS_MAX + 1)], np.uint32)
