"""The findings about the units of queues, gathered over one split of the log: neighboring units are one finding.

A split is compared chunk by chunk, and the size of a chunk follows from the memory: the findings must not. So a finding
continues with the last one about its queue's file, in whichever chunk that was, and each queue has its own limit.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from rmqtool.findings.finding import Finding
from rmqtool.verify.survey.queue_map import QueueMap

OF_QUEUE_MAX: Final = 1000
OF_SPLIT_MAX: Final = 20_000
"""Units of one queue, and of all, that are described; the others are counted, and said to be."""
_QUEUES: Final = "consumequeue."


@dataclass
class QueueFindings:
    """Findings in the order of the log, for each queue.

    Attributes:
        all: what was added.
    """

    all: list[Finding] = field(default_factory=list)
    _last: dict[tuple[str, str, str | None, int | None], int] = field(default_factory=dict)
    """The number of the last finding of a kind about a file of a queue."""
    _rests: dict[tuple[str, int, bool], int] = field(default_factory=dict)
    """The number of the finding that counts what is not described of a queue."""
    _described: Counter[tuple[str, int, bool]] = field(default_factory=Counter)
    _described_in_all: int = 0

    def describes(self, queue: QueueMap) -> bool:
        """Whether one more unit of a queue is described."""
        name = _name(queue)
        if self._described[name] >= OF_QUEUE_MAX or self._described_in_all >= OF_SPLIT_MAX:
            return False
        self._described[name] += 1
        self._described_in_all += 1
        return True

    def add(self, new_finding: Finding) -> None:
        """Add a finding; one about the next unit of a queue continues with the one before."""
        if not new_finding.id.startswith(_QUEUES) or new_finding.queue_offset is None:
            self.all.append(new_finding)
            return
        key = new_finding.id, new_finding.file, new_finding.topic, new_finding.queue_id
        number = self._last.get(key)
        before = self.all[number] if number is not None else None
        if (
            before is not None
            and number is not None
            and before.file_position is not None
            and new_finding.queue_offset == (before.queue_offset or 0) + before.count
        ):
            length = (before.length or 0) + (new_finding.length or 0)
            self.all[number] = replace(before, count=before.count + new_finding.count, length=length)
            return
        self._last[key] = len(self.all)
        self.all.append(new_finding)

    def add_rest(self, queue: QueueMap, first: Finding) -> None:
        """Count units of a queue that are not described.

        Args:
            first: says it of the first of them, and how many they are.
        """
        number = self._rests.setdefault(_name(queue), len(self.all))
        if number == len(self.all):
            self.all.append(first)
            return
        before = self.all[number]
        count = before.count + first.count
        self.all[number] = replace(before, count=count, message=rest_message(count))


def rest_message(count: int) -> str:
    """What is said of units that are counted only."""
    return f"{count} more units that do not match" if count > 1 else "one more unit that does not match"


def _name(queue: QueueMap) -> tuple[str, int, bool]:
    return queue.topic, queue.queue_id, queue.is_batch
