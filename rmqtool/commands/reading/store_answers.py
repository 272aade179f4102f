"""Answer of `verify` for one store among several, as rows: its summary, then its findings in order.

Tasks of Spark make them, so this file imports neither typer nor rich.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rmqtool.answer.answer import FindingTally
from rmqtool.answer.exit_codes import ExitCode
from rmqtool.answer.opened_store import CommandLine, OpenedStore
from rmqtool.answer.verify_answer import answer_of_verify
from rmqtool.commands.command_list import command_of_repair
from rmqtool.engine.reading.version_evidence import infer_version
from rmqtool.engine.rules.versions import EXAMINED, NEWEST, rules_for
from rmqtool.errors import UnreadableError
from rmqtool.findings.finding import Finding, StoreVerdict
from rmqtool.findings.registry import BY_ID
from rmqtool.pipeline.tables.findings_table import StoreCheck
from rmqtool.pipeline.tables.fleet_findings import check_store
from rmqtool.pipeline.tables.options import UNREADABLE, UnreadStore
from rmqtool.report.json_schemas import JsonRow
from rmqtool.report.screens.verify_screen import MORE, PER_FILE_MAX
from rmqtool.store.location import StoreLocation, is_url
from rmqtool.verify.survey.context import VerifyOptions
from rmqtool.verify.survey.result import Summary

if TYPE_CHECKING:
    from rmqtool.verify.survey.result import SplitResult

SUMMARY = "summary"
NOT_A_STORE = "not-a-store"
"""The verdict on a path at which no store is."""
PROBLEMS_MAX = 20
"""Files that could not be looked at, by name; the headline counts them all."""


@dataclass(frozen=True)
class StoreAnswers:
    """Makes the answers, with the options that further commands about the stores need; see
    `pipeline.tables.fleet_findings.StoreRows`. Unless all findings are rows, those of a file above `PER_FILE_MAX` are
    one.
    """

    verify_options: VerifyOptions
    options: str = ""
    all_rows: bool = True

    def of_unread(self, unread: UnreadStore) -> list[JsonRow]:
        is_unreadable = unread.finding == UNREADABLE
        verdict = StoreVerdict.NOT_READABLE.value if is_unreadable else NOT_A_STORE
        message = unread.message.removeprefix(f"{unread.store}: ")
        step = {"next_step": {"command": None, "reason": message}, "needs_decision": True}
        counts = {**Summary(complete=False).as_json(), **_counts(Summary()), **step}
        headline = f"{verdict.replace('-', ' ').upper()}: {message}"
        return [_head(unread.store, verdict, headline, ExitCode.FAILED, counts)]

    def of_store(self, check: StoreCheck, results: Mapping[str, SplitResult] | None = None) -> list[JsonRow]:
        label = check.store.view.label
        place = StoreLocation(None, label) if is_url(label) else StoreLocation(Path(label))
        tally, findings = FindingTally(), list[Finding]()

        def add(finding: Finding) -> None:
            tally.add(finding, BY_ID[finding.id].remedy)
            findings.append(finding)

        try:
            if check.rules is not None:
                opened = OpenedStore(check.store, check.rules)
            else:
                releases = infer_version(check.store)
                rules = rules_for(NEWEST if releases is None else releases.rules)
                fitting = EXAMINED if releases is None else releases.examined
                opened = OpenedStore(check.store, rules, is_version_known=releases is not None, fitting=fitting)
            summary = check_store(check, opened.rules, self.verify_options, results, add)
            line = CommandLine(shlex.quote(label), self.options, place.path is not None)
            answer = answer_of_verify(opened, line, tally, summary)
        except UnreadableError as error:
            return self.of_unread(UnreadStore(label, "", UNREADABLE, str(error)))
        counts = {**summary.as_json(), **_counts(summary), **answer.as_json()}
        counts["problems"] = list(map(str, check.store.problems[:PROBLEMS_MAX]))
        assessment = answer.assessment
        head = _head(label, assessment.verdict.value, assessment.headline, answer.exit_code, counts)
        return [head, *self._rows(findings, place)]

    def _rows(self, findings: list[Finding], place: StoreLocation) -> Iterator[JsonRow]:
        findings.sort(key=lambda finding: (finding.file, -1 if (at := finding.file_position) is None else at))
        for file, of_file in groupby(findings, key=lambda finding: finding.file):
            left_out = 0
            for number, finding in enumerate(of_file):
                if self.all_rows or number < PER_FILE_MAX:
                    row = {"type": "finding", "store": str(place), **finding.as_json()}
                    row["repair"] = command_of_repair(finding.repair, place)
                    yield row
                else:
                    left_out += 1
            if left_out:
                yield {"type": MORE, "file": file, "count": left_out}


def by_store(rows: Iterator[JsonRow]) -> Iterator[tuple[JsonRow, Iterator[JsonRow]]]:
    """The summary of each store with its findings, which are read before the next store is asked for."""
    heads = 0

    def number_of(row: JsonRow) -> int:
        nonlocal heads
        heads += int(row["type"] == SUMMARY)
        return heads

    for _, of_store in groupby(rows, key=number_of):
        head = next(of_store)
        yield head, of_store  # noqa: B031 - the rest


def _counts(summary: Summary) -> JsonRow:
    return {f"{severity}s": summary.severities[severity] for severity in ("error", "warning", "note")}


def _head(store: str, verdict: str, headline: str, code: ExitCode, rest: JsonRow) -> JsonRow:
    head = {"type": SUMMARY, "store": store, "verdict": verdict, "headline": headline, "exit_code": code.value}
    return {**head, "problems": [], **{name: value for name, value in rest.items() if name not in head}}
