"""`rmqtool verify`: every check, every finding. What is wrong is decided in `verify`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import rmqtool
from rmqtool.answer.answer import FindingTally
from rmqtool.answer.exit_codes import ExitCode
from rmqtool.answer.verify_answer import answer_of_verify
from rmqtool.commands.closed_pipe import ends_unread
from rmqtool.commands.command_list import command_of_repair
from rmqtool.commands.messages import Messages, messages_of
from rmqtool.commands.options import store as shared
from rmqtool.commands.options.bundle import demand_as_recorded, recorded_of, store_of_bundle
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.output_files import demand_writable, refuse_dash
from rmqtool.commands.options.run import duration_s, thread_count
from rmqtool.commands.options.spark import ConfOption, MasterOption, runner
from rmqtool.commands.options.spark_tables import ReadStores, name_several
from rmqtool.commands.reading.verify_fleet import FleetRequest, verify_fleet
from rmqtool.commands.screen import screen
from rmqtool.errors import UsageError, WriteError
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import BY_ID, CATALOG
from rmqtool.report.check_formats import junit_text, sarif_text
from rmqtool.report.progress import Progress
from rmqtool.report.screens.verify_screen import findings_lines
from rmqtool.report.writers import OutputFormat, json_text, row_writer
from rmqtool.store.location import StoreLocation, store_location
from rmqtool.store.source import reason
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import Depth, VerifyOptions

FIELDS: Final = (
    "type", "id", "severity", "file", "file_position", "physical_offset", "length", "topic", "queue_id",
    "queue_offset", "count", "message", "expected", "found", "candidate", "repair", "upstream",
)  # fmt: skip


@shared.with_store_options()
def verify(
    context: typer.Context,
    stores: ReadStores,
    depth: Annotated[Depth, option("--depth", "How much to check.")] = Depth.FULL,
    max_duration: Annotated[
        str | None, option("TIME", "Start no further commit log file after this time: 90s, 20m, 2h.")
    ] = None,
    state: Annotated[
        Path | None, option("FILE", "File that remembers what was checked, for the next run; outside the store.")
    ] = None,
    part: Annotated[str | None, option("--slice N/T", "Check slice N of T of the commit log.")] = None,
    sample: Annotated[
        float, option("PART", "Check this fraction of the commit log, evenly spaced (0.1: a tenth).", min=0.0, max=1.0)
    ] = 1.0,
    threads: Annotated[int | None, option("N", "Number of threads (default: one per core).", min=1, max=256)] = None,
    junit: Annotated[Path | None, option("FILE", "Also write a JUnit report; an older one is replaced.")] = None,
    sarif: Annotated[Path | None, option("FILE", "Also write a SARIF log; an older one is replaced.")] = None,
    *,
    store_options: shared.StoreOptions,
    output: shared.FormatOption = OutputFormat.TABLE,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Check a store: commit log, consume queues and index against each other, and the small files.

    The store is not changed. The exit code is 3 if there is a problem or something was not checked,
    4 if something cannot be read. Several stores are checked as each alone, with a table of all at the end.

    Example: rmqtool verify /home/rocketmq/store --max-duration 20m --state /tmp/verify.state
    """
    messages = messages_of(context)
    if name_several(stores):
        of_one: dict[str, object] = {"--state": state, "--slice": part, "--max-duration": max_duration}
        of_one |= {"--sample": sample if sample < 1 else None, "--junit": junit, "--sarif": sarif}
        options = VerifyOptions(depth=depth, threads=thread_count(threads))
        request = FleetRequest(stores, store_options, options, output, master, conf, of_one)
        raise typer.Exit(verify_fleet(request, messages))
    store = store_of_bundle(store_location(stores[0]), context)
    number, count = 1, 1
    if part is not None:
        text, _, of = part.partition("/")
        if not (text.isdecimal() and of.isdecimal() and 1 <= int(text) <= int(of)):
            raise UsageError(f"--slice: {part!r} is not N/T with N from 1 to T, like 2/7")
        number, count = int(text), int(of)
    if state is not None:
        refuse_dash("--state", state)
    is_plain = store_options.are_empty and (depth, state, part, sample) == (Depth.FULL, None, None, 1.0)
    recorded = recorded_of(store, messages, asks_more=not is_plain)
    if recorded is not None:
        _demand_reports(store, (), junit=junit, sarif=sarif)
        repeat = _Output(store, output, messages, keeps_rows=True)
        for finding in recorded.verify.listed:
            repeat.add(finding)
        repeat.report(recorded.verify.summary(), recorded.files, junit, sarif)
        raise typer.Exit(recorded.verify.exit_code)
    opened = shared.open_store(store, store_options)
    shared.tell_opened(opened, messages)
    options = VerifyOptions(
        depth=depth,
        threads=thread_count(threads),
        slice_number=number,
        slice_count=count,
        sample=sample,
        duration_max_s=None if max_duration is None else duration_s(max_duration, "--max-duration"),
        state_file=state,
        broker_runs=shared.lock_of(store, opened.store, opened.foreign).is_in_use,
    )
    _demand_reports(store, opened.store.settings.commitlog_directories, junit=junit, sarif=sarif)
    line = shared.command_line(store, store_options)
    run = _Output(store, output, messages, keeps_rows=junit is not None or sarif is not None)
    with runner(master, conf, messages) as split_runner:
        if state is not None:
            messages.interrupted += f"; {state} has what was checked: run the same command again to continue"
        with messages.progress("verify") as progress, ends_unread(ExitCode.UNREAD):
            run.progress = progress
            summary = verify_store(opened.store, opened.rules, options, run.add, progress.show, split_runner)
    answer = answer_of_verify(opened, line, run.tally, summary)
    files = [entry.path for entries in opened.store.files.values() for entry in entries]
    summary_json = {**summary.as_json(), **answer.as_json()}
    if is_plain:
        demand_as_recorded(store, summary_json)
    run.report(summary_json, files, junit, sarif)
    if summary.findings["index.unknown-slot-count"]:
        messages.warn("the index was not checked: nothing in it shows its slot count; pass --index-slots N")
    for unread in summary.not_looked_at:
        messages.warn(f"{unread.path}: not checked, {unread.reason}")
    for place in opened.store.problems:
        messages.error(str(place))
    raise typer.Exit(answer.exit_code)


def _demand_reports(
    place: StoreLocation, log_directories: Iterable[str], *, junit: Path | None, sarif: Path | None
) -> None:
    """Refuse reports inside the store, and files that cannot be written; an older report is replaced."""
    for report in (junit, sarif):
        if report is not None:
            shared.refuse_inside_store(report, "a report", place, log_directories)
    demand_writable({"--junit": junit, "--sarif": sarif})


class _Output:
    """One run: findings are written at once in line formats, else at the end."""

    def __init__(self, place: StoreLocation, output: OutputFormat, messages: Messages, *, keeps_rows: bool) -> None:
        self.tally = FindingTally()
        self.messages = messages
        self.progress: Progress | None = None
        self._place = place
        self._output = output
        self._rows: list[dict[str, Any]] = []
        self._screen = screen()
        writes_rows = output is OutputFormat.JSONL or output.is_separated
        self._writer = row_writer(output.value, sys.stdout, FIELDS) if writes_rows else None
        # A badly damaged store has more findings than memory should hold where they have gone out already.
        self._keeps_rows = keeps_rows or self._writer is None

    def report(
        self, summary_json: dict[str, Any], files: Sequence[str], junit: Path | None, sarif: Path | None
    ) -> None:
        rows = sorted(
            self._rows, key=lambda row: (row["file"], -1 if row["file_position"] is None else row["file_position"])
        )
        if self._output is OutputFormat.JSONL:
            sys.stdout.write(json_text({"type": "summary", **summary_json}) + "\n")
        elif self._output is OutputFormat.JSON:
            # Where standard output does not carry every character, JSON has to escape what is not ASCII.
            unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
            text = json_text({"findings": rows, "summary": summary_json}, indent=2, unicode=unicode)
            sys.stdout.write(text + "\n")
        elif self._output is OutputFormat.TABLE:
            lines = findings_lines(
                rows,
                summary_json,
                self._screen.width,
                color=self._screen.color,
                all_rows=self.messages.verbose or self._screen.shows_all,
            )
            sys.stdout.writelines(f"{line}\n" for line in lines)
        if self._writer is not None:
            self._writer.close()
        # Last, so that a report that cannot be written costs nobody what was found.
        if junit is not None:
            _write(junit, junit_text(str(self._place), rows, files))
        if sarif is not None:
            rules = ((entry.id, entry.severity.value, entry.meaning) for entry in CATALOG)
            _write(sarif, sarif_text(rmqtool.__version__, rules, rows))

    def add(self, finding: Finding) -> None:
        self.tally.add(finding, BY_ID[finding.id].remedy)
        row = {"type": "finding", **finding.as_json()}
        row["repair"] = command_of_repair(finding.repair, self._place)
        if self._writer is not None:
            if self.progress is not None and sys.stdout.isatty():
                self.progress.hide()
            self._writer.write(row)
            sys.stdout.flush()
        if self._keeps_rows:
            self._rows.append(row)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8", errors="backslashreplace")
    except OSError as error:
        raise WriteError(f"{path}: {reason(error)}") from error
