"""Where a file queue begins and ends, found with a handful of reads, so that thousands of large queues take a second.

What a load finds is in `queue`: it reads up to three whole files of each queue. Here a file that takes little room on
the disk is read as a load reads it, and in a larger one the end is found by halving, which is the same place unless a
unit in the middle is damaged.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rmqtool.engine.algorithms import MinOffsetSearch
from rmqtool.engine.open_files import OpenFiles
from rmqtool.engine.queue_files import FILES_EXAMINED
from rmqtool.engine.queue_unit import PLAIN, valid_unit_count
from rmqtool.engine.versions import BrokerRules
from rmqtool.formats.consumequeue import UNIT_SIZE
from rmqtool.store.directory import QueueFiles, Segment

READ_WHOLE_BYTES: Final = 1 << 18
"""A file that takes up to this much on the disk is read from its begin to its end."""
BLOCK_UNITS: Final = 3072


class QueueBounds(NamedTuple):
    """A queue's offsets, and the log range of its last unit (0, 0 where it has none)."""

    min_queue_offset: int
    max_queue_offset: int
    last_physical_offset: int = 0
    last_record_size: int = 0


def queue_bounds(
    found: QueueFiles, file_size: int, files: OpenFiles, rules: BrokerRules, log_minimum: int
) -> QueueBounds:
    """Bounds of one queue.

    Args:
        file_size: bytes of a full file.
        log_minimum: first physical offset of the commitlog; a unit below it counts as not there.

    Raises:
        UnreadableError: a file cannot be read.
    """
    segments = found.segments
    while segments and segments[-1].size == 0:
        segments = segments[:-1]
    if not segments or file_size <= 0:
        return QueueBounds(0, 0)
    end, last = 0, None
    for segment in segments[-FILES_EXAMINED:]:
        length = _valid_units(segment, file_size, files) * UNIT_SIZE
        end = segment.start + length
        last = (segment, length - UNIT_SIZE) if length else last
        if length != file_size:
            break
    maximum = end // UNIT_SIZE
    if last is None:
        return QueueBounds(_first_at_or_above(segments[0], end, file_size, files, log_minimum), maximum)
    physical_offset, record_size, _ = _unit(last[0], last[1], files)
    if rules.min_offset_search is MinOffsetSearch.BINARY and physical_offset < log_minimum:
        minimum = maximum
    else:
        minimum = _first_at_or_above(segments[0], end, file_size, files, log_minimum)
    return QueueBounds(minimum, maximum, physical_offset, record_size)


def _valid_units(segment: Segment, file_size: int, files: OpenFiles) -> int:
    """How many valid units a file begins with."""
    count = min(file_size, segment.size) // UNIT_SIZE
    if segment.entry.allocated_bytes <= READ_WHOLE_BYTES:
        return _counted(segment, 0, count, files)
    low, high = 0, count  # all units below `low` are taken as valid; `high` is the first one taken as invalid
    while high - low > BLOCK_UNITS:
        middle = (low + high) // 2
        if _is_valid(segment, middle, files):
            low = middle + 1
        else:
            high = middle
    return _counted(segment, low, high, files)


def _counted(segment: Segment, first: int, end: int, files: OpenFiles) -> int:
    """Number of the first invalid unit of [first, end)."""
    while first < end:
        wanted = min(BLOCK_UNITS, end - first)
        block = files.read(segment.path, first * UNIT_SIZE, wanted * UNIT_SIZE)
        valid = valid_unit_count(block)
        first += valid
        if valid < wanted:
            break
    return first


def _is_valid(segment: Segment, number: int, files: OpenFiles) -> bool:
    return valid_unit_count(files.read(segment.path, number * UNIT_SIZE, UNIT_SIZE)) == 1


def _first_at_or_above(first: Segment, end: int, file_size: int, files: OpenFiles, log_minimum: int) -> int:
    """Queue offset of the first file's first unit that is not below the log; 0 if there is none, as the broker says."""
    count = min(file_size, first.size, max(0, end - first.start)) // UNIT_SIZE
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if _unit(first, middle * UNIT_SIZE, files)[0] >= log_minimum:
            high = middle
        else:
            low = middle + 1
    return first.start // UNIT_SIZE + low if low < count else 0


def _unit(segment: Segment, position: int, files: OpenFiles) -> tuple[int, int, int]:
    block = files.read(segment.path, position, UNIT_SIZE)
    physical_offset, record_size, tags_code = PLAIN.unpack(block.ljust(UNIT_SIZE, b"\0"))
    return int(physical_offset), int(record_size), int(tags_code)
