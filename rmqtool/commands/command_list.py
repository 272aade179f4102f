"""The commands, listed by hand: what `app` imports when one is chosen, and what the help says of it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rmqtool.store.location import StoreLocation

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "info": ("reading.info:info", "Show what a store holds, how its broker stopped, and what to do next."),
    "dump": ("reading.dump:dump", "Print the records of a store, a directory or a single file of any kind."),
    "get": ("reading.get:get", "Find messages as a broker would: by queue offset, message id, key or time."),
    "browse": (
        "reading.browse:browse",
        "Browse a store in the terminal: topics, queues, messages, records and findings.",
    ),
    "verify": (
        "reading.verify:verify",
        "Check a store: commit log, consume queues and index against each other, and the small files.",
    ),
    "watch": (
        "reading.watch:watch",
        "Check a store beside its running broker, as it grows: commit log, consume queues and index.",
    ),
    "forecast": (
        "reading.forecast:forecast",
        "Show what a broker would do at its next start, and which messages it would lose.",
    ),
    "report": ("documents.report:report", "Write a report on a store as one HTML page, to read, print or send."),
    "diff": (
        "reading.diff:diff",
        "Compare two stores or replicas: where their logs diverge, and which messages differ.",
    ),
    "recover": ("repairs.recover:recover", "Repair a store after a crash, before a broker starts on it."),
    "rebuild": (
        "repairs.rebuild:rebuild",
        "Rebuild consume queues, index and checkpoint from the commit log: all of them, or what is named.",
    ),
    "salvage": ("repairs.salvage:salvage", "Repair damage inside the commit log, and keep the messages after it."),
    "patch": (
        "repairs.patch:patch",
        "Set fields of one record, unit, slot, header or checkpoint, or copy a range of bytes from another file.",
    ),
    "undo": ("repairs.undo:undo", "Roll the latest repair back, byte for byte."),
    "append": ("writing.append:append", "Append test messages to a store that no broker is using."),
    "convert": (
        "repairs.convert:convert",
        "Convert consume queues between files and RocksDB, or a store of DLedger to one with a plain commit log.",
    ),
    "extract": ("writing.extract:extract", "Write a new store with some topics, or some hours, of another store."),
    "merge": ("writing.merge:merge", "Write a new store with the messages of several stores."),
    "replay": ("cluster.replay:replay", "Send the messages of stores into a running cluster, as a producer."),
    "mirror": (
        "cluster.mirror:mirror",
        "Keep a copy of a running broker's commit log, received through its replication port.",
    ),
    "export": (
        "tables.export:export",
        "Export a table of one or more stores to files, with a manifest of row counts and hashes.",
    ),
    "stats": (
        "tables.stats:stats",
        "Show message counts, sizes and first store time by store, topic, queue, tag, hour, producer or size.",
    ),
    "search": (
        "tables.search:search",
        "Find messages that match a pattern, in one or more stores; compressed bodies are decompressed.",
    ),
    "evidence": (
        "documents.evidence:evidence",
        "Write a support bundle of a store, without bodies, keys, tags and property values.",
    ),
    "fixture": ("writing.fixture:ACTIONS", "Make test stores, healthy or damaged."),
    "formats": ("reading.formats:formats", "Show the layout of every kind of file, field by field."),
}
"""Command: (module of this room and function, first line of the function's docstring), in the order of the help.

A group has a mapping of subcommands instead of a function."""


def command_of_repair(repair: str | None, place: StoreLocation) -> str | None:
    """The command line that repairs a finding; None where there is none."""
    if repair is None or place.path is None or repair.split()[0] not in COMMANDS:
        return None
    return f"rmqtool {repair} {shlex.quote(str(place))}"
