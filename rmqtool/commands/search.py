"""`rmqtool search`: the messages in which a pattern is found, looked for by Spark."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rmqtool.commands.exit_codes import ExitCode
from rmqtool.commands.messages import messages_of
from rmqtool.commands.options import CommitlogOption, FormatOption
from rmqtool.commands.screen import screen
from rmqtool.commands.spark import DEFAULT_MASTER, AlwaysMasterOption, ConfOption, spark
from rmqtool.commands.spark_tables import (
    FromTimeOption,
    StorePaths,
    TopicOption,
    ToTimeOption,
    source_options,
    warn_of_absent_topics,
)
from rmqtool.pipeline.enums import Where
from rmqtool.report.writers import OutputFormat, row_writer


def search(
    context: typer.Context,
    stores: StorePaths,
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="Regular expression (RE2 syntax).")],
    where: Annotated[
        Where, typer.Option("--in", help="Where to search; properties are written NAME=value.")
    ] = Where.BODY,
    topic: TopicOption = None,
    from_time: FromTimeOption = None,
    to_time: ToTimeOption = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="Maximum number of messages.")] = None,
    commitlog: CommitlogOption = None,
    output: FormatOption = OutputFormat.TABLE,
    master: AlwaysMasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
) -> None:
    """Find messages that match a pattern, in one or more stores; compressed bodies are decompressed.

    The exit code is 3 if bad ranges of a log could not be searched, 6 if nothing was found.

    Example: rmqtool search /home/rocketmq/store "order-4711[0-9]" --in keys
    """
    messages = messages_of(context)
    options = source_options(stores, commitlog, topic, from_time, to_time)
    from rmqtool.pipeline.session import require_pyspark

    require_pyspark()  # before what needs it is imported
    from rmqtool.pipeline.frames import checked_stores, table_frame
    from rmqtool.pipeline.search import SHOWN, parse_search

    parse_search(pattern, where.value)
    options |= {"pattern": pattern, "pattern_in": where.value, "columns": ",".join(SHOWN)}
    checked_stores(options)  # before Spark starts for it
    shown = screen()
    bad = count = 0
    with spark(master, conf, messages, "search") as session:
        frame = table_frame(session, options)
        writer = row_writer(output.value, sys.stdout, SHOWN, width=shown.table_width, colour=shown.colour)
        for row in frame.toLocalIterator(prefetchPartitions=True):
            if row["finding"] is not None:
                bad += 1
                continue
            writer.write(row.asDict())
            count += 1
            if count == limit:
                break
        writer.close()
    if bad:
        messages.warn(f"bad ranges, not searched: {bad}")
        raise typer.Exit(ExitCode.FINDINGS)
    if not count:
        warn_of_absent_topics(stores, commitlog, topic, messages)
        raise typer.Exit(ExitCode.NOT_FOUND)
