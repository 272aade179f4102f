"""`rmqtool stats`: figures of the log by topic, queue, tag, hour, producer or size, counted by Spark."""

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
from rmqtool.pipeline.enums import By
from rmqtool.report.writers import OutputFormat, row_writer


def stats(
    context: typer.Context,
    stores: StorePaths,
    by: Annotated[By, typer.Option("--by", help="What to count by; hours in the time zone of the output.")] = By.TOPIC,
    topic: TopicOption = None,
    from_time: FromTimeOption = None,
    to_time: ToTimeOption = None,
    commitlog: CommitlogOption = None,
    output: FormatOption = OutputFormat.TABLE,
    master: AlwaysMasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
) -> None:
    """Show message counts, sizes and first store time by topic, queue, tag, hour, producer or size.

    The exit code is 3 if bad ranges of a log could not be counted.

    Example: rmqtool stats /home/rocketmq/store --by queue
    """
    messages = messages_of(context)
    options = source_options(stores, commitlog, topic, from_time, to_time)
    from rmqtool.pipeline.session import require_pyspark

    require_pyspark()  # before what needs it is imported
    from rmqtool.pipeline import stats as figures_of
    from rmqtool.pipeline.frames import checked_stores, table_frame

    fields = figures_of.fields(by)
    options["columns"] = ",".join(figures_of.columns(by))
    checked_stores(options)  # before Spark starts for it
    bad = None
    shown = screen()
    with spark(master, conf, messages, "stats") as session:
        frame = table_frame(session, options)
        rows = list(figures_of.figures(frame, by))
    writer = row_writer(output.value, sys.stdout, fields, width=shown.table_width, colour=shown.colour)
    for row in rows:
        if isinstance(row, figures_of.BadRanges):
            bad = row
        else:
            writer.write({"type": "figures", **row})
    writer.close()
    if not rows:
        warn_of_absent_topics(stores, commitlog, topic, messages)
    if bad is not None:
        messages.warn(f"bad ranges, not counted: {bad.count}, {bad.size} bytes")
        raise typer.Exit(ExitCode.FINDINGS)
