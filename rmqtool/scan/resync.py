"""Finds the next good record behind damage: magic, lengths, own offset and CRC must all be right, so no body is taken for a record."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from rmqtool.formats import commitlog
from rmqtool.scan.blocks import Window
from rmqtool.scan.judge import MESSAGE_MAGICS, judge_frame
from rmqtool.scan.rules import Verdict

SEARCH_STEP: Final = 1 << 18
_MAGIC: Final = re.compile(b"|".join(re.escape(raw) for raw in commitlog.MAGIC_BYTES.values()))
_OWN_OFFSET_AT: Final = commitlog.MESSAGE_V1.position("physical_offset")
WORK_FACTOR: Final = 4
WORK_BASE: Final = 64 << 20
"""Bytes that may be judged in vain per search: the gap times the factor, plus this. A hostile file with a magic at every byte must end too."""


def find_next(
    window: Window, start: int, physical_offset: int, judge_at: Callable[[int], Verdict | None], end: int | None = None
) -> int | None:
    """File position of the first good record or end-of-file blank at or behind `start`; None if there is none up to `end`.

    Args:
        physical_offset: of the file's first byte.
        judge_at: the verdict of the record at a position, None for a blank.
    """
    size = window.source.size
    end = size if end is None else end
    budget = WORK_BASE + WORK_FACTOR * (end - start)
    for at in _candidates(window, start, end):
        frame = bytes(window.bytes_at(at, _OWN_OFFSET_AT + 8))
        verdict, length, magic = judge_frame(frame, size - at)
        if verdict != Verdict.GOOD:
            continue
        if magic not in MESSAGE_MAGICS:
            return at
        # The own offset costs nothing and excludes nearly every foreign record; the judge looks at it last.
        if int.from_bytes(frame[_OWN_OFFSET_AT:], "big", signed=True) != physical_offset + at:
            continue
        budget -= length
        if budget < 0:
            return None
        if judge_at(at) == Verdict.GOOD:
            return at
    return None


def _candidates(window: Window, start: int, end: int):  # type: ignore[no-untyped-def]
    """Positions at which a magic stands where a record would have it."""
    overlap = 7
    for extent_start, extent_end in window.source.extents(start, end):
        at = max(start, extent_start - overlap)
        while at < extent_end:
            block = bytes(window.bytes_at(at, min(SEARCH_STEP, end - at) + overlap))
            for found in _MAGIC.finditer(block):
                candidate = at + found.start() - 4
                if candidate >= max(at, start) and candidate - at < SEARCH_STEP and candidate < end:
                    yield candidate
            at += SEARCH_STEP
