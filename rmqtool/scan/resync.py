"""Finds the next good record after damage: magic, lengths, own offset and CRC must all be right.

A foreign record inside a body fails at its own offset, so no part of a body is taken for a record of the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from rmqtool.formats import commitlog
from rmqtool.formats.commitlog import MAGIC_AT, MESSAGE_MAGICS, PHYSICAL_OFFSET_AT
from rmqtool.scan.blocks import Window
from rmqtool.scan.judge import judge_frame
from rmqtool.scan.rules import Verdict

FIRST_STEP: Final = 4 << 10
SEARCH_STEP: Final = 256 << 10
"""Bytes that are searched at once: few at first, for most searches end soon, and ever more up to this."""
_MAGIC: Final = re.compile(b"|".join(re.escape(raw) for raw in commitlog.MAGIC_BYTES.values()))
_LOOKED_AT: Final = PHYSICAL_OFFSET_AT + 8
"""Bytes of a candidate that are looked at before it is judged."""


def find_next(
    window: Window, start: int, end: int, physical_offset: int, is_good: Callable[[int], bool | None]
) -> int | None:
    """File position of the first good record or end-of-file blank in [start, end); None if there is none.

    Args:
        physical_offset: of the file's first byte.
        is_good: judges what begins at a file position; None ends the search.
    """
    size = window.source.size
    for position, head in _candidates(window, start, end):
        if len(head) < commitlog.BLANK_SIZE_MIN:
            continue
        verdict, _, magic = judge_frame(head, size - position)
        if verdict != Verdict.GOOD:
            continue
        if magic not in MESSAGE_MAGICS:
            return position
        # The own offset costs nothing and excludes nearly every foreign record; the judge looks at it last.
        if int.from_bytes(head[PHYSICAL_OFFSET_AT:], "big", signed=True) != physical_offset + position:
            continue
        is_record = is_good(position)
        if is_record is None:
            return None
        if is_record:
            return position
    return None


def _candidates(window: Window, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Positions at which a magic stands where a record would have it, with the first bytes from there."""
    for extent_start, extent_end in window.source.extents(start, end):
        # The size before a magic may begin with zeros, which may lie in the hole before the extent.
        at, step = max(start, extent_start - MAGIC_AT), FIRST_STEP
        while at < extent_end:
            block = bytes(window.bytes_at(at, step + _LOOKED_AT))
            last = min(step, end - at)
            for match in _MAGIC.finditer(block, MAGIC_AT, last + commitlog.BLANK_SIZE_MIN - 1):
                begin = match.start() - MAGIC_AT
                yield at + begin, block[begin : begin + _LOOKED_AT]
            at += step
            step = min(2 * step, SEARCH_STEP)
