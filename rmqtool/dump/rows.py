"""From what a person asks of `dump` to rows: which options fit which files, and what reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from rmqtool.dump.log import FEW_ROWS, NOT_READABLE, UNREADABLE, LogDump, MatchedRecord
from rmqtool.dump.log_filter import LogFilter
from rmqtool.dump.target import DumpKind, Target
from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UnreadableError, UsageError
from rmqtool.formats import commitlog
from rmqtool.report import file_rows
from rmqtool.report.bodies import BODY_LIMIT, BodyChoice, BodyForm
from rmqtool.report.hexview import BYTES_SHOWN_MAX, bare_parts, hex_fields, message_parts, parts_of
from rmqtool.report.rows import BODY_FIELDS, MESSAGE_FIELDS, DumpRow, bad_row, blank_row, message_row
from rmqtool.report.writers import OutputFormat
from rmqtool.scan.rules import Verdict

_QUEUES: Final = (DumpKind.CONSUMEQUEUE, DumpKind.BATCH, DumpKind.EXTENSION)
_FIELDS: Final = {
    DumpKind.CONSUMEQUEUE: file_rows.UNIT_FIELDS,
    DumpKind.EXTENSION: file_rows.EXTENSION_FIELDS,
    DumpKind.BATCH: file_rows.BATCH_FIELDS,
    DumpKind.INDEX: file_rows.INDEX_FIELDS,
    DumpKind.CHECKPOINT: file_rows.CHECKPOINT_FIELDS,
    DumpKind.ABORT: file_rows.ABORT_FIELDS,
    DumpKind.CONFIG: file_rows.CONFIG_FIELDS,
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for; offsets are physical in the log and queue offsets in queues, ranges are half open.

    Attributes:
        hex_width: columns for annotated bytes; None without them.
    """

    topics: tuple[str, ...] = ()
    queue_id: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    key: str | None = None
    tag: str | None = None
    message_id: str | None = None
    limit: int | None = None
    reverse: bool = False
    stale: bool = False
    follow: bool = False
    body: BodyChoice = field(default_factory=BodyChoice)
    hex_width: int | None = None
    broker_version: str


class RowSource(Protocol):
    """Gives rows, and afterwards what was wrong."""

    @property
    def problems(self) -> list[str]:
        """What could not be read, as sentences."""

    @property
    def bad_ranges(self) -> int:
        """Bad ranges that were met."""

    def rows(self) -> Iterator[DumpRow | None]:
        """Rows; None where there is nothing more for the moment."""


def fields_of_kind(kind: DumpKind, body: BodyChoice) -> tuple[str, ...]:
    """Every field that a row can have."""
    if kind is not DumpKind.COMMITLOG:
        return _FIELDS[kind]
    shown = BODY_FIELDS if body.raw or body.form is not BodyForm.NONE else ()
    return (*MESSAGE_FIELDS, *shown, *(("properties_raw",) if body.raw else ()))


def check_request(ask: Request, kind: DumpKind, output: OutputFormat) -> None:
    """Whether the options fit the files and each other.

    Raises:
        UsageError: they do not.
    """
    content = {
        "--from-time": ask.from_ms,
        "--to-time": ask.to_ms,
        "--key": ask.key,
        "--tag": ask.tag,
        "--message-id": ask.message_id,
        "--body": None if ask.body.form is BodyForm.NONE else ask.body.form,
        "--raw": ask.body.raw or None,
        "--stale": ask.stale or None,
        "--follow": ask.follow or None,
    }
    offsets = {"--from-offset": ask.from_offset, "--to-offset": ask.to_offset}
    if kind is DumpKind.COMMITLOG:
        unfit: dict[str, object] = {}
    elif kind is DumpKind.EXTENSION:
        unfit = {**content, **offsets, "--reverse": ask.reverse or None}
    elif kind in _QUEUES:
        unfit = {**content}
    else:
        places = {"--topic": ask.topics or None, "--queue-id": ask.queue_id, "--reverse": ask.reverse or None}
        unfit = {**content, **offsets, **places}
    given = [name for name, value in unfit.items() if value is not None]
    if given:
        raise UsageError(f"{', '.join(given)}: says nothing about {kind} files")
    if ask.follow and ask.reverse:
        raise UsageError("--follow and --reverse exclude each other")
    if ask.follow and output is OutputFormat.JSON:
        raise UsageError("--follow never closes a JSON array; --format jsonl writes an object a line")
    if ask.hex_width is not None and output is OutputFormat.CSV:
        raise UsageError("--hex has no form as CSV")


def make_source(ask: Request, target: Target) -> RowSource:
    """What reads the files of a target; imported when it is needed, so that a log's first row comes soon."""
    if target.kind is DumpKind.COMMITLOG:
        return LogRows(ask, target)
    if target.kind in _QUEUES:
        from rmqtool.dump.queues import QueueDump, QueueFilter

        queue_filter = QueueFilter(ask.topics, ask.queue_id, ask.from_offset, ask.to_offset, ask.reverse)
        return QueueDump(target, queue_filter, ask.hex_width)
    from rmqtool.dump.other_files import FileDump

    return FileDump(target, ask.hex_width)


class LogRows:
    """Rows of the commitlog."""

    def __init__(self, ask: Request, target: Target) -> None:
        log_filter = LogFilter(
            ask.topics,
            ask.queue_id,
            ask.from_offset,
            ask.to_offset,
            ask.from_ms,
            ask.to_ms,
            ask.key,
            ask.tag,
            ask.message_id,
            ask.stale,
        )
        few = ask.limit is not None and ask.limit <= FEW_ROWS and not ask.reverse and not log_filter.wants_content
        compiled = False if ask.follow or (few and ask.from_offset is None) else None
        self._ask = ask
        self._dump = LogDump(target, log_filter, rules_for(ask.broker_version), compiled)

    @property
    def problems(self) -> list[str]:
        return self._dump.problems

    @property
    def bad_ranges(self) -> int:
        return self._dump.bad_ranges

    def rows(self) -> Iterator[DumpRow | None]:
        for match in self._found():
            if match is None:
                yield None
                continue
            row = self._row(match)
            if row is not None:
                yield row

    def _found(self) -> Iterator[MatchedRecord | None]:
        if self._ask.follow:
            from rmqtool.dump.follow import Follower

            return Follower(self._dump).rows()
        return self._dump.backward(self._ask.limit) if self._ask.reverse else self._dump.forward()

    def _row(self, match: MatchedRecord) -> DumpRow | None:
        row = match.row
        try:
            dump_row = self._message(match) if match.is_message else _range_row(match)
            if dump_row is not None and self._ask.hex_width is not None:
                dump_row |= self._bytes(match, self._ask.hex_width)
        except UnreadableError as error:
            self._dump.problems.append(str(error))
            return self._bad(match, UNREADABLE)
        if row.verdict == Verdict.STALE and dump_row is not None and not match.is_message:
            dump_row["finding"] = match.finding
        return dump_row

    def _message(self, match: MatchedRecord) -> DumpRow | None:
        record = self._dump.record(match)
        if record is None:
            return self._bad(match, NOT_READABLE)
        if not self._dump.matches(match, record):
            return None
        return message_row(
            record,
            self._ask.body,
            row_type="stale" if match.row.verdict == Verdict.STALE else "message",
            finding=match.finding,
            physical_offset=match.row.physical_offset,
            body_crc_ok=True,  # or the scan had called it bad
        )

    def _bad(self, match: MatchedRecord, finding: str) -> DumpRow:
        self._dump.bad_ranges += 1
        return bad_row(match.row.physical_offset, match.row.size, finding)

    def _bytes(self, match: MatchedRecord, width: int) -> DumpRow:
        limit = self._ask.body.limit if self._ask.body.limit != BODY_LIMIT else BYTES_SHOWN_MAX
        size = match.row.size
        if match.is_message:
            parts = message_parts(match.read, size, limit)
        elif match.is_blank:
            parts = parts_of(match.read, size, commitlog.BLANK.fields, limit)
        else:
            parts = bare_parts(match.read, size, limit)
        return hex_fields(parts, width, match.row.physical_offset)


def _range_row(match: MatchedRecord) -> DumpRow:
    row = match.row
    if match.is_blank:
        return blank_row(row.physical_offset, row.size)
    return bad_row(row.physical_offset, row.size, match.finding or UNREADABLE)


def chosen_fields(text: str | None, known: Sequence[str]) -> list[str] | None:
    """The fields of `--fields`.

    Raises:
        UsageError: one of them is none.
    """
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise UsageError(f"--fields: no field {', '.join(unknown) or 'named'}; there are {', '.join(known)}")
    return names
