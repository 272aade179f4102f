"""The answer about a store: its verdict, the exit code, and the one next step, a command or a decision of a person.

A step names a command only where that accepts the store and has something to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, Self

from rmqtool.answer.exit_codes import ExitCode
from rmqtool.answer.opened_store import CommandLine, OpenedStore
from rmqtool.errors import UnknownSizeError, how_to_install
from rmqtool.findings.finding import (
    MISSING_LOG_FILE,
    REBUILD_COMPACTION,
    REBUILD_DELAYS,
    REBUILD_TIMER,
    REBUILD_TOPICS,
    Finding,
    Severity,
    StoreVerdict,
)
from rmqtool.repair.recover.log_steps import demand_shown_size
from rmqtool.report.text import counted
from rmqtool.sides.timer.loaded import timer_files
from rmqtool.sides.unread import ReadBy, UnreadFiles
from rmqtool.store.directory import SIZE_UNKNOWN
from rmqtool.store.dledger_files import with_dledger_log

NAMED_MAX: Final = 3
"""Files or kinds of files that a headline names; the rest is counted."""


@dataclass(frozen=True)
class MissingLog:
    """A commit log, or a directory of it, that is not where it is looked for; and options with where it may be."""

    text: str
    options: str = ""


@dataclass(frozen=True)
class Assessment:
    """Known and unknown facts about a store.

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
        """The assessment with more files that were not checked."""
        return replace(self, not_looked_at=tuple(dict.fromkeys(chain(self.not_looked_at, further))))

    def as_json(self) -> dict[str, Any]:
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


@dataclass(frozen=True)
class NextStep:
    """Next step for a person: what to type, or None where no command helps; and whether only a person can decide."""

    command: str | None
    reason: str
    needs_decision: bool = False

    def as_json(self) -> dict[str, Any]:
        step = {"command": self.command, "reason": self.reason}
        return {"next_step": step, "needs_decision": self.needs_decision}


@dataclass(frozen=True)
class Answer:
    """Final answer of a command about a store."""

    assessment: Assessment
    step: NextStep
    exit_code: ExitCode

    def as_json(self) -> dict[str, Any]:
        """Fields at the end of the JSON of every command that judges a store."""
        return {**self.assessment.as_json(), **self.step.as_json()}


def blocked_step(assessment: Assessment) -> NextStep | None:
    """The step where nothing can be judged before a person has acted; None elsewhere."""
    if assessment.verdict is StoreVerdict.LOG_MISSING:
        if assessment.log_missing is not None and (options := assessment.log_missing.options):
            reason = f"if those files are this store's commit log, pass {options}; else mount its disk"
            return NextStep(None, reason, True)
        return NextStep(None, "mount the disk of the commit log, or correct its path, and look again", True)
    if assessment.verdict is StoreVerdict.NOT_READABLE:
        return NextStep(None, assessment.reader or "correct the permissions, and look again", True)
    return None


def undecoded_step(assessment: Assessment, line: CommandLine) -> NextStep:
    """Next step for files that are not checked: install the library that reads them, convert, or ask the broker."""
    readers = {files.read_by for files in assessment.not_looked_at}
    if ReadBy.SIZES in readers:
        return NextStep(None, SIZE_UNKNOWN, True)
    if ReadBy.VERIFY in readers:
        return NextStep(line("verify"), "check what this command does not look at:")
    if ReadBy.DRIVER in readers:
        return NextStep(None, f"to read the consume queues, {how_to_install('rocksdb')}; then run this again", True)
    return NextStep(None, "only the broker itself can check and recover what was not looked at", True)


def repair_step(line: CommandLine, command: str, reason: str, unknown: Sequence[str] = ()) -> NextStep:
    """A command that changes the store; one elsewhere has to be copied first, and what the command has to know and
    nothing in the store shows is said before, as sentences.
    """
    if not line.is_local:
        return NextStep(None, f"copy the store to a disk, where rmqtool {command} repairs it", True)
    if unknown:
        return NextStep(None, f"{'; '.join((reason.rstrip(':'), *unknown))}. Then run: {line(command)}", True)
    return NextStep(line(command), reason)


def cut_step(line: CommandLine, command: str) -> NextStep:
    """The command that ends the log before records that came back."""
    return NextStep(line(command), "a person must decide whether the records that came back are discarded:", True)


def unknown_to_repair(
    opened: OpenedStore, *, queues: bool = False, index: bool = False, timer: bool = False, compaction: bool = False
) -> Iterator[str]:
    """Facts that a repair of derived files needs and nothing in the store shows, as sentences."""
    store = opened.store
    if not opened.is_version_known:
        yield "nothing in the store shows its broker version; add --broker-version X.Y.Z"
    if (unread := opened.unread_sizes) is not None:
        yield str(unread)
    try:
        demand_shown_size(store)
        # Late, for repairs bring numpy with them, which `info` must not wait for.
        if timer:
            from rmqtool.repair.timer import log_file_size

            log_file_size(store, timer_files(store).log_file_size)
        if compaction:
            from rmqtool.repair.compaction import compaction_sizes

            compaction_sizes(store)
        if not (queues or index):
            return
        from rmqtool.repair.derived.builder import dispatch_settings, index_shape_of, sizes_of
        from rmqtool.repair.derived.result import BuildOptions

        store = with_dledger_log(store) if opened.rules.dledger else store
        if queues and store.queue_database is None:  # units in RocksDB are in no file of a set size
            settings = dispatch_settings(store, opened.rules, BuildOptions())
            sizes_of(store, BuildOptions(), settings, demands=True)
        if index:
            index_shape_of(store, demands=True)
    except UnknownSizeError as error:
        yield str(error).removeprefix(f"{store.view.label}: ")


# Sums findings up for a verdict as they come; none is kept, for a badly damaged store has very many.

ABORT: Final = "store.abort-present"
TAIL: Final = "commitlog.resurrected-tail"
_OF_FILES: Final = frozenset(
    {
        "commitlog.wrong-file-size",
        "commitlog.empty-file",
        "commitlog.stray-file",
        "commitlog.missing-end-blank",
        "dledger.unloadable-file",
    }
)
"""Errors about files of the log as such: every record can be read."""
_LOGS: Final = ("commitlog.", "dledger.")
_NOT_DERIVED: Final = ("commitlog", "config", "dledger", "store")
"""Kinds of findings that do not say that something differs from the log."""
_URGENT: Final = ("undo", "salvage", "recover", "rebuild")
"""Commands that repair more than the ones after them; what is left are parts of `rebuild`."""


_ALONE: Final = frozenset(
    part
    for repair in (REBUILD_TIMER, REBUILD_DELAYS, REBUILD_TOPICS, REBUILD_COMPACTION)
    for part in repair.split()[1:]
)
"""Parts of `rebuild` that are rebuilt alone, after the others."""


class FindingTally:
    """Counts of findings."""

    def __init__(self) -> None:
        self.damaged = 0
        self.missing_files = 0
        self.crashed = False
        self.cut: str | None = None
        """The command that ends the log before records that came back; a person decides."""
        self.came_back = 0
        self._others: dict[str, int] = {}
        self._repairs: dict[str, set[str]] = {}
        self._remedies: dict[str, str] = {}

    def add(self, finding: Finding, remedy: str = "") -> None:
        """Count a finding, with what the catalog says repairs it."""
        if finding.severity is Severity.NOTE:
            return
        if finding.id == TAIL:
            self.cut, self.came_back = finding.repair, finding.count
            return
        if finding.repair is not None:
            self._repairs.setdefault(finding.repair, set()).add(finding.id)
        else:
            self._remedies.setdefault(finding.id, remedy)
        is_of_log = finding.id.startswith(_LOGS) and finding.severity is Severity.ERROR
        if finding.id == MISSING_LOG_FILE:
            self.missing_files += finding.count
        elif is_of_log and finding.id not in _OF_FILES:
            self.damaged += finding.count
        elif finding.id == ABORT:
            self.crashed = True
        else:
            self._others[finding.id] = self._others.get(finding.id, 0) + finding.count

    def repair(self, *, abort_stays: bool = False) -> str | None:
        """The one command that repairs most of it; None where none does, or none may mark the store as cleanly shut
        down.
        """
        repairs = {repair for repair, ids in self._repairs.items() if not abort_stays or ids != {ABORT}}
        for command in _URGENT:
            if command in repairs:
                return command
        parts = sorted({part for repair in repairs for part in repair.split()[1:]})
        parts = [part for part in parts if part not in _ALONE] or parts[:1]
        return " ".join(["rebuild", *parts]) if repairs else None

    def is_about(self, kind: str) -> bool:
        """True if a finding is about files of a kind, which is the first part of its id."""
        return any(finding_id.startswith(f"{kind}.") for finding_id in self._others)

    @property
    def remedy(self) -> str | None:
        """Remedy for the first finding that no command fixes, as a sentence."""
        return next((f"{kind}: {text}" for kind, text in self._remedies.items()), None)

    def inconsistent(self, *, is_log_decoded: bool) -> str | None:
        """Data that does not match the log, as a sentence; None where all that was checked does."""
        counts: Counter[str] = Counter()
        for finding_id, count in self._others.items():
            counts[finding_id.partition(".")[0]] += count
        own = [f"{counts.pop(kind)} in {kind}" for kind in _NOT_DERIVED if kind in counts]
        parts = []
        if self.came_back:
            what = "record of the commit log is" if self.came_back == 1 else "records of the commit log are"
            parts.append(f"the last {self.came_back} {what} older than the one before: a truncated tail came back")
        if counts:
            verb = "does" if len(counts) == 1 else "do"
            parts.append(f"{', '.join(sorted(counts))} {verb} not match the commit log ({counts.total()})")
        if own:
            parts.append(f"findings: {', '.join(own)}")
        if self.crashed and is_log_decoded:
            parts.append("the broker did not stop cleanly")
        return "; ".join(parts) or None
