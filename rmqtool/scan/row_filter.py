"""Filter of the rows of a log."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from rmqtool.formats import commitlog
from rmqtool.formats.java_text import decode_java_utf8, java_hash
from rmqtool.formats.message_id import OffsetMessageId, parse_offset_message_id
from rmqtool.formats.properties import SCHEDULE_TOPIC
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.scan.columns import Row
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import Batch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CLOCK_STEP_MS: Final = 3_600_000
"""Margin for a clock that was set back, where files are left out by the store times of their first records."""
_VERDICT: Final = Row._fields.index("verdict")
_SCHEDULE: Final = SCHEDULE_TOPIC.encode()


@dataclass(frozen=True)
class RowFilter:
    """Ranges are half open, None means any.

    Attributes:
        topics: glob patterns.
        key: one of the keys, or the unique key.
        message_id: the broker's, or the unique key.
        strict: whether a row without a topic, queue or time is left out where one is asked for, as `get` does; for
            `dump` and tables a bad range stays, for it may hide what is asked for.
        stale: whether records after the log's end are rows.
    """

    topics: tuple[str, ...] | None = None
    queue_ids: frozenset[int] | None = None
    from_physical_offset: int | None = None
    to_physical_offset: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    key: str | None = None
    tag: str | None = None
    message_id: str | None = None
    strict: bool = False
    stale: bool = True

    @property
    def wants_texts(self) -> bool:
        """True if columns alone do not decide, but `has_texts` does."""
        return any(value is not None for value in (self.key, self.tag, self.message_id))

    @property
    def wants_content(self) -> bool:
        """True if the content of a message decides."""
        asked = (self.topics, self.queue_ids, self.from_ms, self.to_ms)
        return self.wants_texts or any(value is not None for value in asked)

    def may_be_between(self, begin: int, end: int) -> bool:
        """True if the filter may accept rows of this range of physical offsets."""
        low, high = self.offsets
        return begin < high and end > low

    def may_be_stored(self, first_ms: int | None, next_first_ms: int | None) -> bool:
        """True if the filter may accept rows of a file, by the store times of its and the next file's first record.

        A file is left out only by two times that ascend: one that is unknown, or is damaged, leaves out nothing.
        """
        if first_ms is None or next_first_ms is None or first_ms > next_first_ms:
            return True
        late = self.to_ms is not None and first_ms - CLOCK_STEP_MS >= self.to_ms
        early = self.from_ms is not None and next_first_ms + CLOCK_STEP_MS < self.from_ms
        return not late and not early

    def may_name(self, topic: str) -> bool:
        """True if the filter may accept rows of a topic."""
        return self.topics is None or any(fnmatch.fnmatchcase(topic, pattern) for pattern in self.topics)

    def may_number(self, queue_id: int) -> bool:
        """True if the filter may accept rows of a queue id."""
        return self.queue_ids is None or queue_id in self.queue_ids

    def has_texts(self, keys: Sequence[str], unique_key: str | None, tags: str | None, message_id: str) -> bool:
        """True if a message has the required key, tag and id."""
        asked = self.message_id
        is_id = self._offset_id is not None and asked is not None and asked.upper() == message_id
        return (
            (self.key is None or self.key in keys or self.key == unique_key)
            and (self.tag is None or self.tag == tags)
            and (asked is None or asked == unique_key or is_id)
        )

    def chosen(self, batch: Batch) -> Any:
        """The rows of a batch that may be wanted, as they come; `has_texts` tells which of them are."""
        if self == RowFilter(stale=self.stale):
            return batch.rows if self.stale or batch.rows[0][_VERDICT] != Verdict.STALE else []
        rows = batch.as_array()
        mask = self.mask(rows, batch.topics)
        if self.wants_texts and mask.any():
            mask &= self._texts_mask(rows, batch) | (rows["verdict"] != Verdict.GOOD)
        return batch.rows if mask.all() else rows[mask]

    def mask(self, rows: NDArray[Any], topics: Sequence[bytes]) -> NDArray[np.bool_]:
        """Mask of the rows that the filter accepts, as far as numbers decide.

        Args:
            topics: names by the rows' topic numbers.
        """
        import numpy as np

        low, high = self.offsets
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

    def _texts_mask(self, rows: NDArray[Any], batch: Batch) -> NDArray[np.bool_]:
        """Mask of the messages that may have the key, tag and id; a text that no record holds is seen at once.

        A text with U+FFFD rules nothing out: other bytes are decoded to the same.
        """
        import numpy as np

        mask = np.ones(len(rows), np.bool_)
        if self.tag is not None and (tag := _exact_bytes(self.tag)) is not None:
            schedule = batch.topics.index(_SCHEDULE) if _SCHEDULE in batch.topics else -1
            has_hash = (rows["tags_code"] == java_hash(self.tag)) | (rows["topic_number"] == schedule)
            mask &= (rows["tags_length"] == len(tag)) & has_hash
        if (key := _exact_bytes(self.key)) is not None and mask.any():
            mask &= (rows["keys_length"] >= len(key)) | (rows["unique_key_length"] == len(key))
            mask &= batch.may_hold(key)
        if (asked := _exact_bytes(self.message_id)) is not None and mask.any():
            place = -1 if self._offset_id is None else self._offset_id.physical_offset
            has_key = (rows["unique_key_length"] == len(asked)) & batch.may_hold(asked)
            mask &= has_key | (rows["own_offset"] == place)
        return mask

    @cached_property
    def _offset_id(self) -> OffsetMessageId | None:
        """The required message id, if it is a broker's."""
        with suppress(ValueError):
            return parse_offset_message_id(self.message_id or "")
        return None

    @property
    def offsets(self) -> tuple[int, int]:
        """Begin and end of the physical offsets that the filter accepts."""
        low, high = self.from_physical_offset, self.to_physical_offset
        return 0 if low is None else low, JAVA_LONG_MAX if high is None else high


def _exact_bytes(text: str | None) -> bytes | None:
    """The bytes of a required text; None where other bytes are decoded to the same text."""
    return None if text is None or "\ufffd" in text else text.encode("utf-8", "replace")
