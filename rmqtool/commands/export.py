"""`rmqtool export`: a table of stores as Parquet, JSON, CSV or Avro, written by Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rmqtool.commands.messages import messages_of
from rmqtool.commands.options import CommitlogOption
from rmqtool.commands.output_files import demand_directory
from rmqtool.commands.spark import DEFAULT_MASTER, AlwaysMasterOption, ConfOption, spark
from rmqtool.commands.spark_tables import FromTimeOption, StorePaths, TopicOption, ToTimeOption, source_options
from rmqtool.pipeline.enums import Form, Profile, TableName
from rmqtool.report.writers import json_text


def export(
    context: typer.Context,
    stores: StorePaths,
    to: Annotated[
        Path,
        typer.Option(
            "--to", metavar="DIR", help="Output directory, outside any store; written completely or not at all."
        ),
    ],
    table: Annotated[TableName, typer.Option("--table", help="Which table.")] = TableName.MESSAGES,
    form: Annotated[Form, typer.Option("--format", help="File format.")] = Form.PARQUET,
    partition_by: Annotated[
        str | None, typer.Option(metavar="A,B", help="Partition columns, one directory each; also day and hour.")
    ] = None,
    profile: Annotated[Profile, typer.Option("--profile", help="Columns of the messages table.")] = Profile.HEADERS,
    columns: Annotated[str | None, typer.Option(metavar="A,B", help="Only these columns.")] = None,
    topic: TopicOption = None,
    from_time: FromTimeOption = None,
    to_time: ToTimeOption = None,
    commitlog: CommitlogOption = None,
    master: AlwaysMasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
) -> None:
    """Export a table of one or more stores to files, with a manifest of row counts and hashes.

    If the same files were already exported to the same directory, nothing is done.

    Example: rmqtool export /home/rocketmq/store --table messages --to /archive/messages --partition-by topic,day
    """
    messages = messages_of(context)
    options = source_options(stores, commitlog, topic, from_time, to_time)
    options["table"] = table.value
    if table is TableName.MESSAGES:
        options["profile"] = profile.value
    if columns is not None:
        options["columns"] = columns
    manifest = _exported(context, options, to.absolute(), form, partition_by, master, conf)
    summary = {"to": str(to), "rows": manifest["rows"], "files": len(manifest["files"])}
    summary["bytes"] = sum(file["bytes"] for file in manifest["files"])
    sys.stdout.write(json_text(summary) + "\n")
    messages.note(f"{to}: {summary['rows']} rows")


def _exported(
    context: typer.Context,
    options: dict[str, str],
    target: Path,
    form: Form,
    partition_by: str | None,
    master: str,
    conf: list[str] | None,
) -> dict[str, Any]:
    from rmqtool.pipeline.session import require_pyspark

    require_pyspark()  # before what needs it is imported
    from rmqtool.pipeline.export import Export, refuse_inside
    from rmqtool.pipeline.frames import checked_stores, table_frame

    names = tuple(name.strip() for name in (partition_by or "").split(",") if name.strip())
    table_export = Export(target, form, options, names)
    refuse_inside(target, checked_stores(options))
    demand_directory("--to", target)
    request = table_export.request()
    before = table_export.done_before(request)
    if before is not None:
        messages_of(context).note("this export is already complete")
        return before
    try:
        with spark(master, conf, messages_of(context), "export") as session:
            return table_export.write(table_frame(session, options), request)
    finally:
        table_export.discard_partial()  # now that no task can write into it any more
