"""One record of a damaged range, as far as it is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rmqtool.engine.reading.record import Record
from rmqtool.engine.rules.topic_names import LMQ_PREFIX
from rmqtool.formats.queue_name import QueueKey, QueueName, queue_name, topic_text

_LMQ: Final = LMQ_PREFIX.encode()


@dataclass(frozen=True, slots=True)
class LostRecord:
    """A record of a damaged range, as far as it is known.

    Attributes:
        topic: raw bytes.
        further: (topic, queue offset) of the other queues that it stands in (multi-dispatch).
        batch_size: messages in it, where it belongs into a batch queue.
        physical_offset, size: where it lies; None where only its queue tells of it.
        head: what can be read of it, if all its lengths agree.
        restored: its bytes, where only size and magic were wrong.
        has_unit: a unit of its queue says the same.
        by_head: what the header says where the unit says something else.
    """

    topic: bytes
    queue_id: int
    queue_offset: int
    further: tuple[QueueKey, ...] = ()
    batch_size: int | None = None
    physical_offset: int | None = None
    size: int | None = None
    head: Record | None = None
    restored: bytes | None = None
    has_unit: bool = False
    by_head: LostRecord | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Physical offsets [start, end) of a record whose place is known."""
        assert self.physical_offset is not None
        assert self.size is not None
        return self.physical_offset, self.physical_offset + self.size

    @property
    def tells_earlier_place(self) -> bool:
        """Whether it says that it lies nearer to the log's start, and its queue does not say that it lies here."""
        told = self.head.physical_offset if self.head is not None and not self.has_unit else 0
        return 0 < told < self.place[0]

    @property
    def topic_name(self) -> str:
        """The topic as its directory is named."""
        return topic_text(self.topic)

    @property
    def messages(self) -> int:
        """Messages that are lost with it."""
        return self.batch_size or 1

    @property
    def standings(self) -> Iterator[tuple[QueueKey, int, int]]:
        """Each queue that it stands in, its own first, with the queue offsets [first, end) that it has there."""
        yield (self.topic, self.queue_id), self.queue_offset, self.queue_offset + self.messages
        for topic, queue_offset in self.further:
            yield (topic, 0 if topic.startswith(_LMQ) else self.queue_id), queue_offset, queue_offset + 1

    @property
    def queues(self) -> Iterator[QueueName]:
        """Topic, as its directory is named, and queue id of each queue that it stands in."""
        for (topic, queue_id), *_ in self.standings:
            yield queue_name(topic, queue_id)
