"""Answers as they were given where the store is: what `verify` and `forecast` show if a bundle cannot give them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import msgspec

from rmqtool.evidence.bundle import BundleError
from rmqtool.evidence.names import BundleNames
from rmqtool.evidence.shown_values import shown
from rmqtool.findings.finding import Finding, StoreVerdict
from rmqtool.findings.registry import BY_ID
from rmqtool.forecast.result import Forecast, Lost
from rmqtool.sides.unread import UnreadFiles

HIDDEN_STORE: Final = "STORE"
"""Replacement of the path of a store."""
LISTED_MAX: Final = 1_000
"""Queues, topics and files that a recorded forecast lists."""
EXIT_CODES: Final = (0, 3, 4)


@dataclass(frozen=True)
class RecordedStep:
    """The next step, for the machine of the store."""

    command: str | None
    reason: str


@dataclass(frozen=True)
class RecordedVerify:
    """Result of verify.

    Attributes:
        listed: findings, at most as many as a bundle holds.
        findings: counts by id.
    """

    exit_code: int
    listed: tuple[Finding, ...]
    findings: dict[str, int]
    checked: dict[str, int]
    left_out_bytes: int
    complete: bool
    not_looked_at: tuple[UnreadFiles, ...]
    verdict: StoreVerdict
    headline: str
    next_step: RecordedStep
    needs_decision: bool

    def rows(self) -> list[dict[str, Any]]:
        """Findings as `verify --format json` has them."""
        return [{"type": "finding", **finding.as_json()} for finding in self.listed]

    def summary(self) -> dict[str, Any]:
        """The summary as `verify --format json` has it."""
        summary = {**asdict(self), "verdict": self.verdict.value}
        summary["not_looked_at"] = [files.as_json() for files in self.not_looked_at]
        return {name: value for name, value in summary.items() if name not in ("exit_code", "listed")}


@dataclass(frozen=True)
class RecordedForecasts:
    """Result of forecast.

    Attributes:
        is_one: whether the store shows its version.
        is_cut: whether queues, topics or files are left out.
    """

    exit_code: int
    forecasts: tuple[Forecast, ...]
    is_one: bool
    is_cut: bool
    not_looked_at: tuple[UnreadFiles, ...]
    verdict: StoreVerdict
    headline: str
    next_step: RecordedStep
    needs_decision: bool
    timer: tuple[dict[str, str | int], ...] = field(default=())
    delays: tuple[dict[str, str | int], ...] = field(default=())
    compaction: tuple[dict[str, str | int], ...] = field(default=())
    in_use: bool = False

    def ending(self) -> dict[str, Any]:
        """Fields after the forecasts in `forecast --format json`."""
        ending = {**asdict(self), "verdict": self.verdict.value}
        ending["not_looked_at"] = [files.as_json() for files in self.not_looked_at]
        return {
            name: value for name, value in ending.items() if name not in ("exit_code", "forecasts", "is_one", "is_cut")
        }


@dataclass(frozen=True)
class RecordedAnswers:
    """Both; `files` are those of the store."""

    verify: RecordedVerify
    forecast: RecordedForecasts
    files: tuple[str, ...] = ()

    def shown_with(self, names: BundleNames, store: str) -> RecordedAnswers:
        """The answers with the names of the bundle in every text.

        Args:
            store: its path, which is not shown where names are hidden.
        """
        path = shlex.quote(store)

        def text(own: str) -> str:
            return names.text(own.replace(path, HIDDEN_STORE) if names.hides else own)

        answers: RecordedAnswers = shown(self, text)
        return answers

    def as_text(self) -> bytes:
        """As a bundle holds them; a path that is no UTF-8 has half surrogates, which are escaped."""
        return json.dumps(msgspec.to_builtins(self), indent=1).encode()


def parse_answers(raw: bytes) -> RecordedAnswers:
    """Answers of a bundle from anywhere.

    Raises:
        BundleError: they are not what a bundle holds.
    """
    try:
        answers = msgspec.convert(json.loads(raw), type=RecordedAnswers)
    except (ValueError, RecursionError) as error:  # msgspec's are ValueErrors too
        raise BundleError(f"has answers with a wrong field: {error}") from error
    known = {"records", "bytes", "units", "entries"}
    if answers.verify.checked.keys() != known or any(finding.id not in BY_ID for finding in answers.verify.listed):
        raise BundleError("has answers with amounts or findings that this rmqtool does not know")
    if not {answers.verify.exit_code, answers.forecast.exit_code} <= set(EXIT_CODES):
        raise BundleError("has answers with an exit code that these commands do not have")
    return answers


def listed_forecast(forecast: Forecast) -> Forecast:
    """A forecast that lists no more than `LISTED_MAX` of anything."""
    queues = sorted(forecast.queues, key=lambda queue: not queue.offsets_repeat)[:LISTED_MAX]
    lost = forecast.lost
    by_topic = list(lost.by_topic.items())
    if len(by_topic) > LISTED_MAX:
        by_topic = sorted(by_topic, key=lambda item: -item[1])[:LISTED_MAX]
    return replace(
        forecast,
        queues=tuple(queues) if len(forecast.queues) > LISTED_MAX else forecast.queues,
        deleted_files=forecast.deleted_files[:LISTED_MAX],
        dropped_index_files=forecast.dropped_index_files[:LISTED_MAX],
        lost=Lost(lost.messages, lost.bytes, dict(by_topic)),
    )


def differing_verdicts(own: RecordedAnswers, other: RecordedAnswers) -> Iterator[str]:
    """Differences of the verdicts of two answers, as short texts."""
    for name, of_store, of_bundle in (
        ("verify", own.verify, other.verify),
        ("forecast", own.forecast, other.forecast),
    ):
        if (of_store.headline, of_store.exit_code) != (of_bundle.headline, of_bundle.exit_code):
            if of_store.verdict is of_bundle.verdict:
                yield f"{name}: {of_store.headline!r} in the store, {of_bundle.headline!r} in the bundle"
            else:
                yield f"{name}: {of_store.verdict.value} in the store, {of_bundle.verdict.value} in the bundle"
        elif of_store.next_step != of_bundle.next_step:
            yield f"{name}: the next step"
