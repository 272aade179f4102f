"""Which files of a stream a broker loads, where one has another size than it should (`MappedFileQueue#load`)."""

from __future__ import annotations

from itertools import takewhile

from rmqtool.engine.rules.algorithms import SizeMismatch
from rmqtool.engine.rules.versions import BrokerRules
from rmqtool.store.directory import Segment


def loaded_segments(segments: tuple[Segment, ...], file_size: int, rules: BrokerRules) -> tuple[Segment, ...]:
    """The files that take part in answers; `file_size` is that of a full one in bytes.

    Versions that do not start on such a store answer nothing at all; a person who asks all the same is shown what is
    there.
    """
    if rules.size_mismatch is SizeMismatch.IGNORE_REST:
        return tuple(takewhile(lambda segment: segment.size == file_size, segments))
    return segments
