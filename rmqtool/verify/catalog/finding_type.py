"""What the catalogue says about one kind of finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmqtool.verify.catalog.finding import Severity

RECOVER: Final = "recover"
REBUILD_QUEUES: Final = "rebuild --queues"
REBUILD_INDEX: Final = "rebuild --index"
REBUILD_CHECKPOINT: Final = "rebuild --checkpoint"
SALVAGE: Final = "salvage"
UNDO: Final = "undo"

ALL: Final = "all versions"


@dataclass(frozen=True)
class FindingType:
    """One kind of finding.

    Attributes:
        meaning: what is so in the store.
        brokers: (versions, what a broker of them does about it) in the order of versions.
        remedy: what mends it, or why nothing needs to be done.
        repair: the command that does, without the store's path.
        upstream: threads about it.
    """

    id: str
    severity: Severity
    meaning: str
    brokers: tuple[tuple[str, str], ...]
    remedy: str
    repair: str | None = None
    upstream: tuple[str, ...] = ()


def error(
    name: str,
    meaning: str,
    brokers: tuple[tuple[str, str], ...],
    remedy: str,
    repair: str | None = None,
    *upstream: str,
) -> FindingType:
    """A kind of finding of severity error."""
    return FindingType(name, Severity.ERROR, meaning, brokers, remedy, repair, upstream)


def warning(
    name: str,
    meaning: str,
    brokers: tuple[tuple[str, str], ...],
    remedy: str,
    repair: str | None = None,
    *upstream: str,
) -> FindingType:
    """A kind of finding of severity warning."""
    return FindingType(name, Severity.WARNING, meaning, brokers, remedy, repair, upstream)


def note(name: str, meaning: str, brokers: tuple[tuple[str, str], ...], remedy: str, *upstream: str) -> FindingType:
    """A kind of finding that needs no repair."""
    return FindingType(name, Severity.NOTE, meaning, brokers, remedy, None, upstream)
