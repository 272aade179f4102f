"""What a campaign came to: how many points it tried, and what failed at which."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

SHOWN_MAX = 5


@dataclass
class Tally:
    """Counts by what was tried, and a text for each failure."""

    points: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    """How runs ended where several ends are right."""
    failures: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.points += other.points
        self.outcomes += other.outcomes
        self.failures += other.failures

    def check(self, what: str, differing: list[str], where: str) -> None:
        """Count a point, and keep what is wrong there."""
        self.points[what] += 1
        if differing:
            shown = "; ".join(differing[:SHOWN_MAX])
            self.failures.append(f"{what}: {where}: {shown}")

    def demand_none(self) -> None:
        """Raises AssertionError where something failed."""
        shown = "\n".join(self.failures[:20])
        assert not self.failures, f"{len(self.failures)} of {self.points.total()} points failed:\n{shown}"
        assert self.points, "nothing was tried"

    def lines(self) -> list[str]:
        """For a person: counts first, failures after them."""
        counts = [f"{count:>8} {what}" for what, count in sorted(self.points.items())]
        total = f"{self.points.total():>8} points, failures: {len(self.failures)}"
        ends = [f"{count:>8} of them: {what}" for what, count in sorted(self.outcomes.items())]
        return [*counts, *ends, total, *(f"FAILED {text}" for text in self.failures)]
