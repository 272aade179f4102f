"""Which rows of the log a table holds: what an option asks for, and what a query's filters let be left out."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.formats import commitlog
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.scan.rules import Verdict

Mask = NDArray[np.bool_]

CLOCK_STEP_MS: Final = 3_600_000
"""How far a clock may have been set back: files are left out by the times of their first records with this margin."""


@dataclass(frozen=True)
class RowFilter:
    """Ranges are half open, None means any.

    Attributes:
        topics: glob patterns.
        strict: whether a row without a topic, queue or time is left out where one is asked for. A query's filter says
            so; where an option asks, a bad range stays, for it may hide what is asked for, as in `dump`.
        stale: whether records behind the log's end are rows.
    """

    topics: tuple[str, ...] | None = None
    queue_ids: frozenset[int] | None = None
    from_physical_offset: int | None = None
    to_physical_offset: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    strict: bool = False
    stale: bool = True

    @property
    def wants_content(self) -> bool:
        """Whether something in a message decides."""
        asked = (self.topics, self.queue_ids, self.from_ms, self.to_ms)
        return any(value is not None for value in asked)

    def may_be_between(self, begin: int, end: int) -> bool:
        """Whether rows of this range of physical offsets may be wanted."""
        low, high = self._offsets
        return begin < high and end > low

    def may_be_stored(self, first_ms: int | None, next_first_ms: int | None) -> bool:
        """Whether rows of a file may be wanted, by the store times of its first record and of the next file's."""
        late = self.to_ms is not None and first_ms is not None and first_ms - CLOCK_STEP_MS >= self.to_ms
        early = self.from_ms is not None and next_first_ms is not None and next_first_ms + CLOCK_STEP_MS < self.from_ms
        return not late and not early

    def may_name(self, topic: str) -> bool:
        """Whether rows of a topic may be wanted."""
        return self.topics is None or any(fnmatch.fnmatchcase(topic, pattern) for pattern in self.topics)

    def may_number(self, queue_id: int) -> bool:
        """Whether rows of a queue id may be wanted."""
        return self.queue_ids is None or queue_id in self.queue_ids

    def mask(self, rows: NDArray[Any], topics: Sequence[bytes]) -> Mask:
        """Which rows of a scan are wanted.

        Args:
            topics: names by the rows' topic numbers.
        """
        low, high = self._offsets
        verdict, places = rows["verdict"], rows["physical_offset"]
        sound = (verdict == Verdict.GOOD) | (verdict == Verdict.STALE)
        blank = sound & (rows["magic"] == commitlog.MAGIC_BLANK)
        inside = sound & (places >= low) & (places < high)
        bad = ~sound & (places < high) & (places + np.maximum(rows["size"], 1) > low)
        if not self.stale:
            inside &= verdict != Verdict.STALE
        if not self.wants_content:
            return np.asarray(inside | bad)
        chosen = inside & ~blank
        if self.topics is not None:
            numbers = [number for number, name in enumerate(topics) if self.may_name(decode_java_utf8(name))]
            chosen &= np.isin(rows["topic_number"], numbers)
        if self.queue_ids is not None:
            chosen &= np.isin(rows["queue_id"], list(self.queue_ids))
        if self.from_ms is not None:
            chosen &= rows["store_timestamp_ms"] >= self.from_ms
        if self.to_ms is not None:
            chosen &= rows["store_timestamp_ms"] < self.to_ms
        return np.asarray(chosen if self.strict else chosen | bad)

    @property
    def _offsets(self) -> tuple[int, int]:
        low, high = self.from_physical_offset, self.to_physical_offset
        return 0 if low is None else low, JAVA_LONG_MAX if high is None else high
