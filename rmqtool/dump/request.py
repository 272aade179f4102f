"""Requests of `dump`: the options that fit each kind of file, and the readers of the rows."""

from __future__ import annotations

import fnmatch
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rmqtool.dump.target import LISTINGS, DumpKind, Target
from rmqtool.errors import UnreadableError, UsageError
from rmqtool.formats.layout import Format
from rmqtool.report.bodies import BodyChoice, BodyForm
from rmqtool.report.names import unknown_name
from rmqtool.report.rows import DumpRow, RowBlock, message_fields
from rmqtool.report.writers import OutputFormat
from rmqtool.scan.row_filter import RowFilter
from rmqtool.store.source import ByteSource
from rmqtool.store.view import Entry

QUEUES: Final = (DumpKind.CONSUMEQUEUE, DumpKind.BATCH, DumpKind.EXTENSION)


@dataclass(frozen=True, kw_only=True)
class Request:
    """Request of a dump; offsets are physical in the log and queue offsets in queues, ranges are half open.

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

    def takes_queue(self, topic: str | None, queue_id: int | None) -> bool:
        """True if rows of a queue are requested; topic and id are None for files outside a queue's directory."""
        if self.queue_id is not None and queue_id != self.queue_id:
            return False
        if not self.topics:
            return True
        return topic is not None and any(fnmatch.fnmatchcase(topic, pattern) for pattern in self.topics)

    def row_filter(self) -> RowFilter:
        return RowFilter(
            topics=self.topics or None,
            queue_ids=None if self.queue_id is None else frozenset((self.queue_id,)),
            from_physical_offset=self.from_offset,
            to_physical_offset=self.to_offset,
            from_ms=self.from_ms,
            to_ms=self.to_ms,
            key=self.key,
            tag=self.tag,
            message_id=self.message_id,
            stale=self.stale,
        )


@dataclass
class RowSource(ABC):
    """Gives the rows of a target's files, and afterwards the problems, and how many bad and meaningless rows there
    were.
    """

    target: Target
    ask: Request
    problems: list[str] = field(default_factory=list)
    bad_ranges: int = 0

    def readable_bytes(self) -> int:
        """Bytes of the files that are to be read, as far as the request tells."""
        return sum(entry.size for entry in self.target.entries)

    @abstractmethod
    def rows(self) -> Iterator[DumpRow | RowBlock | None]:
        """Rows; None where there is nothing more for the moment."""

    def opened(self, entry: Entry) -> ByteSource | None:
        """A file of the target; None, and a problem, where it cannot be opened."""
        try:
            return self.target.view.open(entry.path)
        except UnreadableError as error:
            self.problems.append(str(error))
            return None

    def bad_range(self, file: str, start: int, size: int, finding: str, *queue: Any) -> DumpRow:
        """The row of a range that is none of a file's units, which counts; with topic and id of a queue, if any."""
        from rmqtool.report.file_rows import bad_file_row

        self.bad_ranges += 1
        return bad_file_row(file, start, size, finding, *queue)

    def hex_of(self, raw: bytes, declared: Format, start: int) -> DumpRow:
        """Fields of a row for `--hex`: its bytes, from a file position on."""
        if self.ask.hex_width is None:
            return {}
        from rmqtool.report.hexview import hex_fields, parts_of

        parts = parts_of(lambda position, length: raw[position : position + length], len(raw), declared.fields)
        return hex_fields(parts, self.ask.hex_width, start)


def fields_of_kind(kind: DumpKind, body: BodyChoice) -> tuple[str, ...]:
    """Every field that a row can have."""
    if kind is DumpKind.COMMITLOG:
        return message_fields(body)
    from rmqtool.report.file_rows import FIELDS

    return FIELDS[kind]


def check_request(ask: Request, kind: DumpKind, output: OutputFormat) -> None:
    """Refuse, as UsageError, options that do not fit the files or each other."""
    content = {
        "--from-time": ask.from_ms,
        "--to-time": ask.to_ms,
        "--key": ask.key,
        "--tag": ask.tag,
        "--message-id": ask.message_id,
        "--body": None if ask.body.form is BodyForm.NONE else ask.body.form,
        "--decode": ask.body.decoder,
        "--raw": ask.body.raw or None,
        "--stale": ask.stale or None,
        "--follow": ask.follow or None,
    }
    offsets = {"--from-offset": ask.from_offset, "--to-offset": ask.to_offset}
    if kind is DumpKind.COMMITLOG:
        unfit: dict[str, object] = {}
    elif kind is DumpKind.EXTENSION:
        unfit = {**content, **offsets, "--reverse": ask.reverse or None}
    elif kind in QUEUES:
        unfit = {**content}
    elif kind is DumpKind.TIERED:
        unfit = {**content, **offsets, "--reverse": ask.reverse or None, "--hex": ask.hex_width}
    elif kind in LISTINGS:
        unfit = {**content, **offsets, "--queue-id": ask.queue_id, "--reverse": ask.reverse or None}
        unfit["--hex"] = ask.hex_width
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
    if ask.hex_width is not None and output.is_separated:
        raise UsageError("--hex has no form as CSV")


def chosen_fields(text: str | None, known: Sequence[str]) -> list[str] | None:
    """The fields of `--fields`; UsageError where one of them is none."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"--fields: {unknown_name('field', unknown[0], known)}")
    if not names:
        raise UsageError(f"--fields: no field named; there are {', '.join(known)}")
    return names
