"""Infers the size of a full file of a stream: no file says it, but names and lengths together do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqtool.store.directory import Segment


def infer_file_size(segments: Sequence[Segment]) -> int:
    """Bytes of a full file; 0 if there is nothing to judge by.

    Names are multiples of the size, so where a length divides all of them it is the size; of several such lengths the one most files have. A file
    that was cut short or grew is thus told from the rest. Where no length fits, the smallest distance between names decides.
    """
    starts = sorted({segment.start for segment in segments})
    lengths = Counter(segment.size for segment in segments if segment.size > 0)
    common = math.gcd(*starts) if starts else 0
    fitting = [(count, length) for length, count in lengths.items() if common % length == 0]
    steps = [later - earlier for earlier, later in zip(starts, starts[1:], strict=False)]
    if fitting and (not steps or max(fitting)[1] <= min(steps)):
        return max(fitting)[1]
    if steps:
        return min(steps)
    return max(lengths, key=lambda length: (lengths[length], length), default=0)
