"""What `verify` answers of one store among several, as rows: its summary, then its findings in order.

Tasks of Spark make them, so this file imports neither typer nor rich.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rmqtool.commands.exit_codes import ExitCode
from rmqtool.commands.reading.verify_judgement import exit_code_of, judged, repair_command
from rmqtool.engine.reading.named_sizes import UnreadSizes
from rmqtool.engine.reading.version_evidence import infer_version
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.versions import EXAMINED, NEWEST, rules_for
from rmqtool.errors import UnreadableError
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import BY_ID
from rmqtool.pipeline.tables.findings_table import StoreCheck
from rmqtool.pipeline.tables.fleet_findings import check_store
from rmqtool.pipeline.tables.options import UNREADABLE, UnreadStore
from rmqtool.report.json_schemas import JsonRow
from rmqtool.report.screens.verify_screen import MORE, PER_FILE_MAX
from rmqtool.store.location import StoreLocation, is_url
from rmqtool.verdict.command_line import CommandLine
from rmqtool.verdict.tally import FindingTally
from rmqtool.verdict.verdict import StoreVerdict
from rmqtool.verify.summary import Summary
from rmqtool.verify.survey.context import VerifyOptions

if TYPE_CHECKING:
    from rmqtool.store.directory import Store
    from rmqtool.verify.survey.result import SplitResult

SUMMARY = "summary"
NOT_A_STORE = "not-a-store"
"""The verdict on a path at which no store is."""
PROBLEMS_MAX = 20
"""Files that could not be looked at, by name; the headline counts them all."""


@dataclass(frozen=True)
class CheckedStore:
    """A store, and the broker whose rules apply to it."""

    store: Store
    rules: BrokerRules
    is_version_known: bool
    possible_versions: tuple[str, ...]
    unread_sizes: UnreadSizes | None = None
    """None, for a file of settings is of one broker, and these are stores of many."""


@dataclass(frozen=True)
class StoreAnswers:
    """Makes the answers; see `pipeline.tables.fleet_findings.StoreRows`.

    Attributes:
        options: that further commands about the stores need, as they are typed.
        all_rows: whether every finding is a row; else those of a file above `PER_FILE_MAX` are one row together.
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
            checked = _with_rules(check)
            summary = check_store(check, checked.rules, self.verify_options, results, add)
            line = CommandLine(shlex.quote(label), self.options, place.path is not None)
            assessment, step = judged(checked, line, tally, summary)
        except UnreadableError as error:
            return self.of_unread(UnreadStore(label, "", UNREADABLE, str(error)))
        counts = {**summary.as_json(), **_counts(summary), **assessment.as_json(), **step.as_json()}
        counts["problems"] = list(map(str, check.store.problems[:PROBLEMS_MAX]))
        code = exit_code_of(checked, assessment, summary)
        head = _head(label, assessment.verdict.value, assessment.headline, code, counts)
        return [head, *self._rows(findings, place)]

    def _rows(self, findings: list[Finding], place: StoreLocation) -> Iterator[JsonRow]:
        findings.sort(key=lambda finding: (finding.file, -1 if (at := finding.file_position) is None else at))
        for file, of_file in groupby(findings, key=lambda finding: finding.file):
            left_out = 0
            for number, finding in enumerate(of_file):
                if self.all_rows or number < PER_FILE_MAX:
                    row = {"type": "finding", "store": str(place), **finding.as_json()}
                    row["repair"] = repair_command(finding.repair, place)
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


def _with_rules(check: StoreCheck) -> CheckedStore:
    if check.rules is not None:
        return CheckedStore(check.store, check.rules, True, (check.rules.version,))
    releases = infer_version(check.store)
    rules = rules_for(NEWEST if releases is None else releases.rules)
    possible = EXAMINED if releases is None else releases.examined if check.store.commitlog else ()
    return CheckedStore(check.store, rules, releases is not None, possible)


def _counts(summary: Summary) -> JsonRow:
    return {f"{severity}s": summary.severities[severity] for severity in ("error", "warning", "note")}


def _head(store: str, verdict: str, headline: str, code: ExitCode, rest: JsonRow) -> JsonRow:
    head = {"type": SUMMARY, "store": store, "verdict": verdict, "headline": headline, "exit_code": code.value}
    return {**head, "problems": [], **{name: value for name, value in rest.items() if name not in head}}
