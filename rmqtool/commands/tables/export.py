"""`rmqtool export`: a table of stores as files, or in tables of Iceberg or Delta, written by Spark."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rmqtool.commands.messages import messages_of
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.output_files import demand_directory, refuse_dash
from rmqtool.commands.options.spark import DEFAULT_MASTER, AlwaysMasterOption, ConfOption, settings_of, spark
from rmqtool.commands.options.spark_tables import FromTimeOption, StorePaths, TopicOption, ToTimeOption, source_options
from rmqtool.commands.options.store import CommitlogOption
from rmqtool.errors import UsageError
from rmqtool.pipeline.enums import Form, Profile, TableName
from rmqtool.report.text import counted
from rmqtool.report.writers import json_text


def export(
    context: typer.Context,
    stores: StorePaths,
    to: Annotated[
        str,
        option(
            "--to DIR|URL",
            "Output directory outside any store, or a URL that Spark can write; written completely or not at all.",
        ),
    ],
    table: Annotated[TableName, option("--table", "Which table.")] = TableName.MESSAGES,
    form: Annotated[Form, option("--format", "File format; iceberg and delta with --incremental.")] = Form.PARQUET,
    incremental: Annotated[
        bool, option("--incremental", "Add what is new since the last run to the tables in the output directory.")
    ] = False,
    accept_loss: Annotated[
        bool,
        option("--accept-loss", "With --incremental: continue if a broker removed messages before they were exported."),
    ] = False,
    break_lease: Annotated[
        str | None, option("ID", "Remove this lease of an export that has ended; the refusal names it.")
    ] = None,
    partition_by: Annotated[
        str | None, option("A,B", "Partition columns, one directory each; also day and hour.")
    ] = None,
    profile: Annotated[Profile, option("--profile", "Columns of the messages table.")] = Profile.HEADERS,
    columns: Annotated[str | None, option("A,B", "Only these columns.")] = None,
    topic: TopicOption = None,
    from_time: FromTimeOption = None,
    to_time: ToTimeOption = None,
    commitlog: CommitlogOption = None,
    master: AlwaysMasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
) -> None:
    """Export a table of one or more stores to files, with a manifest of row counts and hashes.

    If the same files were already exported to the same directory, nothing is done. With --incremental each message
    is exported once, however often the command runs or is killed.

    Example: rmqtool export /home/rocketmq/store --table messages --to /archive/messages --partition-by topic,day
    """
    messages = messages_of(context)
    options = source_options(stores, commitlog, topic, from_time, to_time)
    options["table"] = table.value
    if table is TableName.MESSAGES or (table is TableName.BUSINESS_MESSAGES and profile is not Profile.HEADERS):
        options["profile"] = profile.value
    if columns is not None:
        options["columns"] = columns
    partitions = tuple(name.strip() for name in (partition_by or "").split(",") if name.strip())
    request = _Request(options, to, form, partitions, master, conf, break_lease)
    if incremental:
        summary: dict[str, Any] = {"to": to, **_added(context, request, accepts_loss=accept_loss)}
    elif form in (Form.ICEBERG, Form.DELTA):
        raise UsageError(f"--format {form.value}: needs --incremental, which adds to the table")
    else:
        manifest = _exported(context, request)
        summary = {"to": to, "rows": manifest["rows"], "files": len(manifest["files"])}
        summary["bytes"] = sum(file["bytes"] for file in manifest["files"])
    sys.stdout.write(json_text(summary) + "\n")
    messages.note(f"{to}: {summary['rows']} rows")


@dataclass(frozen=True)
class _Request:
    """Typed options; `options` are those of the data source."""

    options: dict[str, str]
    to: str
    form: Form
    partition_by: tuple[str, ...]
    master: str
    conf: list[str] | None
    break_lease: str | None

    def place(self) -> tuple[str, bool]:
        """The target as a path or URL without a slash at its end, and True if it is a path.

        Raises:
            UsageError: the URL has options.
            RefusedError: it lies in a store.
            WriteError: it cannot be written.
        """
        from rmqtool.pipeline.jobs.export import refuse_inside
        from rmqtool.pipeline.jobs.target_files import local_target
        from rmqtool.pipeline.stores import checked_stores

        refuse_dash("--to", Path(self.to))
        path = local_target(self.to)
        stores = checked_stores(self.options)
        if path is None:
            return self.to.rstrip("/"), False
        refuse_inside(path, stores)
        demand_directory("--to", path)
        return str(path), True


def _exported(context: typer.Context, request: _Request) -> dict[str, Any]:
    from rmqtool.pipeline.session import require_pyspark

    require_pyspark()  # before what needs it is imported
    from rmqtool.pipeline.frames import table_frame
    from rmqtool.pipeline.jobs.export import Export
    from rmqtool.pipeline.jobs.lease import Lease, break_lease
    from rmqtool.pipeline.jobs.target_files import HadoopFiles, LocalFiles, TargetFiles

    messages = messages_of(context)
    target, is_local = request.place()
    table_export = Export(target, request.form, request.options, request.partition_by)
    asked, leases = table_export.request(), table_export.leases
    files: TargetFiles = LocalFiles()
    before = table_export.done_before(asked, files) if is_local else None
    lease: Lease | None = None
    if before is None:
        try:
            with spark(request.master, request.conf, messages, "export") as session:
                files = LocalFiles(session) if is_local else HadoopFiles.open(session, target)
                try:
                    if request.break_lease is not None:
                        break_lease(files, leases, request.break_lease)
                    lease = Lease.take(files, leases, session)
                    before = table_export.done_before(asked, files)
                    if before is None:
                        return table_export.write(table_frame(session, request.options), asked, files, lease)
                finally:
                    if lease is not None and not is_local:  # its files are Spark's, which is about to end
                        table_export.discard_partial(files, lease)
                        lease.release()
        finally:
            if lease is not None and is_local:  # now that no task can write into it any more
                table_export.discard_partial(LocalFiles(), lease)
                lease.release(LocalFiles())
    messages.note("this export is already complete")
    return before


def _added(context: typer.Context, request: _Request, *, accepts_loss: bool) -> dict[str, int]:
    from rmqtool.pipeline.stores import LOG_BYTES_MAX, checked_stores, require_pyarrow

    require_pyarrow()
    from rmqtool.pipeline.jobs.in_process import can_write
    from rmqtool.pipeline.jobs.incremental import LEASES, IncrementalExport, demand_growing
    from rmqtool.pipeline.jobs.lakehouse import table_settings
    from rmqtool.pipeline.jobs.lease import break_lease
    from rmqtool.pipeline.jobs.target_files import HadoopFiles, LocalFiles, TargetFiles

    table = request.options["table"]
    demand_growing(table)
    messages = messages_of(context)
    messages.interrupted = "the next run adds what this one did not"
    target, is_local = request.place()
    stores, now_ms = checked_stores(request.options), time.time_ns() // 1_000_000

    def growing_in(files: TargetFiles) -> IncrementalExport:
        return IncrementalExport(
            target, request.form, table, request.options, request.partition_by, stores, now_ms, files, accepts_loss
        )

    def run_in(files: TargetFiles, session: Any = None) -> tuple[IncrementalExport, dict[str, int]]:
        if request.break_lease is not None:
            break_lease(files, f"{target}/{LEASES}", request.break_lease)
        growing = growing_in(files)
        return growing, growing.run(session)

    growing = growing_in(LocalFiles())
    new_bytes = growing.new_bytes() if is_local else None
    is_chosen = request.master != DEFAULT_MASTER or bool(request.conf)
    is_done = new_bytes == 0 and request.break_lease is None and not growing.has_leftovers()
    # A time as a folder is written in another way here.
    is_chosen |= bool({"store_time", "born_time"} & {*request.partition_by})
    if is_done:
        added = growing.added
    elif new_bytes is not None and new_bytes <= LOG_BYTES_MAX and can_write(request.form) and not is_chosen:
        with messages.progress("export", total=lambda: new_bytes):
            growing, added = run_in(LocalFiles())
    else:
        from rmqtool.pipeline.session import require_pyspark

        require_pyspark()  # before what needs it is imported
        place = LocalFiles().spark_path(target) if is_local else target
        more = table_settings(request.form, place, settings_of(request.conf))
        conf = [*(request.conf or ()), *(f"{name}={value}" for name, value in more.items())]
        with spark(request.master, conf, messages, "export") as session:
            growing, added = run_in(LocalFiles(session) if is_local else HadoopFiles.open(session, target), session)
    left = {label: count for label, count in growing.unflushed.items() if count}
    unflushed_bytes = sum(left.values())
    if left:
        others = len(left) - 1
        where = next(iter(left)) + (f" and {counted(others, 'other store')}" if others else "")
        messages.warn(
            f"{where}: {counted(unflushed_bytes, 'byte')} at the end of the log were not exported, because a broker "
            "may use the store and has not flushed them; the next run adds them"
        )
    return {**added, "unflushed_bytes": unflushed_bytes}
