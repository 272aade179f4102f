"""Infers the size of a full file of a stream: no file says it, but names and lengths together do.

A lone file is evidence and no proof: a file that was cut, or never copied whole, has a length too. A size that nobody
would configure is not believed where only one file of the log is left, or only one name or length shows it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Protocol

DEFAULT_LOG_FILE_SIZE: Final = 1 << 30
DEFAULT_QUEUE_FILE_SIZE: Final = 6_000_000
DEFAULT_INDEX_FILE_SIZE: Final = 420_000_040
_PAGE: Final = 4096
_MEBIBYTE: Final = 1 << 20
_SMALL_LOG_FILE: Final = 16 * _MEBIBYTE
"""Up to this size any number of pages is a size that somebody may have configured, for a test or a small disk."""


class SizedFile(Protocol):
    """A file of a stream: the place that its name gives its first byte, and its length."""

    @property
    def start(self) -> int: ...
    @property
    def size(self) -> int: ...


@dataclass(frozen=True)
class LogFileSize:
    """Bytes of a full file of the log, and the certainty of the number.

    Attributes:
        bytes: 0 where the log has no file.
        is_shown: whether the files show the size: several of them agree, or the size is plausible.
        is_proven: whether several of them agree.
        is_cut: whether the only file is known to be shorter than a full one, whatever that has.
    """

    bytes: int
    is_shown: bool
    is_proven: bool
    is_cut: bool = False


def infer_log_file_size(segments: Sequence[SizedFile], *, others_are_default: bool | None) -> LogFileSize:
    """Infer the size of the log's files from their names and lengths.

    Args:
        others_are_default: whether queue and index files have the broker's default sizes; None where there are none.
            Where a lone file's length is not plausible, this decides which size the file had: the default one, or, as
            a guess, the next power of two.
    """
    starts = {segment.start for segment in segments}
    if len(starts) > 1:
        size, lengths = infer_file_size(segments), [segment.size for segment in segments]
        agreeing = lengths.count(size) + sum(start > 0 and start % size == 0 for start in starts)
        is_shown = is_plausible_log_size(size) or (agreeing > 1 and (size in lengths or size > max(lengths)))
        return LogFileSize(size, is_shown, is_proven=is_shown)
    if not segments:
        return LogFileSize(0, is_shown=True, is_proven=False)
    start, longest = segments[0].start, max(segment.size for segment in segments)
    # Of a name that is its file's length, no other size that holds the file is a divisor.
    has_likely_name = bool(start) and (longest >= _PAGE or longest == start)
    if start % max(longest, 1) == 0 and (is_plausible_log_size(longest) or has_likely_name):
        return LogFileSize(longest, is_shown=True, is_proven=False)
    if others_are_default is None and start and start % DEFAULT_LOG_FILE_SIZE == 0:
        others_are_default = True  # no other size has such a name so soon
    guess = cut_log_file_size(longest, others_are_default if start % DEFAULT_LOG_FILE_SIZE == 0 else False)
    return replace(guess, is_cut=longest == 0)


def cut_log_file_size(length: int, others_are_default: bool | None) -> LogFileSize:
    """The size that a lone file had before it was cut: the default, or, as a guess, the next power of two.

    Args:
        length: that the file had at least.
    """
    if others_are_default is not False and length <= DEFAULT_LOG_FILE_SIZE + _MEBIBYTE:
        return LogFileSize(DEFAULT_LOG_FILE_SIZE, is_shown=others_are_default is True, is_proven=False, is_cut=True)
    return LogFileSize(max(_PAGE, 1 << max(0, length - 1).bit_length()), is_shown=False, is_proven=False, is_cut=True)


def is_plausible_log_size(length: int) -> bool:
    """True for a size that somebody may have configured: whole mebibytes, or, if it is small, whole pages."""
    if length < _PAGE:
        return False
    unit = _PAGE if length <= _SMALL_LOG_FILE else _MEBIBYTE
    return length % unit == 0


def infer_file_size(segments: Sequence[SizedFile], unit_size: int = 1, *, rounds_up: bool = True) -> int:
    """Bytes of a full file; 0 if there is nothing to judge by.

    Every name is a multiple of the size, the next name is one size further on, and every file has it as its length. Of
    the lengths that are there, and the greatest step that all names share, the one which the most names, steps and
    lengths agree with is taken; of equal ones whole pages, then one that some file has, then the larger. So a file
    that was cut short, grew, or has a wrong name is outvoted by the rest; a length that holds no whole number of units
    gives way to one that does.

    Args:
        segments: files of one stream, or of several that have the same file size.
        unit_size: bytes of which a full file holds a whole number.
        rounds_up: where no length holds whole units, round up as brokers do with the size of queue files.
    """
    starts = Counter(segment.start for segment in segments)
    lengths = Counter(segment.size for segment in segments)
    steps = Counter(second - first for first, second in pairwise(sorted(starts)))
    candidates = {length for length in (*lengths, math.gcd(*starts)) if length > 0}
    candidates = {length for length in candidates if length % unit_size == 0} or candidates

    def worth(length: int) -> tuple[int, bool, bool, int]:
        fitting = sum(count for start, count in starts.items() if start % length == 0)
        votes = lengths[length] + fitting + steps[length]
        return votes, length % _PAGE == 0, length in lengths, length

    best = max(candidates, key=worth, default=0)
    return -(-best // unit_size) * unit_size if rounds_up else best
