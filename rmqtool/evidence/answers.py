"""Results of verify and forecast for a store, small enough to be compared with those for its bundle."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rmqtool.answer.answer import Answer, FindingTally
from rmqtool.answer.beside_log import BesideLog
from rmqtool.answer.forecast_answer import answer_of_forecasts
from rmqtool.answer.opened_store import CommandLine, OpenedStore
from rmqtool.answer.verify_answer import answer_of_verify
from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import RmqtoolError
from rmqtool.evidence.names import BundleNames
from rmqtool.evidence.recorded import (
    RecordedAnswers,
    RecordedForecasts,
    RecordedStep,
    RecordedVerify,
    listed_forecast,
)
from rmqtool.evidence.shown_values import with_bounds
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import BY_ID
from rmqtool.forecast.forecast import SharedStarts, forecast_store
from rmqtool.forecast.options import forecast_options
from rmqtool.forecast.result import Forecast
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import VerifyOptions
from rmqtool.verify.survey.result import Summary

FINDINGS_MAX: Final = 10_000
_SUM_BYTES: Final = 16
_TEXTS: Final = ("message", "expected", "found", "candidate")
"""Parts of a finding that may show bytes of the store."""


@dataclass
class Answers:
    """Results of verify and forecast.

    Attributes:
        findings: the first ones; their texts are those of the catalog, which show nothing of the store.
        digests: of all findings, by id, whatever their order.
        forecasts: of each version whose start can be forecast.
        failures: why there is no forecast, by version.
    """

    findings: list[Finding]
    digests: dict[str, int]
    summary: Summary
    forecasts: list[Forecast]
    failures: dict[str, str]

    def differences(self, other: Answers) -> Iterator[str]:
        """Differences of two answers, as short texts."""
        own_summary, other_summary = self.summary.as_json(), other.summary.as_json()
        for kind in sorted(self.digests.keys() | other.digests.keys()):
            if self.digests.get(kind) != other.digests.get(kind):
                count, other_count = self.summary.findings[kind], other.summary.findings[kind]
                yield f"{kind}: {count} in the store, {other_count} in the bundle"
        for name in ("checked", "left_out_bytes", "complete", "not_looked_at"):
            if own_summary[name] != other_summary[name]:
                yield f"verify: {name}"
        own, others = (
            {forecast.broker_version: forecast.as_json() for forecast in answers.forecasts} | answers.failures
            for answers in (self, other)
        )
        for version, forecast in own.items():
            if forecast != others.get(version):
                yield f"forecast of {version}"


def ask(
    opened: OpenedStore,
    line: CommandLine,
    options: VerifyOptions,
    versions: Sequence[str],
    take: Callable[[Finding], None],
    names: BundleNames | None = None,
) -> tuple[Answers, RecordedAnswers]:
    """Verify a store and forecast its start, as the commands do without options: results to compare, and to record.

    Args:
        versions: whose start is forecast.
        take: is handed each finding.
        names: what is shown in place of names; None leaves them.
    """
    tally = FindingTally()
    findings: list[Finding] = []
    digests: dict[str, int] = {}

    def keep(original: Finding) -> None:
        tally.add(original, BY_ID[original.id].remedy)
        finding = original
        if names is not None:
            topic = original.topic and names.topic(original.topic)
            finding = replace(original, file=names.path(original.file), topic=topic)
        finding = with_bounds(finding)
        row = {name: value for name, value in finding.as_json().items() if name not in _TEXTS}
        digest = hashlib.blake2b(repr(sorted(row.items())).encode(), digest_size=_SUM_BYTES).digest()
        digests[finding.id] = (digests.get(finding.id, 0) + int.from_bytes(digest)) % (1 << 8 * _SUM_BYTES)
        if len(findings) < FINDINGS_MAX:
            no_texts: dict[str, Any] = {**dict.fromkeys(_TEXTS), "message": BY_ID[finding.id].meaning}
            findings.append(replace(finding, **no_texts))
        take(original)

    summary = verify_store(opened.store, opened.rules, options, keep, lambda _done, _total: None, None)
    forecasts: list[Forecast] = []
    failures: dict[str, str] = {}
    shared = None if len(versions) == 1 else SharedStarts()
    for version in versions:
        try:
            forecast = forecast_store(opened.store, rules_for(version), forecast_options(opened.conf), shared)
            forecasts.append(with_bounds(forecast if names is None else _with_names(forecast, names)))
        except RmqtoolError as error:
            failures[version] = type(error).__name__
    answers = Answers(findings, digests, summary, forecasts, failures)

    of_verify = answer_of_verify(opened, line, tally, summary)
    effects = BesideLog.of(opened)
    of_forecast = answer_of_forecasts(opened, line, versions, forecasts, effects, simulated=forecasts)
    recorded = recorded_answers(answers, of_verify, of_forecast, effects, is_one=opened.is_version_known)
    return answers, recorded if names is None else recorded.shown_with(names, opened.store.view.label)


def recorded_answers(
    answers: Answers, of_verify: Answer, of_forecast: Answer, effects: BesideLog, *, is_one: bool
) -> RecordedAnswers:
    """Answers as a bundle records them for machines where they cannot be computed."""
    checked = answers.summary.as_json()
    listed = [listed_forecast(forecast) for forecast in answers.forecasts]
    return RecordedAnswers(
        RecordedVerify(
            exit_code=of_verify.exit_code.value,
            listed=tuple(answers.findings),
            findings=checked["findings"],
            checked=checked["checked"],
            left_out_bytes=answers.summary.left_out_bytes,
            complete=answers.summary.complete,
            **_recorded(of_verify),
        ),
        RecordedForecasts(
            exit_code=of_forecast.exit_code.value,
            forecasts=tuple(listed),
            is_one=is_one,
            is_cut=listed != answers.forecasts,
            **_recorded(of_forecast),
            **vars(effects),
        ),
    )


def _recorded(answer: Answer) -> dict[str, Any]:
    return {
        "not_looked_at": answer.assessment.not_looked_at,
        "verdict": answer.assessment.verdict,
        "headline": answer.assessment.headline,
        "next_step": RecordedStep(answer.step.command, answer.step.reason),
        "needs_decision": answer.step.needs_decision,
    }


def _with_names(forecast: Forecast, names: BundleNames) -> Forecast:
    """A forecast with other names, queues and files in the order of these."""
    queues = [replace(queue, topic=names.topic(queue.topic)) for queue in forecast.queues]
    return replace(
        forecast,
        why_not=forecast.why_not and names.text(forecast.why_not),
        deleted_files=tuple(sorted(map(names.path, forecast.deleted_files))),
        lost=replace(
            forecast.lost, by_topic={names.topic(topic): count for topic, count in forecast.lost.by_topic.items()}
        ),
        deleted_topics={names.topic(topic): count for topic, count in forecast.deleted_topics.items()},
        unnoticed_damage=tuple(replace(one, file=names.path(one.file)) for one in forecast.unnoticed_damage),
        queues=tuple(sorted(queues, key=lambda queue: (queue.topic, queue.queue_id))),
        not_simulated=tuple(map(names.text, forecast.not_simulated)),
        assumptions=tuple(map(names.text, forecast.assumptions)),
    )
