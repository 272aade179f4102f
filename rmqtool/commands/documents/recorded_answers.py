"""What verify and forecast say of a store, as a bundle records it for machines where it cannot be computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqtool.commands.options.memory import thread_count
from rmqtool.commands.options.store import OpenedStore
from rmqtool.commands.reading import forecast, verify_judgement
from rmqtool.commands.reading.beside_log import BesideLog
from rmqtool.engine.rules.versions import EXAMINED
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import BY_ID
from rmqtool.forecast.options import forecast_options
from rmqtool.verdict.command_line import CommandLine
from rmqtool.verdict.next_step import NextStep
from rmqtool.verdict.tally import FindingTally
from rmqtool.verdict.verdict import StoreVerdict
from rmqtool.verify.survey.context import VerifyOptions

if TYPE_CHECKING:
    from rmqtool.evidence.answers import Answers
    from rmqtool.evidence.names import BundleNames
    from rmqtool.evidence.recorded import RecordedAnswers, RecordedStep


@dataclass(frozen=True)
class GivenAnswers:
    """What was said of a store: to compare, and to record."""

    answers: Answers
    recorded: RecordedAnswers


def ask_of(
    opened: OpenedStore,
    line: CommandLine,
    versions: tuple[str, ...],
    take: Callable[[Finding], None],
    names: BundleNames | None = None,
) -> GivenAnswers:
    """Run verify and forecast as these commands do without options.

    Args:
        versions: whose start is forecast.
        take: is handed each finding.
        names: what is shown in place of names; None leaves them.
    """
    from rmqtool.evidence.answers import ask
    from rmqtool.evidence.recorded import (
        RecordedAnswers,
        RecordedForecasts,
        RecordedVerify,
        listed_forecasts,
    )

    tally = FindingTally()

    def count(finding: Finding) -> None:
        tally.add(finding, BY_ID[finding.id].remedy)
        take(finding)

    options = VerifyOptions(threads=thread_count())
    answers = ask(opened.store, opened.rules, options, forecast_options(opened.conf), versions, count, names)
    summary = answers.summary
    assessment, step = verify_judgement.judged(opened, line, tally, summary)
    checked = summary.as_json()
    of_verify = RecordedVerify(
        exit_code=verify_judgement.exit_code_of(opened, assessment, summary).value,
        listed=tuple(answers.findings),
        findings=checked["findings"],
        checked=checked["checked"],
        left_out_bytes=summary.left_out_bytes,
        complete=summary.complete,
        not_looked_at=assessment.not_looked_at,
        verdict=assessment.verdict,
        headline=assessment.headline,
        next_step=_recorded(step),
        needs_decision=step.needs_decision,
    )
    effects = BesideLog.of(opened)
    assessment = forecast.forecast_assessment(opened, line, answers.forecasts, effects)
    assessment = assessment.with_coverage(*forecast.not_simulated_of(versions, answers.forecasts))
    step = forecast.step_after(line, opened, assessment, answers.forecasts, effects)
    listed, is_cut = listed_forecasts(answers.forecasts)
    of_forecast = RecordedForecasts(
        exit_code=forecast.exit_code_of(assessment.verdict if answers.forecasts else StoreVerdict.NOT_READABLE).value,
        forecasts=listed,
        is_one=opened.is_version_known,
        is_cut=is_cut,
        not_looked_at=assessment.not_looked_at,
        verdict=assessment.verdict,
        headline=assessment.headline,
        next_step=_recorded(step),
        needs_decision=step.needs_decision,
        timer=effects.timer,
        delays=effects.delays,
        compaction=effects.compaction,
        in_use=effects.in_use,
    )
    recorded = RecordedAnswers(of_verify, of_forecast)
    return GivenAnswers(answers, recorded if names is None else recorded.shown_with(names, opened.store.view.label))


def versions_of(opened: OpenedStore) -> tuple[str, ...]:
    """Versions whose start forecast shows without options."""
    return (opened.rules.version,) if opened.is_version_known else EXAMINED


def _recorded(step: NextStep) -> RecordedStep:
    from rmqtool.evidence.recorded import RecordedStep

    return RecordedStep(step.command, step.reason)
