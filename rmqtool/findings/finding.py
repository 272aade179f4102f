"""A finding: one thing that is wrong with a store, or worth saying about it; and what is known of its kind.

Data, never an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum, StrEnum
from functools import partial
from typing import Any, Final

MISSING_LOG_FILE: Final = "commitlog.missing-file"
TOMBSTONE_FINDING: Final = "commitlog.tombstone"
"""Of a record that replaces a lost message after a repair: a note, so the row is no bad range."""
BACKUP_BETTER: Final = "config.backup-better"
NOT_READABLE_BY_VERSION: Final = "commitlog.not-readable-by-version"


class StoreVerdict(StrEnum):
    """On a store, in the order of consequence: the first that applies is the verdict."""

    LOG_MISSING = "log-missing"
    NOT_READABLE = "not-readable"
    WILL_NOT_START = "will-not-start"
    WOULD_LOSE = "would-lose"
    DAMAGED = "damaged"
    INCONSISTENT = "inconsistent"
    NOT_FULLY_CHECKED = "not-fully-checked"
    OK = "ok"

    @property
    def words(self) -> str:
        return self.value.upper().replace("-", " ")


VERDICT_STYLES: Final[Mapping[str, str]] = {
    StoreVerdict.OK: "good",
    StoreVerdict.NOT_FULLY_CHECKED: "open",
    StoreVerdict.INCONSISTENT: "open",
}
"""How screens show a verdict; the others are bad."""


class Severity(Enum):
    """How much a finding matters; the value stands in JSON."""

    ERROR = "error"
    """Data is lost or cannot be read."""
    WARNING = "warning"
    """Derived data is wrong and can be made again, or a broker would do something that an operator should know of."""
    NOTE = "note"
    """Expected; said so that nobody wonders."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: where, what was expected, and the command that repairs it. Made by `registry.finding`.

    Attributes:
        file: path relative to the store; a directory where a whole file or queue is missing.
        length: bytes concerned, from `file_position` on.
        count: things of this kind that the finding stands for (units, messages, entries), which lie together.
        expected: what should stand there, as text; None where that is not known.
        candidate: what may have happened to the bytes, as far as the bytes tell (the one flipped bit, for instance).
        repair: the command that repairs it, without the store's path; None where nothing has to be done or can be.
        upstream: threads of the broker's developers and users about it, as `owner/repository#number`.
    """

    id: str
    severity: Severity
    file: str
    message: str
    file_position: int | None = None
    physical_offset: int | None = None
    length: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    count: int = 1
    expected: str | None = None
    found: str | None = None
    candidate: str | None = None
    repair: str | None = None
    upstream: tuple[str, ...] = ()

    @property
    def place(self) -> tuple[str, int, str, str, int, int]:
        """The order in which findings are shown: by file, then by place in it."""
        return (
            self.file,
            -1 if self.file_position is None else self.file_position,
            self.id,
            self.topic or "",
            -1 if self.queue_id is None else self.queue_id,
            -1 if self.queue_offset is None else self.queue_offset,
        )

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "severity": self.severity.value, "upstream": list(self.upstream)}


RECOVER: Final = "recover"
REBUILD: Final = "rebuild"
REBUILD_QUEUES: Final = "rebuild --queues"
REBUILD_INDEX: Final = "rebuild --index"
REBUILD_CHECKPOINT: Final = "rebuild --checkpoint"
REBUILD_TIMER: Final = "rebuild --timer"
REBUILD_DELAYS: Final = "rebuild --delay-offsets"
REBUILD_TOPICS: Final = "rebuild --topics"
REBUILD_COMPACTION: Final = "rebuild --compaction"
SALVAGE: Final = "salvage"
UNDO: Final = "undo"

ALL: Final = "all versions"
Brokers = str | tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class FindingType:
    """One kind of finding: what is so in the store, what brokers do about it, by versions in order, and what repairs
    it, or why nothing needs to be done; with the command, without the store's path, and threads about it.
    """

    id: str
    severity: Severity
    meaning: str
    brokers: tuple[tuple[str, str], ...]
    remedy: str
    repair: str | None = None
    upstream: tuple[str, ...] = ()


def _finding_type(
    severity: Severity,
    name: str,
    meaning: str,
    brokers: Brokers,
    remedy: str,
    repair: str | None = None,
    *upstream: str,
) -> FindingType:
    """A kind of finding; `brokers` is a sentence where all versions do the same."""
    by_version = ((ALL, brokers),) if isinstance(brokers, str) else brokers
    return FindingType(name, severity, meaning, by_version, remedy, repair, upstream)


error = partial(_finding_type, Severity.ERROR)
warning = partial(_finding_type, Severity.WARNING)


def note(name: str, meaning: str, brokers: Brokers, remedy: str, *upstream: str) -> FindingType:
    """A kind of finding that needs no repair."""
    return _finding_type(Severity.NOTE, name, meaning, brokers, remedy, None, *upstream)
