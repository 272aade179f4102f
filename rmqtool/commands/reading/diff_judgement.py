"""What a comparison comes to: the verdict on it, what was not compared, and the next step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rmqtool.commands.options.store import OpenedStore
from rmqtool.compare.result import Comparison, Relation, Side
from rmqtool.engine.reading.unread_files import UnreadFiles
from rmqtool.verdict.command_line import CommandLine
from rmqtool.verdict.next_step import NextStep, blocked_step, cut_step
from rmqtool.verdict.presence import missing_log, reader_command
from rmqtool.verdict.verdict import Assessment, StoreVerdict


@dataclass(frozen=True)
class ComparedSide:
    """A side that is a store, and what makes further commands about it."""

    opened: OpenedStore
    line: CommandLine


def judgement(comparison: Comparison, differences: str, sides: Sequence[ComparedSide | None]) -> dict[str, Any]:
    """What the JSON of a comparison ends with.

    Args:
        differences: what differs, as a sentence; empty where nothing does.
        sides: the stores; None for a manifest.
    """
    stores = [side for side in sides if side is not None]
    missing = (missing_log(side.opened.store) for side in stores)
    readers = (reader_command(side.opened.store, side.line("verify")) for side in stores if side.opened.store.problems)
    assessment = Assessment(
        log_missing=next((one for one in missing if one is not None), None),
        unreadable=comparison.problems,
        reader=next(readers, ""),
        inconsistent=differences or None,
        not_looked_at=tuple(_left_out(comparison)),
    )
    step = _step(comparison, assessment, sides)
    return {**assessment.as_json(), "complete": not assessment.not_looked_at, **step.as_json()}


def _left_out(comparison: Comparison) -> Iterator[UnreadFiles]:
    for text in comparison.not_compared:
        yield UnreadFiles("", "not compared", text)
    yield from comparison.unequal_files
    for text in comparison.problems:
        yield UnreadFiles("", "not readable", text)
    if comparison.unresolved_blocks:
        text = (
            f"which messages differ in blocks: {comparison.unresolved_blocks}; the manifest has no digests of messages"
        )
        yield UnreadFiles("commitlog", "not compared", text)


def _step(comparison: Comparison, assessment: Assessment, sides: Sequence[ComparedSide | None]) -> NextStep:
    if (step := blocked_step(assessment)) is not None:
        return step
    if assessment.verdict is StoreVerdict.OK:
        return NextStep(None, "nothing to do")
    if assessment.verdict is StoreVerdict.NOT_FULLY_CHECKED:
        return NextStep(None, "what was left out may differ; rmqtool verify checks each store by itself", True)
    pairs: list[tuple[Side, ComparedSide]] = [
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
