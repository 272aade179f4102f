"""`rmqtool extract`: a new store with a part of another one. What is in it, and how, `rmqtool.extract` decides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rmqtool.commands.messages import messages_of
from rmqtool.commands.options.completion import topics
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.output_files import demand_directory
from rmqtool.commands.options.spark_tables import FromTimeOption, ToTimeOption
from rmqtool.commands.options.store import ObjectFormatOption, StoreOptions, StorePath, timestamp_ms, with_store_options
from rmqtool.commands.writing.new_store import make_store, open_sources
from rmqtool.report.writers import ObjectFormat


@with_store_options()
def extract(
    context: typer.Context,
    store: StorePath,
    topic: Annotated[
        list[str], option("--topic T", "Messages of this topic (a pattern); repeatable.", autocompletion=topics)
    ],
    output: Annotated[Path, option("--output NEW", "Directory of the new store.")],
    from_time: FromTimeOption = None,
    to_time: ToTimeOption = None,
    keep_offsets: Annotated[
        bool, option("--keep-offsets", "Keep queue offsets, so that consumers continue where they are.")
    ] = False,
    dry_run: Annotated[bool, option("--dry-run", "Count the messages, and write nothing.")] = False,
    *,
    store_options: StoreOptions,
    form: ObjectFormatOption = ObjectFormat.TABLE,
) -> None:
    """Write a new store with some topics, or some hours, of another store.

    The other store is only read. A broker starts on the new one and serves the messages. Without --keep-offsets each
    queue begins at offset 0. The exit code is 3 if something of these topics was left out.

    Example: rmqtool extract /backup/store --topic Orders --from-time 2h --keep-offsets --output /data/orders
    """
    from rmqtool.extract.chosen import Choice

    choice = Choice(
        tuple(topic),
        timestamp_ms(from_time, "--from-time"),
        timestamp_ms(to_time, "--to-time"),
        keeps_offsets=keep_offsets,
    )
    demand_directory("--output", output)
    messages = messages_of(context)
    make_store(
        open_sources([store], store_options, messages), choice, output, store_options, messages, form, dry_run=dry_run
    )
