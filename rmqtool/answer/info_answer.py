"""The answer of `info`, which has looked at names, sizes and the log's ends only."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

from rmqtool.answer.answer import (
    Answer,
    Assessment,
    FindingTally,
    NextStep,
    blocked_step,
    repair_step,
    undecoded_step,
    unknown_to_repair,
)
from rmqtool.answer.exit_codes import ExitCode
from rmqtool.answer.opened_store import CommandLine, OpenedStore
from rmqtool.answer.start import assessment_of_files
from rmqtool.engine.reading.log_presence import may_hold_messages
from rmqtool.engine.reading.summary import Shutdown, StoreSummary
from rmqtool.errors import UnknownSizeError, UnsupportedError
from rmqtool.findings.finding import REBUILD_DELAYS, StoreVerdict
from rmqtool.findings.registry import BY_ID
from rmqtool.forecast.unsimulated import demand_simulated
from rmqtool.report.text import counted
from rmqtool.sides.kinds import unread_files
from rmqtool.sides.unread import UnreadFiles
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.probe_lock import LockReport
from rmqtool.verify.files.log_files import log_file_findings
from rmqtool.verify.files.lost_configs import lost_configs


def answer_of_summary(
    opened: OpenedStore, line: CommandLine, summary: StoreSummary, lock: LockReport, repair: dict[str, Any] | None
) -> Answer:
    """Answer about the files of a store and the ends of its log; the exit code says only that they could be read.
    `repair` is the latest one whose journal is there.
    """
    store = opened.store
    coverage = [*unread_files(store)]
    if any(segment.size for segment in store.commitlog):
        text = "info looks at names, sizes and the log's ends only"
        coverage.append(UnreadFiles("commitlog", FileKind.COMMITLOG.value, text))
    tally = FindingTally()
    lost = (finding for finding in lost_configs(store, opened.rules) if finding.repair != REBUILD_DELAYS)
    for finding in chain(log_file_findings(store, None), lost):
        tally.add(finding, BY_ID[finding.id].remedy)
    # After a crash the log may be damaged as well: that the broker did not stop cleanly is not the worst of it before
    # the log is read.
    tally.crashed = summary.shutdown is Shutdown.ABNORMAL and not coverage and may_hold_messages(store)

    is_log_decoded = bool(store.commitlog) or not store.files.get(FileKind.DLEDGER)
    assessment = assessment_of_files(opened, line, "info", tally, coverage, is_log_decoded=is_log_decoded)
    is_rocksdb = FileKind.CONSUMEQUEUE_ROCKSDB in summary.undecoded
    lacks_queues = summary.log_end.last_record is not None and not (summary.queues or is_rocksdb)
    if assessment.inconsistent is None and lacks_queues:
        assessment = replace(assessment, inconsistent="there are messages but no consume queues")
    unlisted = set(map(str, store.unread_places))
    problems = [problem for problem in summary.problems if problem not in unlisted]
    if assessment.inconsistent is None and problems:
        more = f" (and {counted(len(problems) - 1, 'more problem')})" if len(problems) > 1 else ""
        assessment = replace(assessment, inconsistent=f"{problems[0]}{more}")

    if lock.is_in_use:
        step = NextStep(None, "reading is safe; stop the broker before you copy or change the store")
    elif summary.has_unfinished_repair and repair is None:
        reason = (
            "an unfinished repair blocks every broker start, and its journal in .rmqtool/undo is gone or cannot be "
            "read: restore the journal, or the store from a copy"
        )
        step = NextStep(None, reason, needs_decision=True)
    elif summary.has_unfinished_repair:
        step = repair_step(line, "undo", "an unfinished repair blocks every broker start; roll it back with:")
    else:
        step = _step(opened, line, summary, assessment, tally, lacks_queues=lacks_queues)
    return Answer(assessment, step, ExitCode.OK)


def _step(
    opened: OpenedStore,
    line: CommandLine,
    summary: StoreSummary,
    assessment: Assessment,
    tally: FindingTally,
    *,
    lacks_queues: bool,
) -> NextStep:
    """Next step with a command, if one helps, and the reason: the most important one first."""
    if summary.shutdown is Shutdown.NEVER_STARTED:
        return NextStep(None, "nothing to do; if you expected messages here, the path is wrong")
    if (step := blocked_step(assessment)) is not None:
        return step
    if FileKind.DLEDGER in summary.undecoded and summary.min_physical_offset is None:
        return undecoded_step(assessment, line)
    if (command := tally.repair()) is not None:
        unknown = tuple(unknown_to_repair(opened))
        return repair_step(line, command, "repair what names and sizes of the files show:", unknown)
    if summary.shutdown is Shutdown.ABNORMAL and may_hold_messages(opened.store):
        warning = (
            "do not start the broker and do not delete abort: a start truncates the commit log at the first record "
            "that it cannot read. Copy the store if there is room (cp -a --sparse=always). "
        )
        try:
            demand_simulated(opened.store, opened.rules)
        except UnknownSizeError as error:
            return NextStep(None, f"{warning}{error}. Then run: {line('forecast')}", needs_decision=True)
        except UnsupportedError:
            return NextStep(line("verify"), f"{warning}To see what of it can be read, run:")
        return NextStep(line("forecast"), f"{warning}To see what a start would lose, run:")
    if tally.remedy is not None:
        return NextStep(None, tally.remedy, needs_decision=True)
    if lacks_queues:
        reason = (
            "there are messages but no consume queues: a start rebuilds them, some versions only for the last files of "
            "the commit log; rebuild all of them first:"
        )
        return repair_step(line, "rebuild --queues", reason, tuple(unknown_to_repair(opened, queues=True)))
    if assessment.verdict is StoreVerdict.OK:
        return NextStep(None, "nothing to do; the store holds no messages")
    return NextStep(line("verify"), "info looks at names, sizes and the log's ends only; to check everything, run:")
