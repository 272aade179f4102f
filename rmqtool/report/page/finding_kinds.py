"""Findings by kind: counts of all, the first few of each, and how each broker version reacts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rmqtool.report.json_schemas import JsonObject

EXAMPLES_MAX: Final = 5
"""Findings of a kind that are listed."""
FEW: Final = 2
"""Number of findings listed of a kind where there are very many kinds."""
_ORDER: Final = ("error", "warning", "note")


@dataclass
class FindingKind:
    """One kind of finding; `count` findings, which stand for `things` (records, units, entries)."""

    id: str
    severity: str
    meaning: str
    brokers: Sequence[tuple[str, str]]
    remedy: str
    count: int = 0
    things: int = 0
    examples: list[JsonObject] = field(default_factory=list)

    @property
    def rest(self) -> int:
        """Number of findings that are not listed."""
        return self.count - len(self.examples)


@dataclass
class FindingKinds:
    """Collects findings; memory is bounded by the number of kinds."""

    _kinds: dict[str, FindingKind] = field(default_factory=dict)

    def add(self, finding: JsonObject, kind: FindingKind) -> None:
        """Count a finding, an object as `verify --format json` writes it; `kind` is used for the first of its kind."""
        own = self._kinds.setdefault(kind.id, kind)
        own.count += 1
        own.things += finding["count"]
        if len(own.examples) < EXAMPLES_MAX:
            own.examples.append(finding)

    def ordered(self, kinds_max: int) -> list[FindingKind]:
        """Errors first, then the most frequent kinds; if there are more kinds than these, each has fewer examples."""
        if len(self._kinds) > kinds_max:
            for kind in self._kinds.values():
                del kind.examples[FEW:]
        return sorted(self._kinds.values(), key=lambda kind: (_ORDER.index(kind.severity), -kind.count, kind.id))

    def counts(self) -> dict[str, int]:
        return {name: sum(kind.count for kind in self._kinds.values() if kind.severity == name) for name in _ORDER}
