"""Shared parts of `extract` and `merge`: open the stores, write the new one, print the result."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rmqtool.answer.exit_codes import ExitCode
from rmqtool.answer.opened_store import OpenedStore
from rmqtool.commands.messages import Messages
from rmqtool.commands.options.run import thread_count
from rmqtool.commands.options.store import StoreOptions, open_store, tell_opened
from rmqtool.commands.screen import show_object
from rmqtool.errors import NotAStoreError, RefusedError
from rmqtool.repair.machine.store_paths import DEFAULT_LOG
from rmqtool.report.writers import ObjectFormat
from rmqtool.scan.first_time import first_store_time_ms
from rmqtool.store.directory import Settings
from rmqtool.store.dledger_files import demand_plain_log

if TYPE_CHECKING:
    from rmqtool.extract.chosen import Choice
    from rmqtool.extract.new_store import NewStore, SourceLog


def open_sources(roots: Sequence[Path], options: StoreOptions, messages: Messages) -> list[tuple[Path, OpenedStore]]:
    """The stores, by the time of their first message: what one continues comes after it.

    Raises:
        NotAStoreError: one has no commit log.
        RefusedError: nothing shows the broker version of one; the new store's rules would be guessed.
    """
    sources: list[tuple[int, Path, OpenedStore]] = []
    for root in roots:
        opened = open_store(root, options)
        demand_plain_log(opened.store)
        if not opened.store.commitlog:
            raise NotAStoreError(f"{root}: no commit log")
        if not opened.is_version_known:
            raise RefusedError(f"{root}: nothing in the store shows its broker version; pass --broker-version X.Y.Z")
        tell_opened(opened, messages)
        first = opened.store.commitlog[0]
        with closing(opened.store.view.open(first.path)) as source:
            sources.append((first_store_time_ms(source) or 0, root, opened))
    return [(root, opened) for _, root, opened in sorted(sources, key=lambda one: one[0])]


def make_store(
    opened: Sequence[tuple[Path, OpenedStore]],
    choice: Choice,
    output: Path,
    store_options: StoreOptions,
    messages: Messages,
    form: ObjectFormat,
    *,
    dry_run: bool,
) -> None:
    """Write the new store, or count what would be in it, and end with 3 where something is left out."""
    from rmqtool.extract.new_store import SourceLog, count_chosen, write_new_store
    from rmqtool.repair.derived.result import BuildOptions

    sources: list[SourceLog] = [
        SourceLog(one.store, one.rules, root, one.store.settings.commitlog_directories or DEFAULT_LOG)
        for root, one in opened
    ]
    if dry_run:
        with messages.progress("count"):
            result = count_chosen(sources, choice)
    else:
        stores = [one.store for _, one in opened]
        conf = opened[0][1].conf
        has_crc = bool(conf is not None and conf.has_record_crc)
        sizes = store_options.sizes or Settings()
        shown = replace(
            stores[0].settings,
            commitlog_file_size=sizes.commitlog_file_size or max(store.commitlog_file_size or 0 for store in stores),
            consumequeue_file_size=sizes.consumequeue_file_size
            or next((size for store in stores if (size := store.consumequeue_file_size)), None),
            index_slot_count=stores[0].index_slot_count,
            index_entry_count=stores[0].index_entry_count,
            queue_kind=None,
        )
        options = BuildOptions(threads=thread_count(), record_crc=has_crc)
        messages.interrupted = f"the stores were not changed, and {output} was removed"
        with messages.progress("new store") as progress:
            result = write_new_store(sources, choice, output, shown, options, progress.show)
    _show(result, output, form, dry_run=dry_run)


def _show(new: NewStore, output: Path, form: ObjectFormat, *, dry_run: bool) -> None:
    from rmqtool.extract.chosen import BAD_RANGE, WAITING

    left_out = {reason: count for reason, count in sorted(new.left_out.items()) if count}
    complete = not (left_out.keys() & {BAD_RANGE, WAITING} or new.problems)
    result: dict[str, Any] = {
        "output": str(output),
        "dry_run": dry_run,
        "messages": sum(queue.messages for queue in new.queues.values()),
        "queues": [
            {
                "topic": topic,
                "queue_id": queue_id,
                "messages": queue.messages,
                "min_queue_offset": queue.first,
                "max_queue_offset": queue.end,
            }
            for (topic, queue_id), queue in sorted(new.queues.items())
        ],
        "left_out": left_out,
        "problems": list(new.problems),
        "notes": list(new.notes),
        "complete": complete,
    }
    from rmqtool.report.screens.new_store_screen import new_store_lines

    show_object(result, new_store_lines, form)
    if not complete:
        raise typer.Exit(ExitCode.FINDINGS)
