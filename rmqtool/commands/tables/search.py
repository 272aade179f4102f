"""`rmqtool search`: the messages in which a pattern is found; large logs are searched by Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from rmqtool.answer.exit_codes import ExitCode
from rmqtool.commands.closed_pipe import ends_unread
from rmqtool.commands.messages import messages_of
from rmqtool.commands.options import spark_tables as tables
from rmqtool.commands.options.decode import body_choice, tell_failures
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.spark import DEFAULT_MASTER, ConfOption, LargeMasterOption, spark
from rmqtool.commands.options.store import CommitlogOption, DecodeOption, FormatOption
from rmqtool.commands.screen import screen
from rmqtool.pipeline.enums import Where
from rmqtool.report.bodies import BODY_LIMIT, BodyChoice, BodyForm, body_fields
from rmqtool.report.writers import OutputFormat, row_writer


def search(
    context: typer.Context,
    stores: tables.StorePaths,
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="Regular expression (RE2 syntax).")],
    where: Annotated[Where, option("--in", "Where to search; properties are written NAME=value.")] = Where.BODY,
    topic: tables.TopicOption = None,
    from_time: tables.FromTimeOption = None,
    to_time: tables.ToTimeOption = None,
    limit: Annotated[int | None, option("N", "Maximum number of messages.", min=1)] = None,
    decode: DecodeOption = None,
    commitlog: CommitlogOption = None,
    output: FormatOption = OutputFormat.TABLE,
    master: LargeMasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Find messages that match a pattern, in one or more stores; compressed bodies are decompressed.

    The exit code is 3 if bad ranges of a log could not be searched, 6 if nothing was found.

    Example: rmqtool search /home/rocketmq/store "order-4711[0-9]" --in keys
    """
    messages = messages_of(context)
    options = tables.source_options(stores, commitlog, topic, from_time, to_time)
    from rmqtool.pipeline.stores import read_messages, require_pyarrow

    require_pyarrow()  # before what needs it is imported
    from rmqtool.pipeline.tables.search import SHOWN, parse_search

    parse_search(pattern, where.value)
    choice = body_choice(BodyForm.NONE, BODY_LIMIT, raw=False, decode=decode)
    columns = (*SHOWN, *(DECODED_FROM if choice.fields else ()))
    options |= {"pattern": pattern, "pattern_in": where.value, "columns": ",".join(columns)}
    terminal = screen()
    bad = count = 0
    with ExitStack() as stack, ends_unread(ExitCode.OK):
        if tables.reads_here(options, master, conf):
            rows: Iterator[dict[str, Any]] = (row for batch in read_messages(options) for row in batch.to_pylist())
        else:
            session = stack.enter_context(spark(master or DEFAULT_MASTER, conf, messages, "search"))
            from rmqtool.pipeline.frames import table_frame

            frame = table_frame(session, options)
            rows = (row.asDict() for row in frame.toLocalIterator(prefetchPartitions=True))
        fields = (*SHOWN, *choice.fields)
        writer = row_writer(output.value, sys.stdout, fields, width=terminal.table_width, color=terminal.color)
        for row in rows:
            if row["finding"] is not None:
                bad += 1
                continue
            writer.write(with_decoded(row, choice) if choice.fields else row)
            count += 1
            if count == limit:
                break
        writer.close()
    tell_failures(choice, messages)
    if bad:
        messages.warn(f"bad ranges, not searched: {bad}")
        raise typer.Exit(ExitCode.FINDINGS)
    if not count:
        tables.warn_of_absent_topics(stores, commitlog, topic, messages)
        raise typer.Exit(ExitCode.NOT_FOUND)


DECODED_FROM: Final = ("compression", "properties", "body")
"""Columns of the table `messages`, beside those that are shown, from which bodies are decoded."""


@dataclass(frozen=True)
class _FoundMessage:
    """A row as far as its body."""

    topic: str
    queue_id: int
    queue_offset: int
    properties: Mapping[str, str]
    compression: str | None
    body_length: int
    content: bytes

    def body(self, length_max: int) -> bytes:
        return self.content[:length_max]


def with_decoded(row: dict[str, Any], choice: BodyChoice) -> dict[str, Any]:
    """A row with the fields of a decoded body instead of what it was decoded from."""
    content = bytes(row["body"] or b"")
    message = _FoundMessage(
        topic=str(row["topic"]),
        queue_id=int(row["queue_id"]),
        queue_offset=int(row["queue_offset"]),
        properties=dict(row["properties"] or {}),
        compression=row["compression"],
        body_length=len(content),
        content=content,
    )
    shown = {name: value for name, value in row.items() if name not in DECODED_FROM}
    return shown | body_fields(message, choice)
