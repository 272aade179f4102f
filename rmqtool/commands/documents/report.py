"""`rmqtool report`: all that is known of a store as one page for people who do not have it at hand."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import rmqtool
from rmqtool.answer.answer import Answer, FindingTally
from rmqtool.answer.beside_log import BesideLog
from rmqtool.answer.exit_codes import ExitCode
from rmqtool.answer.forecast_answer import answer_of_forecasts
from rmqtool.answer.opened_store import CommandLine, OpenedStore
from rmqtool.answer.verify_answer import UNREADABLE, answer_of_verify
from rmqtool.commands.messages import Messages, messages_of
from rmqtool.commands.options import store as shared
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.output_files import demand_new, write_new
from rmqtool.commands.options.run import thread_count
from rmqtool.commands.reading.forecast import forecasts_of
from rmqtool.commands.reading.info import info_object
from rmqtool.commands.repairs.carry_out import preview
from rmqtool.commands.repairs.recover import recover_planner
from rmqtool.commands.repairs.repair_plan import Planner, RepairCommand, RepairRequest, RepairRun
from rmqtool.commands.repairs.salvage import salvage_planner
from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.reading.summary import StoreSummary, file_times, index_headers, summarize
from rmqtool.engine.rules.versions import EXAMINED
from rmqtool.errors import RmqtoolError, UnreadableError
from rmqtool.findings.finding import Finding, StoreVerdict
from rmqtool.findings.registry import BY_ID
from rmqtool.repair.recover.plan import RecoverOptions
from rmqtool.repair.remaining import READ_AGAIN_MAX
from rmqtool.repair.salvage.plan import SalvageOptions
from rmqtool.report.page.finding_kinds import FindingKind, FindingKinds
from rmqtool.report.page.log_picture import DrawnFile, LogPicture
from rmqtool.report.page.page import PageFacts, page_text
from rmqtool.report.page.queue_bars import QueueBars
from rmqtool.report.page.timeline import IndexRange, Times
from rmqtool.report.text import size_text
from rmqtool.report.writers import OutputFormat
from rmqtool.scan.row_cache import RowCache
from rmqtool.store.location import StoreLocation
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import VerifyOptions


@shared.with_store_options()
def report(
    context: typer.Context,
    store: shared.ReadStore,
    html: Annotated[Path, option("--html FILE", "Write the page to this new file.")],
    *,
    store_options: shared.StoreOptions,
) -> None:
    """Write a report on a store as one HTML page, to read, print or send.

    The page has the verdict, pictures of the commit log and the queues, all kinds of findings, what each broker version
    would do, and the repair plan with its loss. It loads nothing and holds no bodies, keys, tags or properties. The
    store is not changed. The exit code is that of the worst verdict: 3 if there is a problem, 4 if something cannot be
    read.

    Example: rmqtool report /home/rocketmq/store --html report.html
    """
    messages = messages_of(context)
    opened = shared.open_store(store, store_options)
    shared.tell_opened(opened, messages)
    shared.refuse_inside_store(html, "a report", store, opened.store.settings.commitlog_directories)
    demand_new("--html", html)
    with RowCache() as cache:
        survey = _Survey(store, opened, shared.command_line(store, store_options), messages, cache)
        facts = survey.facts()
    text = page_text(facts)
    write_new("--html", html, text)
    sys.stdout.write(f"{facts.judgements[0][1]}\n{html}: {size_text(len(text.encode()))}\n")
    for place in opened.store.problems:
        messages.error(str(place))
    if survey.has_unreadable or facts.verdict == StoreVerdict.NOT_READABLE:
        raise typer.Exit(ExitCode.FAILED)
    if facts.verdict != StoreVerdict.OK:
        raise typer.Exit(ExitCode.FINDINGS)


class _Survey:
    """Runs each engine once over a store; the log is not read again for the next one."""

    def __init__(
        self, place: StoreLocation, opened: OpenedStore, line: CommandLine, messages: Messages, cache: RowCache
    ) -> None:
        self._place, self._opened, self._line = place, opened, line
        self._messages, self._cache = messages, cache
        self._lock = shared.lock_of(place, opened.store, opened.foreign)
        self._queues, self._kinds, self._tally = QueueBars(), FindingKinds(), FindingTally()
        self._log = LogPicture([DrawnFile(one.path, one.start, one.size) for one in opened.store.commitlog])
        self.has_unreadable = bool(opened.store.problems)

    def facts(self) -> PageFacts:
        store = self._opened.store
        with self._messages.progress("info"):
            summary = summarize(store, self._opened.rules, self._add_queue)
        info = info_object(self._place, self._opened, summary, self._lock, self._line)
        options = VerifyOptions(threads=thread_count(), broker_runs=self._lock.is_in_use, cache=self._cache)
        with self._messages.progress("verify") as progress:
            checked = verify_store(store, self._opened.rules, options, self._add_finding, progress.show)
        self.has_unreadable |= any(checked.findings[kind] for kind in UNREADABLE)
        self._log.finish(checked.log_end)
        forecasts, forecast_error, starts = self._forecast()
        plans = [self._plan("recover", "--full", lambda run: recover_planner(run, RecoverOptions(full=True)))]
        if not isinstance(plans[0], str) and plans[0]["damage"]:  # inside the log, which needs salvage
            threads = thread_count()
            plans.append(
                self._plan(
                    "salvage", "", lambda run: salvage_planner(run, SalvageOptions(run.build_options, threads=threads))
                )
            )
        of_verify = ("verify", answer_of_verify(self._opened, self._line, self._tally, checked))
        severities = list(StoreVerdict)
        answers = sorted([of_verify, *starts], key=lambda one: severities.index(one[1].assessment.verdict))
        worst = answers[0][1]
        return PageFacts(
            version=rmqtool.__version__,
            made_ms=time.time_ns() // 1_000_000,
            judgements=[(command, answer.assessment.headline) for command, answer in answers],
            verdict=worst.assessment.verdict.value,
            next_step=worst.step.as_json()["next_step"],
            info=info,
            log=self._log,
            queues=self._queues,
            times=self._times(summary),
            kinds=self._kinds,
            verify=checked.as_json(),
            forecasts=forecasts,
            forecast_error=forecast_error,
            plans=plans,
            not_looked_at=[files.as_json() for files in checked.not_looked_at],
        )

    def _add_queue(self, queue: Queue) -> None:
        """Note a queue and the part of the log that it points into."""
        first, end = None, None
        minimum, maximum = queue.min_queue_offset, queue.max_queue_offset
        try:
            unit, last = queue.unit_at(minimum), queue.last_record()
        except UnreadableError:
            unit, last = None, None
        if unit is not None and last is not None:
            first, end = unit.physical_offset, last[0] + last[1]
        self._queues.add(queue.topic, queue.queue_id, max(0, maximum - minimum), first, end)

    def _add_finding(self, finding: Finding) -> None:
        about = BY_ID[finding.id]
        self._tally.add(finding, about.remedy)
        row = finding.as_json()
        self._log.add(row)
        kind = FindingKind(finding.id, row["severity"], about.meaning, about.brokers, about.remedy)
        self._kinds.add(row, kind)

    def _forecast(self) -> tuple[list[dict[str, Any]], str | None, list[tuple[str, Answer]]]:
        """Forecast of each version; why there is none; and the answer of `forecast`."""
        opened = self._opened
        is_small = sum(segment.entry.allocated_bytes for segment in opened.store.commitlog) <= READ_AGAIN_MAX
        versions = tuple(dict.fromkeys((*EXAMINED, opened.rules.version)))
        try:
            forecasts = forecasts_of(opened, versions, self._messages, self._cache, count_index=is_small)
            own = [forecast for forecast in forecasts if forecast.broker_version == opened.rules.version]
            asked, shown = ((opened.rules.version,), own) if opened.is_version_known else (versions, forecasts)
            effects = BesideLog.of(opened)
            answer = answer_of_forecasts(
                opened, self._line, asked, shown, effects, simulated=forecasts, beside_verify=True
            )
        except RmqtoolError as error:
            self._messages.warn(str(error))
            return [], str(error), []
        error_text = None if forecasts else "the start cannot be simulated on this store"
        rows = []
        for forecast in forecasts:
            # Queues as a number: there may be a million of them for each version.
            row = replace(forecast, queues=()).as_json()
            row["repeat_count"] = sum(queue.offsets_repeat for queue in forecast.queues)
            if not is_small:
                row["unindexed_messages"] = None
            rows.append(row)
        return rows, error_text, [("forecast", answer)]

    def _plan(self, command: str, flags: str, planner_of: Callable[[RepairRun], Planner]) -> dict[str, Any] | str:
        """A plan as `--dry-run` shows it; or why there is none."""
        if self._place.path is None:
            return "the store is not on a disk of this machine; a copy can be repaired"
        request = RepairRequest(
            command=RepairCommand(name=command), store=self._place.path, dry_run=True, output=OutputFormat.JSON
        )
        run = RepairRun(request, self._opened, self._messages, self._line, flags, None, self._cache)
        try:
            plan = preview(run, planner_of(run))
        except (RmqtoolError, OSError) as error:
            return str(error)
        return {**plan, "flags": flags}

    def _times(self, summary: StoreSummary) -> Times:
        store = self._opened.store
        index = [
            IndexRange(
                path,
                header.begin_timestamp_ms,
                header.end_timestamp_ms,
                header.begin_physical_offset,
                header.end_physical_offset,
            )
            for path, header in index_headers(store)
        ]
        shown = [row.file.path for row in self._log.rows()[0]]
        checkpoint = vars(summary.checkpoint) if summary.checkpoint is not None else None
        first, last = summary.first_store_timestamp_ms, summary.last_store_timestamp_ms
        return Times(first, last, file_times(store, shown), index, checkpoint)
