"""What the tests of the pipeline share: the golden stores, rows as `dump` has them, and one local session."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow

from rmqtool.pipeline.tables.log_splits import LogTask, read_task
from rmqtool.report.fields import MESSAGE_PROFILES
from rmqtool.scan.row_filter import RowFilter
from rmqtool.store.databases.queue_database import read_queue_database
from rmqtool.store.view import open_directory
from tests.commands.transcripts import rmqtool

Rows = list[dict[str, Any]]

WHERE = {"store", "file", "file_position", "verdict", "store_time", "born_time"}
"""Columns that a dump row does not have."""
COLUMNS = [name for name in MESSAGE_PROFILES["properties"] if name not in WHERE]


def dump_rows(store: Path, *options: str) -> Rows:
    """The rows of a dump, with all columns of the table; what a row does not have is None."""
    ran = rmqtool("dump", store, "--format", "jsonl", *options)
    assert ran.code in (0, 3, 4), ran.err
    rows = [json.loads(line) for line in ran.out.splitlines()]
    return [{name: row.get(name) for name in COLUMNS} for row in rows]


def part_rows(parts: Sequence[LogTask], schema: pyarrow.Schema, wanted: Sequence[RowFilter]) -> Rows:
    """All rows of some parts of a log, read in this process."""
    return [row for part in parts for batch in read_task(part, schema, wanted) for row in batch.to_pylist()]


def as_dumped(rows: Rows) -> Rows:
    """Rows of the table as those of a dump."""
    found = []
    for row in rows:
        kept: dict[str, Any] = {name: row[name] for name in COLUMNS}
        if kept["properties"] is not None:
            kept["properties"] = dict(kept["properties"])
        found.append(kept)
    return found


def contents(folder: Path) -> dict[str, str]:
    """The hash of each file of a store, of tool's own notes none; of queues in RocksDB that of their rows.

    The library gives each database another identity, so that the bytes of its files differ.
    """
    hashes = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and ".rmqtool" not in path.parts
    }
    if "consumequeue/CURRENT" in hashes:
        view = open_directory(folder)
        database = read_queue_database(view, view.list("consumequeue"))
        assert database.failure is None, database.reason
        rows = [(name, database.rows(name, 0, queue.unit_count).tobytes()) for name, queue in database.units.items()]
        content = repr((rows, database.ends, database.dispatched, database.odd_rows))
        hashes = {path: value for path, value in hashes.items() if path.rpartition("/")[0] != "consumequeue"}
        hashes["consumequeue/"] = hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()
    return hashes
