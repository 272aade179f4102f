"""Facts about the messages of one log file once the units of all of them were seen in their queues.

Whoever compares a log with its queues, or writes them, has seen each message at the queue offset that it says. With the
identity of the queues' files this is enough to know later that all of them are served, without a look at any.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rmqtool.formats.queue_name import QueueKey

if TYPE_CHECKING:
    from rmqtool.engine.dispatch.queue_entries import QueueEntries

QUEUES_MAX: Final = 4096
"""Queues of a log file that are kept apart; of one with more nothing is known."""
QUESTION: Final = "placed messages"
"""Asks a log file, by its identity and where it lies, for its `PlacedMessages`."""


@dataclass
class PlacedMessages:
    """Messages that were seen, each by the unit at its own queue offset.

    Attributes:
        count: how many; -1 where a message has another place, none, or several.
        spans: the lowest and the highest queue offset of each queue.
        contents: the identity of each file of the queues when they were looked at.
    """

    count: int = 0
    spans: dict[QueueKey, tuple[int, int]] = field(default_factory=dict)
    contents: Mapping[str, Hashable] = field(default_factory=dict)

    def take(self, entries: QueueEntries) -> None:
        """Take the messages of a queue, all at their places."""
        if entries.is_batch or not entries.own.all():
            self.spoil()
        if self.count < 0 or not entries.queue_offsets.size:
            return
        low, high = int(entries.queue_offsets.min()), int(entries.queue_offsets.max())
        self.count += entries.queue_offsets.size
        self._add((entries.topic, entries.queue_id), low, high)

    def add(self, others: PlacedMessages) -> None:
        """Take other messages of the same file too."""
        if others.count < 0:
            self.spoil()
        if self.count < 0:
            return
        self.count += others.count
        for key, (low, high) in others.spans.items():
            self._add(key, low, high)

    def spoil(self) -> None:
        """Know nothing of this file any more."""
        self.count, self.spans = -1, {}

    def _add(self, key: QueueKey, low: int, high: int) -> None:
        known_low, known_high = self.spans.get(key, (low, high))
        self.spans[key] = min(low, known_low), max(high, known_high)
        if len(self.spans) > QUEUES_MAX:
            self.spoil()
