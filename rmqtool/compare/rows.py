"""Rows of a log for a comparison: 44 bytes for each record, in blocks of the log; queues by number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.formats.queue_name import QueueKey

Array = NDArray[Any]

ROW: Final = np.dtype(
    [
        ("identity", "u8"),
        ("physical_offset", "i8"),
        ("queue_offset", "i8"),
        ("whole", "u8"),
        ("content", "u4"),
        ("size", "i4"),
        ("queue", "i4"),
    ]
)
"""A record: digests as in `scan.digest`, of the content's 32 bits, and its queue's number in a `QueueNumbers`.

A manifest has 32 bits of `whole` too, so no more is compared row by row.

Of a blank `queue` is `BLANK`, of a bad range `BAD` less its verdict; nothing but place, size and `whole` counts then.
"""
BLANK: Final = -1
BAD: Final = -2
BLOCK_SIZE: Final = 4 << 20
"""Bytes of the log in a block."""


class Block(NamedTuple):
    """Rows that lie one after the other and begin in one chunk of the log.

    Attributes:
        begin: physical offset of the first row.
        end: physical offset after the last row.
        digest: the sum of the rows' whole digests, each of which holds its place, modulo 2 ** 64.
        rows: None where only the digest is known.
    """

    begin: int
    end: int
    digest: int
    rows: Array | None


class QueueNumbers:
    """Numbers for queues in the order in which they are first met; threads may share it."""

    def __init__(self, keys: Iterable[QueueKey] = ()) -> None:
        self._lock = Lock()
        self.keys: list[QueueKey] = []
        self._numbers: dict[QueueKey, int] = {}
        self.numbers_of(keys)

    def numbers_of(self, keys: Iterable[QueueKey]) -> list[int]:
        """The number of each; new ones are entered."""
        numbers = []
        with self._lock:
            for key in keys:
                number = self._numbers.get(key)
                if number is None:
                    number = self._numbers[key] = len(self.keys)
                    self.keys.append(key)
                numbers.append(number)
        return numbers

    def translation(self, keys: Iterable[QueueKey]) -> Array:
        """An array that gives the numbers here for numbers that count these keys."""
        return np.array(self.numbers_of(keys), np.int32)


@dataclass
class TopicTotal:
    """Messages of a topic: how many, their bytes, and a digest of them all, in whatever order; None if it is not known.

    The digest is the sum of all identities and contents modulo 2 ** 64.
    """

    messages: int = 0
    bytes: int = 0
    digest: int | None = 0

    def add(self, other: TopicTotal) -> None:
        """Add the topic's totals of another part of the log."""
        self.messages += other.messages
        self.bytes += other.bytes
        known = self.digest is not None and other.digest is not None
        self.digest = (self.digest + other.digest) & _MASK if known else None  # type: ignore[operator]


@dataclass
class LogTotals:
    """Totals of a part of a log, or all of it. `merge` is associative over parts in the order of the log.

    Attributes:
        begin, end: physical offsets of the first file's first byte and after the last record; None if there is none.
        bad_ranges, bad_bytes: damage before the last record.
        unreadable_bytes: what the disk did not give.
        tail_bytes: damage after it, as a torn record.
    """

    begin: int | None = None
    end: int | None = None
    topics: dict[bytes, TopicTotal] = field(default_factory=dict)
    bad_ranges: int = 0
    bad_bytes: int = 0
    tail_bytes: int = 0
    unreadable_bytes: int = 0

    @property
    def messages(self) -> int:
        return sum(total.messages for total in self.topics.values())

    def merge(self, other: LogTotals) -> None:
        """Add the part of the log that follows."""
        self.begin = other.begin if self.begin is None else self.begin
        self.end = self.end if other.end is None else other.end
        self.add_topics(other.topics)
        self.bad_ranges += other.bad_ranges
        self.bad_bytes += other.bad_bytes
        self.tail_bytes += other.tail_bytes
        self.unreadable_bytes += other.unreadable_bytes

    def add_topics(self, topics: Mapping[bytes, TopicTotal]) -> None:
        """Add messages, whichever they are."""
        for topic, total in topics.items():
            self.topics.setdefault(topic, TopicTotal()).add(total)


_MASK: Final = (1 << 64) - 1


def is_message(rows: Array) -> Array:
    """Mask of the rows that are messages."""
    has_queue: Array = rows["queue"] >= 0
    return has_queue


def low_bits(digests: Array) -> Array:
    """The lower 32 bits of digests."""
    bits: Array = digests & np.uint64(0xFFFFFFFF)
    return bits


def sum_of(digests: Array) -> int:
    """The sum of digests modulo 2 ** 64."""
    return int(digests.sum(dtype=np.uint64))


def block_of(rows: Array, digest: int) -> Block:
    """A block of rows that are there, not none."""
    last = rows[-1]
    return Block(int(rows[0]["physical_offset"]), int(last["physical_offset"] + last["size"]), digest, rows)
