"""The verdict on a store: what matters most of what was seen, and never more than what was looked at allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import Any, Final, Self

from rmqtool.report.text import counted
from rmqtool.sides.unread import UnreadFiles

NAMED_MAX: Final = 3
"""Files or kinds of files that a headline names; the rest is counted."""


class StoreVerdict(StrEnum):
    """In the order of consequence: the first that applies is the verdict."""

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
        """As a headline begins."""
        return self.value.upper().replace("-", " ")


@dataclass(frozen=True)
class MissingLog:
    """A commit log, or a directory of it, that is not where it is looked for.

    Attributes:
        text: what is missing, as a sentence.
        options: name directories in which the log may be; empty where none is known.
    """

    text: str
    options: str = ""


@dataclass(frozen=True)
class Assessment:
    """What is known of a store, and what is not.

    Attributes:
        log_missing: why messages cannot be there; None where all of the log is there.
        unreadable: what this user may not read, as sentences; of the log first.
        reader: the command that reads it, as a sentence.
        start_failures: broker version and why it does not start.
        lost: messages that a start, or the repair in question, gives up.
        damaged: records that cannot be read, or are not what was written.
        missing_files: files of the log that are missing between others, or that the queues point into.
        inconsistent: what does not match the log, as a sentence; None where all that was checked does.
        not_looked_at: what a broker uses and this command did not look at.
    """

    log_missing: MissingLog | None = None
    unreadable: tuple[str, ...] = ()
    reader: str = ""
    start_failures: Mapping[str, str] = field(default_factory=dict)
    lost: int = 0
    damaged: int = 0
    missing_files: int = 0
    inconsistent: str | None = None
    not_looked_at: tuple[UnreadFiles, ...] = ()

    @property
    def verdict(self) -> StoreVerdict:
        """The first that applies."""
        applies = {
            StoreVerdict.LOG_MISSING: self.log_missing is not None,
            StoreVerdict.NOT_READABLE: bool(self.unreadable),
            StoreVerdict.WILL_NOT_START: bool(self.start_failures),
            StoreVerdict.WOULD_LOSE: self.lost > 0,
            StoreVerdict.DAMAGED: self.damaged + self.missing_files > 0,
            StoreVerdict.INCONSISTENT: self.inconsistent is not None,
            StoreVerdict.NOT_FULLY_CHECKED: bool(self.not_looked_at),
        }
        return next((verdict for verdict in StoreVerdict if applies.get(verdict)), StoreVerdict.OK)

    @property
    def headline(self) -> str:
        """The verdict in one sentence, with the number that matters."""
        verdict = self.verdict
        return f"{verdict.words}: {self._text(verdict)}"

    def with_coverage(self, *further: UnreadFiles) -> Self:
        """The same, with more that was not looked at."""
        return replace(self, not_looked_at=tuple(dict.fromkeys(chain(self.not_looked_at, further))))

    def as_json(self) -> dict[str, Any]:
        """What every command that judges a store has in its JSON."""
        return {
            "verdict": self.verdict.value,
            "headline": self.headline,
            "not_looked_at": [files.as_json() for files in self.not_looked_at],
        }

    def _text(self, verdict: StoreVerdict) -> str:
        match verdict:
            case StoreVerdict.LOG_MISSING:
                return self.log_missing.text if self.log_missing is not None else ""
            case StoreVerdict.NOT_READABLE:
                return f"{_some(self.unreadable)}. {self.reader}".strip()
            case StoreVerdict.WILL_NOT_START:
                versions = ", ".join(self.start_failures)
                reasons = "; ".join(dict.fromkeys(self.start_failures.values()))
                if len(self.start_failures) > 1:
                    return f"brokers ({versions}) fail at {reasons}"
                return f"a broker {versions} fails at {reasons}"
            case StoreVerdict.WOULD_LOSE:
                return f"{counted(self.lost, 'message')} would be lost"
            case StoreVerdict.DAMAGED:
                parts = []
                if self.damaged:
                    parts.append(f"{counted(self.damaged, 'record')} unreadable or wrong")
                if self.missing_files:
                    parts.append(f"{counted(self.missing_files, 'log file')} missing")
                return "; ".join(parts)
            case StoreVerdict.INCONSISTENT:
                return self.inconsistent or ""
            case StoreVerdict.NOT_FULLY_CHECKED:
                left_out = _some([files.text for files in self.not_looked_at])
                return f"no problems in what was checked; not checked: {left_out}"
            case StoreVerdict.OK:
                return "no problems found"


def _some(texts: list[str] | tuple[str, ...]) -> str:
    shown = "; ".join(texts[:NAMED_MAX])
    return shown + (f" and {len(texts) - NAMED_MAX} more" if len(texts) > NAMED_MAX else "")
