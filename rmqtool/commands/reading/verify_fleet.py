"""`rmqtool verify` of several stores: each as alone, one after the other or in one job of Spark, and a table of all."""

from __future__ import annotations

import json
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TextIO

from rmqtool.answer.exit_codes import ExitCode
from rmqtool.commands.closed_pipe import ends_unread
from rmqtool.commands.messages import Messages
from rmqtool.commands.options.spark import spark
from rmqtool.commands.options.store import StoreOptions, command_line
from rmqtool.commands.screen import Screen, screen
from rmqtool.errors import UsageError
from rmqtool.findings.finding import StoreVerdict
from rmqtool.report.json_schemas import JsonRow
from rmqtool.report.screens.verify_screen import findings_lines
from rmqtool.report.text import escaped
from rmqtool.report.writers import OutputFormat, json_text, row_writer
from rmqtool.store.location import StoreLocation
from rmqtool.verify.survey.context import VerifyOptions

if TYPE_CHECKING:
    from rmqtool.commands.reading.store_answers import StoreAnswers
    from rmqtool.pipeline.tables.findings_table import StoreCheck
    from rmqtool.pipeline.tables.options import UnreadStore

FLEET: Final = "fleet"
"""Type of the last object, which sums all stores up."""
FIELDS: Final = ("verdict", "errors", "warnings", "notes", "records", "exit_code", "store")
_FINDING_FIELDS: Final = (
    *("type", "store", "id", "severity", "file", "file_position", "physical_offset", "length", "topic", "queue_id"),
    *("queue_offset", "count", "message", "expected", "found", "candidate", "repair", "upstream"),
)


@dataclass(frozen=True)
class FleetRequest:
    """Request for several stores, with the options, by name, that mean one store, as given."""

    stores: Sequence[str]
    store_options: StoreOptions
    verify_options: VerifyOptions
    output: OutputFormat
    master: str | None
    conf: list[str] | None
    one_store_options: Mapping[str, object]


def verify_fleet(request: FleetRequest, messages: Messages) -> ExitCode:
    """Check all stores; the exit code is that of the worst one. UsageError if an option is for one store only."""
    store_options = request.store_options
    of_one = {"--commitlog": store_options.commitlog, "--broker-conf": store_options.broker_conf}
    for name, value in {**request.one_store_options, **of_one}.items():
        if value not in (None, []):
            raise UsageError(f"{name} works with one store only")
    if request.conf and request.master is None:
        raise UsageError("--conf is a Spark setting; it needs --master")
    from rmqtool.commands.reading.store_answers import StoreAnswers, by_store

    terminal = screen()
    all_rows = request.output is not OutputFormat.TABLE or messages.verbose or terminal.shows_all
    options = command_line(StoreLocation(None, ""), request.store_options).options
    maker = StoreAnswers(request.verify_options, options, all_rows)
    writer: _Screens | _Json | _Lines
    if request.output is OutputFormat.TABLE:
        writer = _Screens(sys.stdout, terminal)
    else:
        is_json = request.output is OutputFormat.JSON
        writer = _Json(sys.stdout) if is_json else _Lines(sys.stdout, request.output)
    verdicts, code = Counter[str](), ExitCode.OK
    with _answers(request, maker, messages) as rows, ends_unread(ExitCode.UNREAD):
        for head, findings in by_store(rows):
            verdicts[head["verdict"]] += 1
            code = max(code, ExitCode(head["exit_code"]))
            writer.write(head, findings)
            sys.stdout.flush()
            for problem in head["problems"]:
                messages.error(f"{head['store']}: {problem}")
    writer.finish({"stores": verdicts.total(), "verdicts": dict(sorted(verdicts.items())), "exit_code": code.value})
    return code


@contextmanager
def _answers(request: FleetRequest, maker: StoreAnswers, messages: Messages) -> Iterator[Iterator[JsonRow]]:
    stores = _stores(request)
    if request.master is None:
        yield _rows_here(stores, maker, messages)
        return
    from rmqtool.pipeline.frames import split_bytes
    from rmqtool.pipeline.tables.findings_table import StoreCheck
    from rmqtool.pipeline.tables.fleet_findings import checked_rows, streamed_rows

    log_bytes = sum(one.size for check in stores if isinstance(check, StoreCheck) for one in check.store.commitlog)
    with spark(request.master, request.conf, messages, "verify") as session:
        slice_bytes = split_bytes(log_bytes, session.sparkContext.defaultParallelism)
        of_task = replace(maker, verify_options=replace(request.verify_options, threads=1))
        yield streamed_rows(checked_rows(session, stores, of_task, slice_bytes))


def _rows_here(
    stores: Sequence[StoreCheck | UnreadStore], maker: StoreAnswers, messages: Messages
) -> Iterator[JsonRow]:
    from rmqtool.pipeline.tables.options import UnreadStore

    with messages.progress("verify", unit="store") as progress:
        for number, store in enumerate(stores):
            progress.show(number, len(stores))
            rows = maker.of_unread(store) if isinstance(store, UnreadStore) else maker.of_store(store)
            if sys.stdout.isatty():
                progress.hide()
            yield from rows


def _stores(request: FleetRequest) -> list[StoreCheck | UnreadStore]:
    from rmqtool.pipeline.stores import require_pyarrow

    require_pyarrow()
    from rmqtool.pipeline.tables.options import SourceOptions
    from rmqtool.pipeline.tables.table import parts, table_of
    from rmqtool.store.directory import Settings, with_settings

    given = {"paths": json.dumps(list(request.stores)), "table": "findings"}
    options = request.store_options
    if options.broker_version is not None:
        given["broker_version"] = options.broker_version
    settings = with_settings(options.sizes or Settings(), index_slot_count=options.index_slots)
    return parts(table_of(replace(SourceOptions.parse(given), settings=settings)))


# Writers of the answers, store by store, and of what sums all stores up.


class _Lines:
    """JSON lines, or CSV: the findings of a store, and in JSON its summary after them."""

    def __init__(self, stream: TextIO, form: OutputFormat) -> None:
        self._has_summaries = form is OutputFormat.JSONL
        self._rows = row_writer(form.value, stream, _FINDING_FIELDS)

    def write(self, head: JsonRow, findings: Iterator[JsonRow]) -> None:
        for finding in findings:
            self._rows.write(finding)
        if self._has_summaries:
            self._rows.write(head)

    def finish(self, fleet: JsonRow) -> None:
        if self._has_summaries:
            self._rows.write({"type": FLEET, **fleet})
        self._rows.close()


class _Json:
    """One object, which is written as the answers come."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._separator = '{"stores": ['

    def write(self, head: JsonRow, findings: Iterator[JsonRow]) -> None:
        self._stream.write(f'{self._separator}\n{{"store": {self._text(head["store"])}, "findings": [')
        separator = "\n  "
        for finding in findings:
            self._stream.write(separator + self._text(finding))
            separator = ",\n  "
        summary = {name: value for name, value in head.items() if name not in ("type", "store")}
        self._stream.write(f'],\n "summary": {self._text(summary)}}}')
        self._separator = ","

    def finish(self, fleet: JsonRow) -> None:
        self._stream.write(f'],\n"fleet": {self._text(fleet)}}}\n')

    def _text(self, value: Any) -> str:
        return json_text(value, unicode=(self._stream.encoding or "utf-8").lower().startswith("utf"))


@dataclass
class _Screens:
    """For a person: the screen of each store that is not OK, as `verify` shows it, and a table of all."""

    _stream: TextIO
    _screen: Screen
    _table: list[JsonRow] = field(default_factory=list)

    def write(self, head: JsonRow, findings: Iterator[JsonRow]) -> None:
        figures = {**head, "type": "store", "records": head["checked"]["records"]}
        self._table.append({name: figures[name] for name in ("type", *FIELDS)})
        if head["verdict"] == StoreVerdict.OK and not head["notes"]:
            return
        if not any(head["checked"].values()) and head["exit_code"] == ExitCode.FAILED:
            headline = textwrap.fill(escaped(head["headline"]), max(self._screen.width, 60), break_on_hyphens=False)
            self._stream.write(f"== {escaped(head['store'])}\n{headline}\n\n")
            return
        here, counts = self._screen, {name: head[f"{name}s"] for name in ("error", "warning")}
        lines = findings_lines(findings, head, here.width, color=here.color, all_rows=True, counts=counts)
        self._stream.write(f"== {escaped(head['store'])}\n")
        self._stream.writelines(f"{line}\n" for line in lines)
        self._stream.write("\n")

    def finish(self, fleet: JsonRow) -> None:
        writer = row_writer("table", self._stream, FIELDS, width=self._screen.table_width, color=self._screen.color)
        for row in self._table:
            writer.write(row)
        writer.close()
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in fleet["verdicts"].items())
        self._stream.write(f"\n{fleet['stores']} {'store' if fleet['stores'] == 1 else 'stores'}: {verdicts}\n")
