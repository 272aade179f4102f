"""The one catalog of findings: every id that exists, how much it matters, what brokers do about it, what repairs it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from rmqtool.findings import commitlog, consumers, others, queues, rocksdb, side_stores, tiered
from rmqtool.findings.finding import Finding, FindingType

CATALOG: Final[tuple[FindingType, ...]] = tuple(
    sorted(
        (
            *commitlog.ENTRIES,
            *queues.ENTRIES,
            *others.ENTRIES,
            *consumers.ENTRIES,
            *rocksdb.ENTRIES,
            *side_stores.ENTRIES,
            *tiered.ENTRIES,
        ),
        key=lambda entry: (entry.id.partition(".")[0], entry.id),
    )
)
"""All kinds of finding, sorted by id."""
BY_ID: Final = MappingProxyType({entry.id: entry for entry in CATALOG})


def finding(kind: str, file: str, message: str, **details: Any) -> Finding:
    """A finding with what the catalog says of its kind; `details` are further fields of `Finding`."""
    entry = BY_ID[kind]
    details.setdefault("repair", entry.repair)
    return Finding(kind, entry.severity, file, message, upstream=entry.upstream, **details)
