"""The tag filter of a pull: an expression becomes a set of hashes, and the queue's tags code is looked up in it.

Broker: `FilterAPI#buildSubscriptionData`, `ExpressionMessageFilter#isMatchedByConsumeQueue`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqtool.engine.queues.unit import QueueUnit
from rmqtool.errors import UsageError
from rmqtool.formats.java_text import java_hash

ALL = "*"
SEPARATOR = "||"


@dataclass(frozen=True)
class TagFilter:
    """The tags asked for; None lets everything through."""

    tags: frozenset[str] | None
    codes: frozenset[int]

    def lets_through(self, unit: QueueUnit) -> bool:
        """Whether the broker hands the unit's message out; other tags of the same hash pass too.

        A code that stands in an extension that cannot be read lets its message through.
        """
        code = unit.tags_code
        if self.tags is None or code is None:
            return True
        low = code & 0xFFFFFFFF
        return (low - (1 << 32) if low & 0x80000000 else low) in self.codes


def parse_tag_filter(expression: str | None) -> TagFilter:
    """The filter of an expression: None, nothing or `*` for all, else tags between `||`.

    Raises:
        UsageError: it names no tag at all.
    """
    if not expression or expression == ALL:
        return TagFilter(None, frozenset())
    tags = frozenset(tag for part in expression.split(SEPARATOR) if (tag := part.strip()))
    if not tags:
        raise UsageError(f"no tag in the expression {expression!r}")
    return TagFilter(tags, frozenset(map(java_hash, tags)))
