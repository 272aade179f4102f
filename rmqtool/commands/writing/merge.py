"""`rmqtool merge`: several stores, or a store whose commit log is on several disks, as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rmqtool.commands.messages import messages_of
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.output_files import demand_directory
from rmqtool.commands.options.spark_tables import TopicOption
from rmqtool.commands.options.store import ObjectFormatOption, StoreOptions, with_store_options
from rmqtool.commands.writing.new_store import make_store, open_sources
from rmqtool.errors import UsageError
from rmqtool.report.writers import ObjectFormat
from rmqtool.store.location import local_path


@with_store_options()
def merge(
    context: typer.Context,
    stores: Annotated[list[Path], typer.Argument(metavar="STORE...", help="Store roots.", parser=local_path)],
    output: Annotated[Path, option("--output NEW", "Directory of the new store.")],
    topic: TopicOption = None,
    dry_run: Annotated[bool, option("--dry-run", "Count the messages, and write nothing.")] = False,
    *,
    store_options: StoreOptions,
    form: ObjectFormatOption = ObjectFormat.TABLE,
) -> None:
    """Write a new store with the messages of several stores.

    The stores are only read, and queue offsets stay. A queue that is in several stores must continue in the next one
    where it ends in the one before; otherwise nothing is written. The exit code is 3 if something was left out.

    Example: rmqtool merge /old/store /new/store --output /data/joined
    """
    from rmqtool.extract.chosen import Choice

    if store_options.commitlog and len(stores) > 1:
        raise UsageError("--commitlog works with one store only")
    demand_directory("--output", output)
    messages = messages_of(context)
    choice = Choice(tuple(topic or ()))
    make_store(
        open_sources(stores, store_options, messages), choice, output, store_options, messages, form, dry_run=dry_run
    )
