"""The command `dump`: what stands in a store, a directory or a file, row by row, damage included."""

from __future__ import annotations

import sys
from contextlib import closing, nullcontext
from typing import Annotated

import typer

from rmqtool.answer.exit_codes import ExitCode
from rmqtool.commands.closed_pipe import ends_unread
from rmqtool.commands.messages import Messages, messages_of
from rmqtool.commands.options import store as shared
from rmqtool.commands.options.completion import fields as fields_of_dump
from rmqtool.commands.options.completion import topics, versions
from rmqtool.commands.options.decode import body_choice, tell_failures
from rmqtool.commands.options.help_groups import OUTPUT, STORE, option
from rmqtool.commands.options.topic_names import absent_topics
from rmqtool.commands.screen import screen
from rmqtool.dump.request import Request, check_request, chosen_fields, fields_of_kind
from rmqtool.dump.sources import make_source
from rmqtool.dump.target import DumpKind, Target, TargetOptions, find_target
from rmqtool.engine.rules.versions import NEWEST
from rmqtool.errors import UsageError
from rmqtool.memory import settle
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.report.bodies import BODY_LIMIT, BodyForm
from rmqtool.report.rows import RowBlock
from rmqtool.report.writers import OutputFormat, row_writer
from rmqtool.store.location import StoreLocation, store_location

_From = Annotated[str | None, option("TIME", f"Messages stored at or after this time: {shared.TIME_FORMS}.")]
_Until = Annotated[str | None, option("TIME", "Messages stored before this time.")]
_Version = Annotated[
    str | None,
    option(
        "--broker-version X.Y.Z", "Decode as this broker version (default: newest).", STORE, autocompletion=versions
    ),
]


@shared.with_store_options(*shared.FILE_SIZES, "broker_version")
def dump(
    context: typer.Context,
    path: Annotated[
        StoreLocation,
        typer.Argument(
            metavar="PATH", help="A store, one of its directories, or a file; or its URL.", parser=store_location
        ),
    ],
    kind: Annotated[DumpKind | None, option("--type", "What to show of a store, or the kind of the file.")] = None,
    topic: Annotated[list[str] | None, option("GLOB", "Topic or pattern; repeatable.", autocompletion=topics)] = None,
    queue_id: Annotated[int | None, option("N", "Queue id.")] = None,
    from_offset: Annotated[
        int | None, option("M", "Start at this physical offset (commit log) or queue offset.", min=0, max=JAVA_LONG_MAX)
    ] = None,
    to_offset: Annotated[int | None, option("M", "Stop before this offset.", min=0, max=JAVA_LONG_MAX)] = None,
    from_time: _From = None,
    to_time: _Until = None,
    key: Annotated[str | None, option("K", "Messages with this key or unique key.")] = None,
    tag: Annotated[str | None, option("--tag TAG", "Messages with this tag.")] = None,
    message_id: Annotated[str | None, option("ID", "Offset message id, or unique key.")] = None,
    limit: Annotated[int | None, option("N", "Maximum number of rows.", min=1)] = None,
    reverse: Annotated[bool, option("--reverse", "Newest first.")] = False,
    fields: Annotated[
        str | None, option("A,B", "Only these fields, in this order.", OUTPUT, autocompletion=fields_of_dump)
    ] = None,
    body: shared.BodyOption = BodyForm.NONE,
    body_limit: shared.BodyLimitOption = BODY_LIMIT,
    decode: shared.DecodeOption = None,
    raw: shared.RawOption = False,
    hex_view: Annotated[bool, option("--hex", "Show every byte with its field.", OUTPUT)] = False,
    stale: Annotated[bool, option("--stale", "Also show old records after the end of the commit log.")] = False,
    follow: Annotated[
        bool, option("--follow", "Wait for more records at the end of the commit log, until ^C.")
    ] = False,
    pending: Annotated[
        bool, option("--pending", "List messages that wait for their time: timers and delay levels.")
    ] = False,
    transactions: Annotated[bool, option("--transactions", "List half messages and whether they ended.")] = False,
    pop: Annotated[
        bool, option("--pop", "List messages that pop consumers hold, and when they are delivered again.")
    ] = False,
    *,
    store_options: shared.StoreOptions,
    broker_version: _Version = None,
    output: shared.FormatOption = OutputFormat.TABLE,
) -> None:
    """Print the records of a store, a directory or a single file of any kind.

    A bad range is a row, and the dump continues after it; the exit code is then 3. For a store, the commit log is
    printed.

    Example: rmqtool dump /home/rocketmq/store --topic 'orders*' --body text --limit 10
    """
    if follow and path.url is not None:
        raise UsageError("--follow does not work with a URL: the store is listed only once")
    ask = Request(
        topics=tuple(topic or ()), queue_id=queue_id, from_offset=from_offset, to_offset=to_offset,
        from_ms=shared.timestamp_ms(from_time, "--from-time"), to_ms=shared.timestamp_ms(to_time, "--to-time"),
        key=key, tag=tag, message_id=message_id, limit=limit, reverse=reverse, stale=stale, follow=follow,
        body=body_choice(body, body_limit, raw, decode), hex_width=screen().width if hex_view else None,
        broker_version=broker_version or NEWEST,
    )  # fmt: skip
    listings = {DumpKind.PENDING: pending, DumpKind.TRANSACTIONS: transactions, DumpKind.POP: pop}
    chosen = [listing for listing, is_chosen in listings.items() if is_chosen]
    if len([*chosen, *([kind] if kind is not None else [])]) > 1:
        raise UsageError("--type, --pending, --transactions and --pop exclude each other")
    kind = chosen[0] if chosen else kind
    target = find_target(
        path, TargetOptions(kind, store_options.commitlog, store_options.index_slots, store_options.broker_conf)
    )
    if target.store is not None:
        settle("this store", sum(map(len, target.store.files.values())))
    run_dump(ask, target, output, fields, messages_of(context))


def run_dump(ask: Request, target: Target, output: OutputFormat, fields: str | None, messages: Messages) -> None:
    """Write the rows of a target; exit with 3 where a bad range was met, with 4 where something could not be read."""
    check_request(ask, target.kind, output)
    known = fields_of_kind(target.kind, ask.body)
    chosen = chosen_fields(fields, known)
    source = make_source(ask, target)
    for problem in target.problems:
        messages.warn(problem)
    if not target.entries:
        messages.warn(f"{target.label}: no {target.kind} files; --type shows those of another kind")
    terminal = screen()
    shares_line = sys.stdout.isatty()
    with (
        ends_unread(ExitCode.OK),
        closing(
            row_writer(output, sys.stdout, known, chosen, width=terminal.table_width, color=terminal.color)
        ) as writer,
        nullcontext() if ask.follow else messages.progress("dump", total=source.readable_bytes) as progress,
    ):
        left = ask.limit or sys.maxsize
        for rows in source.rows():
            if progress is not None and shares_line:
                progress.hide()
            if rows is None:
                sys.stdout.flush()
            elif isinstance(rows, RowBlock):
                writer.write_block(rows.head(left))
                left -= rows.count
            else:
                writer.write(rows)
                left -= 1
            if left <= 0:
                break
    if ask.topics and left == (ask.limit or sys.maxsize) and target.store is not None:
        for text in absent_topics([target.store], ask.topics):
            messages.warn(text)
    for problem in source.problems:
        messages.error(problem)
    tell_failures(ask.body, messages)
    if source.bad_ranges:
        messages.warn(f"bad ranges: {source.bad_ranges}")
    if source.problems or target.unread:
        raise typer.Exit(ExitCode.FAILED)
    if source.bad_ranges:
        raise typer.Exit(ExitCode.FINDINGS)
