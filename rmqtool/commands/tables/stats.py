"""`rmqtool stats`: figures of the log by store, topic, queue, tag, hour, producer or size; Spark counts large logs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rmqtool.answer.exit_codes import ExitCode
from rmqtool.commands.messages import messages_of
from rmqtool.commands.options import spark_tables as tables
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.spark import DEFAULT_MASTER, ConfOption, LargeMasterOption, spark
from rmqtool.commands.options.store import CommitlogOption, FormatOption
from rmqtool.commands.screen import screen
from rmqtool.pipeline.enums import By
from rmqtool.report.writers import OutputFormat, row_writer


def stats(
    context: typer.Context,
    stores: tables.StorePaths,
    by: Annotated[By, option("--by", "What to count by; hours in the time zone of the output.")] = By.TOPIC,
    topic: tables.TopicOption = None,
    from_time: tables.FromTimeOption = None,
    to_time: tables.ToTimeOption = None,
    commitlog: CommitlogOption = None,
    output: FormatOption = OutputFormat.TABLE,
    master: LargeMasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Show message counts, sizes and first store time by store, topic, queue, tag, hour, producer or size.

    The exit code is 3 if bad ranges of a log could not be counted.

    Example: rmqtool stats /home/rocketmq/store --by queue
    """
    messages = messages_of(context)
    options = tables.source_options(stores, commitlog, topic, from_time, to_time)
    from rmqtool.pipeline.jobs import stats as figures_of

    fields = figures_of.fields(by)
    options["columns"] = ",".join(figures_of.columns(by))
    bad = None
    terminal = screen()
    if tables.reads_here(options, master, conf):
        from rmqtool.pipeline.stores import read_messages

        rows = list(figures_of.figures_of_batches(read_messages(options), by))
    else:
        with spark(master or DEFAULT_MASTER, conf, messages, "stats") as session:
            from rmqtool.pipeline.frames import table_frame

            rows = list(figures_of.figures(table_frame(session, options), by))
    writer = row_writer(output.value, sys.stdout, fields, width=terminal.table_width, color=terminal.color)
    for row in rows:
        if isinstance(row, figures_of.BadRanges):
            bad = row
        else:
            writer.write({"type": "figures", **row})
    writer.close()
    if not rows:
        tables.warn_of_absent_topics(stores, commitlog, topic, messages)
    if bad is not None:
        messages.warn(f"bad ranges, not counted: {bad.count}, {bad.size} bytes")
        raise typer.Exit(ExitCode.FINDINGS)
