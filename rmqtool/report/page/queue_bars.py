"""Consume queues as bars against the log: each queue while there are few, else one bar for each topic."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

ROWS_MAX: Final = 64
"""Queues or topics that have a bar."""
TOPICS_MAX: Final = 100
"""Topics that have a row of figures."""


@dataclass
class QueueBar:
    """A queue, or all queues of a topic: messages and the physical offsets that its units span.

    `queue_id` is None where it stands for more than one queue; `begin` is None where no unit can be read.
    """

    topic: str
    queue_id: int | None
    queues: int = 0
    messages: int = 0
    begin: int | None = None
    end: int | None = None
    unreadable: int = 0

    def add(self, messages: int | None, begin: int | None, end: int | None) -> None:
        self.queues += 1
        self.messages += messages or 0
        self.unreadable += messages is None
        if begin is not None and end is not None:
            self.begin = begin if self.begin is None else min(self.begin, begin)
            self.end = end if self.end is None else max(self.end, end)


@dataclass
class QueueBars:
    """Collects the queues of a store."""

    count: int = 0
    _queues: list[QueueBar] = field(default_factory=list)
    _topics: dict[str, QueueBar] = field(default_factory=dict)

    def add(self, topic: str, queue_id: int, messages: int | None, begin: int | None, end: int | None) -> None:
        """Count a queue, of which the messages are known if it can be read, and the physical offsets from its first
        unit's record to the end of the last one's, if it has units.
        """
        self.count += 1
        self._topics.setdefault(topic, QueueBar(topic, None)).add(messages, begin, end)
        if self.count <= ROWS_MAX:
            queue = QueueBar(topic, queue_id)
            queue.add(messages, begin, end)
            self._queues.append(queue)
        else:
            self._queues = []

    @property
    def topics(self) -> int:
        return len(self._topics)

    @property
    def are_summed(self) -> bool:
        """True if there are too many queues for a bar each."""
        return self.count > ROWS_MAX

    def rows(self) -> tuple[list[QueueBar], int]:
        """Queues, or topics with the most messages first; and how many topics are left out."""
        if not self.are_summed:
            return self._queues, 0
        ordered = sorted(self._topics.values(), key=lambda bar: (-bar.messages, bar.topic))
        return ordered[:ROWS_MAX], max(0, len(ordered) - ROWS_MAX)

    def figures(self, losses: Counter[str]) -> tuple[list[QueueBar], QueueBar | None]:
        """Topics with the greatest loss and the most messages first; and all others as one, if there are any.

        `losses` are messages that a start would lose, by topic; it may name topics without a queue.
        """
        topics = [*self._topics.values(), *(QueueBar(topic, None) for topic in losses if topic not in self._topics)]
        ordered = sorted(topics, key=lambda bar: (-losses[bar.topic], -bar.messages, bar.topic))
        if len(ordered) <= TOPICS_MAX:
            return ordered, None
        rest = QueueBar("", None)
        for bar in ordered[TOPICS_MAX:]:
            rest.queues += bar.queues
            rest.messages += bar.messages
        return ordered[:TOPICS_MAX], rest
