"""Old records after the log's end: copies of records that stand elsewhere in the log, and say so themselves.

Whoever wrote them there did not append them: a broker gives each record its own physical offset. So they never
continued the log, which ends before them.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

from rmqtool.errors import UnreadableError
from rmqtool.formats.commitlog import HEAD_SIZE
from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import Walk
from rmqtool.store.source import ByteSource, read_range
from rmqtool.verify.survey.context import VerifyContext

_BLOCK: Final = 1 << 20


def are_copies(context: VerifyContext, walk: Walk, start: int, end: int) -> bool:
    """Whether the log's last bytes, at physical offsets [start, end), are records that stand elsewhere in it.

    They may be cut: zeros in their ends, after the head, count as what did not arrive.
    """
    split = walk.split
    position, data_end = start - split.physical_offset, end - split.physical_offset
    if split.more_follows or last_data_end(split.source, data_end, split.source.size) > data_end:
        return False
    while position < data_end:
        row = walk.judge(position)
        is_elsewhere = row.verdict == Verdict.SELF_OFFSET_MISMATCH and row.topic_length > 0
        size = last_data_end(split.source, position, position + row.size) - position
        if not is_elsewhere or size < HEAD_SIZE or not _is_at(context, row.own_offset, split.source, position, size):
            return False
        position += row.size
    return True


def _is_at(context: VerifyContext, physical_offset: int, source: ByteSource, position: int, size: int) -> bool:
    """Whether the log holds the same bytes at a physical offset."""
    segment = next(
        (candidate for candidate in context.store.commitlog if candidate.start <= physical_offset < candidate.end), None
    )
    if segment is None:
        return False
    there = physical_offset - segment.start
    try:
        with closing(context.open_file(segment.path)) as other:
            return all(
                read_range(source, position + at, min(_BLOCK, size - at))
                == read_range(other, there + at, min(_BLOCK, size - at))
                for at in range(0, size, _BLOCK)
            )
    except UnreadableError:
        return False
