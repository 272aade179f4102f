"""The answer of `diff`: the result of a comparison of two stores, and what was not compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rmqtool.answer.answer import Answer, Assessment, NextStep, blocked_step, cut_step
from rmqtool.answer.exit_codes import ExitCode
from rmqtool.answer.opened_store import CommandLine, OpenedStore
from rmqtool.answer.presence import missing_log, reader_command
from rmqtool.compare.result import Comparison, Relation
from rmqtool.findings.finding import StoreVerdict
from rmqtool.sides.unread import UnreadFiles


@dataclass(frozen=True)
class ComparedSide:
    """A side that is a store, with the command line for further commands about it."""

    opened: OpenedStore
    line: CommandLine


def answer_of_comparison(comparison: Comparison, differences: str, sides: Sequence[ComparedSide | None]) -> Answer:
    """Answer of a comparison; what differs is a sentence, empty where nothing does, and a side None for a manifest."""
    stores = [side for side in sides if side is not None]
    missing = (missing_log(side.opened.store) for side in stores)
    readers = (reader_command(side.opened.store, side.line("verify")) for side in stores if side.opened.store.problems)
    not_looked_at = [
        *(UnreadFiles("", "not compared", text) for text in comparison.not_compared),
        *comparison.unequal_files,
        *(UnreadFiles("", "not readable", text) for text in comparison.problems),
    ]
    if comparison.unresolved_blocks:
        text = (
            f"which messages differ in blocks: {comparison.unresolved_blocks}; the manifest has no digests of messages"
        )
        not_looked_at.append(UnreadFiles("commitlog", "not compared", text))
    assessment = Assessment(
        log_missing=next((one for one in missing if one is not None), None),
        unreadable=comparison.problems,
        reader=next(readers, ""),
        inconsistent=differences or None,
        not_looked_at=tuple(not_looked_at),
    )
    code = ExitCode.OK if assessment.verdict is StoreVerdict.OK else ExitCode.FINDINGS
    if comparison.problems:
        code = ExitCode.FAILED
    return Answer(assessment, _step(comparison, assessment, sides), code)


def _step(comparison: Comparison, assessment: Assessment, sides: Sequence[ComparedSide | None]) -> NextStep:
    if (step := blocked_step(assessment)) is not None:
        return step
    if assessment.verdict is StoreVerdict.OK:
        return NextStep(None, "nothing to do")
    if assessment.verdict is StoreVerdict.NOT_FULLY_CHECKED:
        return NextStep(None, "what was left out may differ; rmqtool verify checks each store by itself", True)
    pairs = [
        (result, side) for result, side in zip((comparison.a, comparison.b), sides, strict=True) if side is not None
    ]
    for result, side in pairs:
        if result.tail is not None and side.line.is_local:
            return cut_step(side.line, f"recover --cut-at {result.tail.begin}")
    for result, side in pairs:
        if result.totals.bad_ranges:
            return NextStep(side.line("verify"), "the commit log of this store is damaged; this lists what is wrong:")
    shorter = {Relation.A_IS_PREFIX: "A", Relation.B_IS_PREFIX: "B"}.get(comparison.relation)
    if shorter is not None:
        return NextStep(None, f"{shorter} ends earlier; a person must decide whether that store is complete", True)
    return NextStep(None, "a person must decide which store is right, A or B", True)
