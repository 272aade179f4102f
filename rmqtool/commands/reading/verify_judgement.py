"""What `verify` makes of the findings of a store: verdict, next step and exit code; tasks of Spark judge so too.

Tasks need not have what commands need: this file and `judgement.py` import neither typer nor rich.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from rmqtool.commands.command_list import COMMANDS
from rmqtool.commands.exit_codes import ExitCode
from rmqtool.commands.reading.judgement import assessment_of, unknown_to_repair
from rmqtool.repair.derived.clean_state import abort_reason
from rmqtool.sides.kinds import unread_files
from rmqtool.store.dledger_files import reads_dledger
from rmqtool.verdict.next_step import NextStep, step_after_verify
from rmqtool.verdict.verdict import Assessment, StoreVerdict

if TYPE_CHECKING:
    from rmqtool.commands.reading.judgement import JudgedStore
    from rmqtool.store.location import StoreLocation
    from rmqtool.verdict.command_line import CommandLine
    from rmqtool.verdict.tally import FindingTally
    from rmqtool.verify.summary import Summary

UNREADABLE: Final = ("commitlog.unreadable-range", "consumequeue.unreadable-range", "store.unreadable")


def exit_code_of(opened: JudgedStore, assessment: Assessment, summary: Summary) -> ExitCode:
    """How a run of verify ends."""
    if assessment.verdict is StoreVerdict.LOG_MISSING:
        return ExitCode.FINDINGS
    if opened.store.problems or any(summary.findings[kind] for kind in UNREADABLE):
        return ExitCode.FAILED
    return ExitCode.OK if assessment.verdict is StoreVerdict.OK else ExitCode.FINDINGS


def judged(
    opened: JudgedStore, line: CommandLine, tally: FindingTally, summary: Summary
) -> tuple[Assessment, NextStep]:
    """What findings and coverage come to, and what to do about it."""
    assessment = assessment_of(opened, line, "verify", tally, summary.not_looked_at)
    decoded = {files.path for files in unread_files(opened.store)}
    left_out = any(files.path not in decoded for files in summary.not_looked_at)
    unknown = unknown_to_repair(
        opened,
        queues=tally.is_about("consumequeue"),
        index=tally.is_about("index"),
        timer=tally.is_about("timer"),
        compaction=tally.is_about("compaction"),
    )
    repair = _repair(opened, tally)
    return assessment, step_after_verify(line, assessment, repair, tally, tuple(unknown), left_out=left_out)


def repair_command(repair: str | None, place: StoreLocation) -> str | None:
    """The command line that repairs a finding; None where there is none."""
    if repair is None or place.path is None or repair.split()[0] not in COMMANDS:
        return None
    return f"rmqtool {repair} {shlex.quote(str(place))}"


def _repair(opened: JudgedStore, tally: FindingTally) -> str | None:
    """The command that repairs most of what was found; None where none has anything to do."""
    store = opened.store
    repair = tally.repair(abort_stays=store.has_abort and abort_reason(store, opened.rules) is not None)
    if (not store.commitlog or reads_dledger(store)) and (repair == "recover" or tally.damaged):
        return None  # nothing is rebuilt from a damaged log of DLedger
    return repair
