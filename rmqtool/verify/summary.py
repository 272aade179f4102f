"""The summary of a run of verify: counts, coverage, the range of the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqtool.findings.finding import Finding
from rmqtool.sides.unread import UnreadFiles


@dataclass
class Summary:
    """Counts of a run.

    Attributes:
        findings: by id; a finding that stands for many things counts once.
        complete: False where options, a budget or a running broker left a part out, or something is not decoded.
        not_looked_at: what a broker uses and this run did not look at; empty where `complete` is true.
        splits_done, splits: of the log.
        removed_before: physical offsets before which messages of topics were removed, by topic.
        checked_bytes: of all files that were looked at; `left_out_bytes` are those that were not.
    """

    findings: Counter[str] = field(default_factory=Counter)
    severities: Counter[str] = field(default_factory=Counter)
    record_count: int = 0
    unit_count: int = 0
    entry_count: int = 0
    checked_bytes: int = 0
    left_out_bytes: int = 0
    splits: int = 0
    splits_done: int = 0
    complete: bool = True
    seconds: float = 0.0
    log_begin: int | None = None
    log_end: int | None = None
    not_looked_at: tuple[UnreadFiles, ...] = ()
    removed_before: Mapping[str, int] = field(default_factory=dict)

    def add(self, new_finding: Finding) -> None:
        """Count a finding."""
        self.findings[new_finding.id] += 1
        self.severities[new_finding.severity.value] += 1

    def as_json(self) -> dict[str, Any]:
        """The summary with JSON's types, in the words that scripts rely on."""
        return {
            "findings": dict(sorted(self.findings.items())),
            "checked": {
                "records": self.record_count,
                "bytes": self.checked_bytes,
                "units": self.unit_count,
                "entries": self.entry_count,
            },
            "left_out_bytes": self.left_out_bytes,
            "complete": self.complete,
            "not_looked_at": [files.as_json() for files in self.not_looked_at],
        }
