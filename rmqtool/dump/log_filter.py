"""Which records of the log `dump` shows: told by columns where they can, then by a few bytes, by the record last."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rmqtool.engine.reading.record import Record
from rmqtool.formats import commitlog
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.message_id import parse_offset_message_id
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.scan.columns import Row
from rmqtool.scan.rules import Verdict


@dataclass(frozen=True)
class LogFilter:
    """Which records are wanted; ranges are half open, None means any."""

    topics: tuple[str, ...] = ()
    """Glob patterns."""
    queue_id: int | None = None
    from_physical_offset: int | None = None
    to_physical_offset: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    key: str | None = None
    tag: str | None = None
    message_id: str | None = None
    stale: bool = False

    @property
    def wants_content(self) -> bool:
        """Whether something in a message decides, so that a blank is not wanted."""
        asked = (self.queue_id, self.from_ms, self.to_ms, self.key, self.tag, self.message_id)
        return bool(self.topics) or any(value is not None for value in asked)

    @property
    def wants_text(self) -> bool:
        """Whether columns alone do not decide."""
        return any(value is not None for value in (self.key, self.tag, self.message_id))

    def topic_numbers(self, topics: Sequence[bytes]) -> frozenset[int] | None:
        """Numbers of the wanted topics; None if all are."""
        if not self.topics:
            return None
        return frozenset(
            number
            for number, name in enumerate(topics)
            if any(fnmatch.fnmatchcase(decode_java_utf8(name), pattern) for pattern in self.topics)
        )

    def mask(self, rows: Any, numbers: frozenset[int] | None) -> Any:
        """The rows worth a closer look, as a numpy mask; what is no good message is always one of them."""
        import numpy as np

        masks = []
        if numbers is not None:
            masks.append(np.isin(rows["topic_number"], list(numbers)))
        if self.queue_id is not None:
            masks.append(rows["queue_id"] == self.queue_id)
        for low, high, name in (
            (self.from_physical_offset, self.to_physical_offset, "physical_offset"),
            (self.from_ms, self.to_ms, "store_timestamp_ms"),
        ):
            if low is not None:
                masks.append(rows[name] >= low)
            if high is not None:
                masks.append(rows[name] < high)
        if (tag := _exact_bytes(self.tag)) is not None:
            masks.append(rows["tags_length"] == len(tag))
        if (key := _exact_bytes(self.key)) is not None:
            masks.append((rows["keys_length"] >= len(key)) | (rows["unique_key_length"] == len(key)))
        if (asked := _exact_bytes(self.message_id)) is not None:
            place = -1 if self._asked_offset is None else self._asked_offset
            masks.append((rows["unique_key_length"] == len(asked)) | (rows["own_offset"] == place))
        return np.logical_and.reduce(masks) | (rows["verdict"] != Verdict.GOOD) if masks else None

    def may_match(self, row: Row, numbers: frozenset[int] | None) -> bool:
        """Whether columns alone do not rule a row out."""
        low = self.from_physical_offset or 0
        high = JAVA_LONG_MAX if self.to_physical_offset is None else self.to_physical_offset
        if row.verdict not in (Verdict.GOOD, Verdict.STALE):  # it may hide what is wanted, so only its place counts
            return row.physical_offset < high and row.physical_offset + max(row.size, 1) > low
        if not low <= row.physical_offset < high or (row.verdict == Verdict.STALE and not self.stale):
            return False
        if row.magic == commitlog.MAGIC_BLANK:
            return not self.wants_content
        return (
            (numbers is None or row.topic_number in numbers)
            and (self.queue_id is None or row.queue_id == self.queue_id)
            and (self.from_ms is None or row.store_timestamp_ms >= self.from_ms)
            and (self.to_ms is None or row.store_timestamp_ms < self.to_ms)
        )

    def texts_may_match(self, row: Row, read: Callable[[int, int], bytes]) -> bool:
        """Whether the bytes of tag, keys and unique key do not rule a message out; cheaper than to decode it.

        Args:
            read: gives (position, length) bytes of the record.
        """
        if not self.wants_text:
            return True
        unique = read(row.unique_key_position, row.unique_key_length) if row.unique_key_length > 0 else b""
        if (tag := _exact_bytes(self.tag)) is not None and (
            row.tags_length != len(tag) or read(row.tags_position, row.tags_length) != tag
        ):
            return False
        if (
            (key := _exact_bytes(self.key)) is not None
            and key != unique
            and (row.keys_length < len(key) or key not in read(row.keys_position, row.keys_length))
        ):
            return False
        asked = _exact_bytes(self.message_id)
        return asked is None or asked == unique or row.own_offset == self._asked_offset

    def matches(self, record: Record) -> bool:
        """Whether a record that nothing cheaper rules out has the key, tag or id that is asked for."""
        return (
            (self.key is None or self.key in record.keys or self.key == record.unique_key)
            and (self.tag is None or self.tag == record.tags)
            and (self.message_id is None or self._has_id(record))
        )

    def _has_id(self, record: Record) -> bool:
        asked = self.message_id
        if asked is None or record.unique_key == asked:
            return True
        with suppress(ValueError):
            return parse_offset_message_id(asked) == parse_offset_message_id(record.message_id)
        return False

    @cached_property
    def _asked_offset(self) -> int | None:
        """The physical offset in the message id that is asked for; None where it is no such id."""
        with suppress(ValueError):
            return parse_offset_message_id(self.message_id or "").physical_offset
        return None


def _exact_bytes(text: str | None) -> bytes | None:
    """The bytes of a text that is asked for; None where others are decoded to the same."""
    return None if text is None or "\ufffd" in text else text.encode("utf-8", "replace")
