"""Findings that are not reported yet: beside a running broker, what looks wrong once may only be half written."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final

from rmqtool.verify.catalog.finding import Finding

LOOKS_MAX: Final = 4
"""Looks after which findings that change from look to look are reported as they are."""


def finding_key(finding: Finding) -> Hashable:
    """What tells a finding from others."""
    return (
        finding.id, finding.file, finding.file_position, finding.physical_offset, finding.topic, finding.queue_id,
        finding.queue_offset,
    )  # fmt: skip


@dataclass
class Suspects:
    """The findings of one thing that is looked at again.

    Attributes:
        settle_seconds: the least time between two looks.
    """

    settle_seconds: float
    clock: Callable[[], float] = time.monotonic
    subject: Hashable = None
    _keys: frozenset[Hashable] = frozenset()
    _looks: int = 0
    _next_at: float = field(default=0.0, init=False)

    def clear(self) -> None:
        """Forget them."""
        self.subject, self._keys, self._looks = None, frozenset(), 0

    def is_early(self, subject: Hashable) -> bool:
        """Whether it is too early to look at this again."""
        return self.subject == subject and self.clock() < self._next_at

    def confirms(self, subject: Hashable, findings: Iterable[Finding]) -> bool:
        """Whether what was seen now was seen before, so that it is to be reported; else it is looked at again."""
        keys = frozenset(map(finding_key, findings))
        if self.subject != subject:
            self.subject, self._keys, self._looks = subject, frozenset(), 0
        is_same = self._looks > 0 and keys <= self._keys
        self._keys, self._looks = keys, self._looks + 1
        self._next_at = self.clock() + self.settle_seconds
        if is_same or self._looks >= LOOKS_MAX:
            self.clear()
            return True
        return False
