"""Infers the size of a full file of a stream: no file says it, but names and lengths together do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqtool.store.directory import Segment


def infer_file_size(segments: Sequence[Segment], unit_size: int = 1) -> int:
    """Bytes of a full file; 0 if there is nothing to judge by.

    Every name is a multiple of the size, and every file has it as its length. Of the lengths that are there, and the
    distance of the names, the one which the most names and lengths agree with is taken, the larger if two are equal:
    so a file that was cut short, grew, or has a wrong name is outvoted by the rest. Where no length holds whole units,
    the one that is taken is rounded up, as brokers do with the size that they are told.

    Args:
        segments: files of one stream, or of several that have the same file size.
        unit_size: bytes of which a full file holds a whole number.
    """
    starts = Counter(segment.start for segment in segments)
    lengths = Counter(segment.size for segment in segments)
    candidates = {length for length in (*lengths, math.gcd(*starts)) if length > 0}
    candidates = {length for length in candidates if length % unit_size == 0} or candidates

    def votes(length: int) -> int:
        return lengths[length] + sum(count for start, count in starts.items() if start % length == 0)

    best = max(candidates, key=lambda length: (votes(length), length), default=0)
    return -(-best // unit_size) * unit_size
