"""The one next step: a command that accepts the store and has something to do, or what a person must decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rmqtool.errors import how_to_install
from rmqtool.sides.unread import ReadBy
from rmqtool.store.unproven_sizes import SIZE_UNKNOWN
from rmqtool.verdict.command_line import CommandLine
from rmqtool.verdict.tally import FindingTally
from rmqtool.verdict.verdict import Assessment, StoreVerdict


@dataclass(frozen=True)
class NextStep:
    """What to do next.

    Attributes:
        command: what to type; None where no command helps.
        needs_decision: whether only a person can say what to do.
    """

    command: str | None
    reason: str
    needs_decision: bool = False

    def as_json(self) -> dict[str, Any]:
        """What every command that judges a store has in its JSON."""
        step = {"command": self.command, "reason": self.reason}
        return {"next_step": step, "needs_decision": self.needs_decision}


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
    """What to do about files that are not looked at: install what reads them, convert them, or ask the broker."""
    readers = {files.read_by for files in assessment.not_looked_at}
    if ReadBy.SIZES in readers:
        return NextStep(None, SIZE_UNKNOWN, True)
    if ReadBy.VERIFY in readers:
        return NextStep(line("verify"), "check what this command does not look at:")
    if ReadBy.DRIVER in readers:
        return NextStep(None, f"to read the consume queues, {how_to_install('rocksdb')}; then run this again", True)
    return NextStep(None, "only the broker itself can check and recover what was not looked at", True)


def repair_step(line: CommandLine, command: str, reason: str, unknown: Sequence[str] = ()) -> NextStep:
    """A command that changes the store; one elsewhere has to be copied first.

    Args:
        unknown: what the command has to know and nothing in the store shows, as sentences.
    """
    if not line.is_local:
        return NextStep(None, f"copy the store to a disk, where rmqtool {command} repairs it", True)
    if unknown:
        return NextStep(None, f"{'; '.join((reason.rstrip(':'), *unknown))}. Then run: {line(command)}", True)
    return NextStep(line(command), reason)


def cut_step(line: CommandLine, command: str) -> NextStep:
    """The command that ends the log before records that came back."""
    return NextStep(line(command), "a person must decide whether the records that came back are discarded:", True)


def step_after_verify(
    line: CommandLine, assessment: Assessment, repair: str | None, tally: FindingTally, unknown: Sequence[str],
    *, left_out: bool,
) -> NextStep:  # fmt: skip
    """What to do about what was found.

    Args:
        repair: the command that repairs most of it; None where none does.
        unknown: see `repair_step`.
        left_out: whether options or a time limit left something out, so that verify itself can continue.
    """
    if (step := blocked_step(assessment)) is not None:
        return step
    if repair is not None:
        return repair_step(line, repair, "repair what was found:", unknown)
    if tally.cut is not None and line.is_local:
        return cut_step(line, tally.cut)
    if tally.remedy is not None:
        return NextStep(None, tally.remedy, True)
    if left_out and all(files.read_by is not ReadBy.SIZES for files in assessment.not_looked_at):
        return NextStep(line("verify"), "check what was left out:")
    if assessment.verdict is StoreVerdict.WILL_NOT_START:
        return NextStep(None, "rmqtool does not repair this: correct by hand what keeps the broker from starting", True)
    if assessment.verdict is not StoreVerdict.OK:
        return undecoded_step(assessment, line)
    return NextStep(None, "nothing to do")


def step_after_forecast(
    line: CommandLine, assessment: Assessment, repair: str, unknown: Sequence[str] = ()
) -> NextStep:
    """What to do before a broker is started.

    Args:
        repair: the command that keeps what a start would lose.
        unknown: see `repair_step`.
    """
    if (step := blocked_step(assessment)) is not None:
        return step
    if assessment.verdict is StoreVerdict.OK:
        return NextStep(None, "nothing to do; the broker can be started")
    if assessment.verdict is StoreVerdict.NOT_FULLY_CHECKED:
        return undecoded_step(assessment, line)
    return repair_step(line, repair, "repair the store before the broker is started:", unknown)
