"""Arrow arrays out of ranges of bytes, without a Python object for each: texts, lists of words, maps of properties.

Text is decoded as the broker's virtual machine does it: what is not UTF-8 becomes U+FFFD.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.properties import split_properties
from rmqtool.scan import compiled

Bytes = NDArray[np.uint8]
Numbers = NDArray[Any]

MAP_TYPE = pa.map_(pa.string(), pa.string())
LIST_TYPE = pa.list_(pa.field("element", pa.string(), nullable=True))
_SPACE = 0x20

_KERNEL: Final = "rmqtool.scan.kernels.text_kernel"


def gathered(pool: Bytes, starts: Numbers, lengths: Numbers, *, fast: bool) -> tuple[Bytes, NDArray[np.int32]]:
    """Ranges of a pool one after the other, and where each begins, with the end of the last; no length is negative.

    Args:
        fast: whether the compiled way is worth its start.
    """
    ends = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    target = np.empty(int(ends[-1]), np.uint8)
    if fast and compiled.is_available():
        compiled.load_kernel(_KERNEL).copy_ranges(pool, starts.astype(np.int64), lengths.astype(np.int64), target)
    else:
        for start, length, at in zip(starts.tolist(), lengths.tolist(), ends.tolist(), strict=False):
            target[at : at + length] = pool[start : start + length]
    return target, ends


def text_array(pool: Bytes, starts: Numbers, lengths: Numbers, *, fast: bool) -> pa.Array:
    """Texts; null where the length is negative."""
    present = lengths >= 0
    data, ends = gathered(pool, starts, np.maximum(lengths, 0), fast=fast)
    validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    return _decoded(data, ends, validity)


def binary_array(pool: Bytes, starts: Numbers, lengths: Numbers, *, fast: bool) -> pa.Array:
    """Bytes as they are."""
    data, ends = gathered(pool, starts, lengths, fast=fast)
    return pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(ends), pa.py_buffer(data)])


def word_lists(pool: Bytes, starts: Numbers, lengths: Numbers, *, fast: bool) -> pa.Array:
    """Lists of the words of texts, which spaces part; empty where there is none."""
    data, ends = gathered(pool, starts, np.maximum(lengths, 0), fast=fast)
    inside = data != _SPACE
    # A word begins where a text begins or a space precedes, and ends likewise.
    edge = np.zeros(data.size + 1, np.bool_)
    edge[ends] = True
    before = np.concatenate(([True], ~inside[:-1]))[: data.size] | edge[:-1]
    behind = np.concatenate((~inside[1:], [True]))[: data.size] | edge[1:]
    begins, stops = np.flatnonzero(inside & before), np.flatnonzero(inside & behind) + 1
    words = text_array(data, begins, stops - begins, fast=fast)
    offsets = np.searchsorted(begins, ends).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), words).cast(LIST_TYPE)


def property_maps(pool: Bytes, starts: Numbers, lengths: Numbers, *, fast: bool) -> pa.Array:
    """Maps of the properties in property blocks, as brokers from 4.9.1 on take them apart."""
    if not fast or not compiled.is_available():
        return _maps_one_by_one(pool, starts, lengths)
    starts, lengths = starts.astype(np.int64), lengths.astype(np.int64)
    room = int((lengths // 4 + 1).sum())
    names, name_lengths, values, value_lengths = np.empty((4, room), np.int64)
    ends = np.zeros(len(starts) + 1, np.int32)
    compiled.load_kernel(_KERNEL).property_ranges(
        pool, starts, lengths, ends[1:], names, name_lengths, values, value_lengths
    )
    count = int(ends[-1])
    keys = text_array(pool, names[:count], name_lengths[:count], fast=True)
    items = text_array(pool, values[:count], value_lengths[:count], fast=True)
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    if data.size and data.max() >= 0x80 and pc.any(pc.match_substring(keys, "\ufffd")).as_py():
        return _maps_one_by_one(pool, starts, lengths)  # names that differ in their bytes may be one as text
    return pa.MapArray.from_arrays(pa.array(ends), keys, items).cast(MAP_TYPE)


def _maps_one_by_one(pool: Bytes, starts: Numbers, lengths: Numbers) -> pa.Array:
    blocks = (pool[start : start + length].tobytes() for start, length in zip(starts, lengths, strict=True))
    maps = [
        {decode_java_utf8(name): decode_java_utf8(value) for name, value in split_properties(block)} for block in blocks
    ]
    return pa.array([list(properties.items()) for properties in maps], MAP_TYPE)


def _decoded(data: Bytes, ends: NDArray[np.int32], validity: pa.Buffer | None) -> pa.Array:
    """An array of texts; bytes that are not UTF-8 are replaced, which only then takes a look at each text."""
    count = len(ends) - 1
    array = pa.Array.from_buffers(pa.string(), count, [validity, pa.py_buffer(ends), pa.py_buffer(data)])
    if not data.size or data.max() < 0x80:
        return array
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raw = array.cast(pa.binary()).to_pylist()
        return pa.array([None if one is None else decode_java_utf8(one) for one in raw], pa.string())
    return array


TIME_TYPE: Final = pa.timestamp("us", tz="UTC")
"""Spark's own timestamps: microseconds since 1970 in UTC."""
LAST_MS: Final = 253_402_214_400_000
"""The last day of the year 9999, which has begun nowhere then; Python knows no later time."""


def time_array(timestamps_ms: Numbers) -> pa.Array:
    """Times; null before 1970 and after 9999, which only damage or a program writes: the milliseconds show it."""
    known = (timestamps_ms >= 0) & (timestamps_ms < LAST_MS)
    times = np.where(known, timestamps_ms, 0).astype(np.int64) * 1000
    return pa.array(times, mask=None if known.all() else ~known).cast(TIME_TYPE)
