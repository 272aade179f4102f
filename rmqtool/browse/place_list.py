"""The list at the left: topics, their queues where one is opened, and the files of the log."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from rmqtool.browse.browsed_store import BrowsedStore
from rmqtool.browse.list_model import BAD, FAINT, STRONG, Line
from rmqtool.errors import RmqtoolError
from rmqtool.formats.queue_name import QueueName
from rmqtool.store.directory import Segment


class Place(NamedTuple):
    """A line: the log or a topic as a group, or a file or queue in it.

    Attributes:
        group: name of the topic; None for the log.
    """

    group: str | None
    queue: QueueName | None = None
    segment: Segment | None = None

    @property
    def is_group(self) -> bool:
        return self.queue is None and self.segment is None


class PlaceList:
    """Topics and queues; a queue is read once its line is in sight."""

    def __init__(self, store: BrowsedStore) -> None:
        self.store = store
        self._queues: dict[str, list[QueueName]] = defaultdict(list)
        for name in store.queue_names():
            self._queues[name[0]].append(name)
        self._open: set[str | None] = {next(iter(self._queues))} if len(self._queues) == 1 else set()
        self._counts: dict[QueueName, int | str] = {}
        self._filter = ""
        self.places: list[Place] = []
        self._arrange()

    def count(self) -> int:
        return len(self.places)

    def heading(self, width: int) -> str | None:
        del width
        return f"topics with {self._filter!r}" if self._filter else None

    def line(self, row: int, width: int) -> Line | None:
        place = self.places[row]
        if place.is_group:
            sign = "-" if place.group in self._open else "+"
            if place.group is None:
                return Line(f"{sign} (commit log: {len(self.store.store.commitlog)})", STRONG)
            return Line(f"{sign} {place.group}", STRONG)
        if place.segment is not None:
            return Line(f"    {place.segment.start}")
        assert place.queue is not None
        known = self._counts.get(place.queue)
        label = f"    {place.queue[1]}"
        if isinstance(known, str):
            return Line(f"{label} {known}", BAD)
        text = "" if known is None else f"{known:,}"
        return Line(f"{label}{text:>{max(1, width - len(label))}}", FAINT if known == 0 else "")

    def is_read(self, first: int, count: int) -> bool:
        return not self._unknown(first, count)

    def read(self, first: int, count: int) -> None:
        for queue in self._unknown(first, count):
            try:
                bounds = self.store.bounds(queue)
                self._counts[queue] = bounds.end - bounds.first
            except RmqtoolError as error:
                self._counts[queue] = str(error)

    def toggle(self, row: int) -> None:
        """Open a group, or close it."""
        self._open ^= {self.places[row].group}
        self._arrange()

    def filter(self, text: str) -> None:
        """Show only topics whose name has a text in it; all where it is empty."""
        self._filter = text
        self._arrange()

    def row_of(self, queue: QueueName) -> int | None:
        """The line of a queue, whose topic is opened for it; None where the store has no such queue."""
        if queue not in self._queues.get(queue[0], ()):
            return None
        self._open.add(queue[0])
        if self._filter not in queue[0]:
            self._filter = ""
        self._arrange()
        return self.places.index(Place(queue[0], queue))

    def _unknown(self, first: int, count: int) -> list[QueueName]:
        places = self.places[first : first + count]
        return [place.queue for place in places if place.queue is not None and place.queue not in self._counts]

    def _arrange(self) -> None:
        places = [Place(None)]
        if None in self._open:
            places += [Place(None, segment=segment) for segment in self.store.store.commitlog]
        for topic, queues in self._queues.items():
            if self._filter in topic:
                places.append(Place(topic))
                places += [Place(topic, queue) for queue in queues if topic in self._open]
        self.places = places
