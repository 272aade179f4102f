"""Results of a scan: one row of numbers for each record, equal from both readers.

Text stays where it is; a row holds its position.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import numpy


class Row(NamedTuple):
    """One record, blank or bad range.

    Positions are bytes from the record's start, lengths are bytes; a text that is not there has length -1.
    """

    physical_offset: int
    """Where it really lies."""
    size: int
    """Bytes up to the next row's start."""
    queue_offset: int
    own_offset: int
    """The physical offset that the record says of itself."""
    born_timestamp_ms: int
    store_timestamp_ms: int
    prepared_transaction_offset: int
    tags_code: int
    """The tags code that dispatch puts into the queue's unit."""
    verdict: int
    """A `rules.Verdict`; of a blank or bad range the fields after `magic` are 0."""
    magic: int
    body_crc: int
    computed_crc: int
    """CRC-32 of the body as it is, top bit cleared; 0 for an empty one."""
    queue_id: int
    flag: int
    sys_flag: int
    reconsume_times: int
    body_length: int
    topic_number: int
    """Index into the split's topics."""
    topic_length: int
    properties_length: int
    tags_position: int
    tags_length: int
    keys_position: int
    keys_length: int
    unique_key_position: int
    unique_key_length: int
    features: int
    """Properties that dispatch must look up: a sum of the bits below, 0 for an ordinary record."""


MULTI_DISPATCH: Final = 1
"""Both properties are there that name further queues and the record's offsets in them."""
INNER_BATCH_NUMBERS: Final = 2
"""Both properties are there that say how many messages the body holds, and the queue offset of the first."""

WIDE: Final = frozenset(Row._fields[:8])
"""Columns of 64 bits; the others have 32."""
_UNKNOWN: Final = (0,) * (len(Row._fields) - Row._fields.index("magic") - 1)


def bare_row(physical_offset: int, size: int, verdict: int, magic: int = 0) -> Row:
    """A row of which nothing but its place is known: a blank or a bad range."""
    return Row(physical_offset, size, 0, 0, 0, 0, 0, 0, verdict, magic, *_UNKNOWN)


def row_tuples(rows: Any) -> list[Row]:
    """Rows of either reader as tuples of Python numbers."""
    return rows if isinstance(rows, list) else [Row._make(values) for values in rows.tolist()]


@cache
def row_dtype() -> numpy.dtype[Any]:
    """The row as a numpy dtype, native byte order."""
    import numpy

    return numpy.dtype([(name, "i8" if name in WIDE else "i4") for name in Row._fields])
