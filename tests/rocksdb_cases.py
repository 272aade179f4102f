"""Consume queues in RocksDB that a broker wrote: the damages of the fixtures done to them, and other changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rocksdict import BlockBasedOptions, Options, Rdict

from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import Damage, Harm, damage_store
from rmqtool.formats.rocksdb.queue import DISPATCHED_KEY, offset_key
from rmqtool.store.databases.rocksdb import TABLE_FORMAT, RocksFamily, RocksReading
from rmqtool.store.directory import survey
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.view import open_directory
from tests.broker.files import Snapshot, snapshot

NAME = "5.5.0-rocksdb-cq"
QUEUE = (b"Audit", 0)
"""44 messages, from the first record of the log on."""
MAXIMUM, MINIMUM = offset_key(*QUEUE, is_maximum=True), offset_key(*QUEUE, is_maximum=False)
Rows = Any


def edit(store: Path, change: Callable[[Rows, Rows], None], folder: str = "consumequeue") -> None:
    """Change rows of a database: tables of a format that brokers read, nothing left in the write-ahead log."""
    table = BlockBasedOptions()
    table.set_format_version(TABLE_FORMAT)
    options = {name: Options(raw_mode=True) for name in ("default", "offset")}
    for each in options.values():
        each.set_block_based_table_factory(table)
    database = Rdict(str(store / folder), options=options["default"], column_families=options)
    units, ends = database, database.get_column_family("offset")
    change(units, ends)
    units.flush()
    ends.flush()
    database.close()
    for name in ("LOG", "rocksdict-config.json"):
        (store / folder / name).unlink(missing_ok=True)


def write_rows(folder: Path, families: Mapping[str, Mapping[bytes, bytes]]) -> None:
    """Put rows into a database, which is made where there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    table = BlockBasedOptions()
    table.set_format_version(TABLE_FORMAT)
    known = Rdict.list_cf(str(folder)) if (folder / "CURRENT").exists() else []
    options = {name: Options(raw_mode=True) for name in dict.fromkeys(["default", *known, *families])}
    for family_options in options.values():
        family_options.set_block_based_table_factory(table)
        family_options.create_if_missing(True)
        family_options.create_missing_column_families(True)
    database = Rdict(str(folder), options=options["default"], column_families=options)
    for name, rows_of_family in families.items():
        family = database if name == "default" else database.get_column_family(name)
        for key, value in rows_of_family.items():
            family.put(key, value)
        family.flush()
    database.close()
    for name in ("LOG", "rocksdict-config.json"):
        (folder / name).unlink(missing_ok=True)


def numbers(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "big", signed=True) for value in values)


@dataclass(frozen=True)
class Case:
    """A change of the database, the findings about it and its queues; if a broker loads the store."""

    name: str
    apply: Callable[[Path], object]
    findings: tuple[str, ...] = ()
    loads: bool = True

    @property
    def opens(self) -> bool:
        """Whether the library opens the database; brokers demand in addition that they know all families."""
        return "rocksdb.not-loadable" not in self.findings or self.name == "rocksdb-unknown-family"

    @property
    def is_read(self) -> bool:
        """Whether all rows of a database that opens can be read."""
        return "rocksdb.unreadable" not in self.findings


def files(pattern: str, change: Callable[[Path], object]) -> Callable[[Path], None]:
    def apply(store: Path) -> None:
        for file in sorted((store / "consumequeue").glob(pattern)):
            change(file)

    return apply


def lengthen(key: bytes, size: int) -> Callable[[Path], None]:
    """Lengthen the value of an end."""
    return lambda store: edit(store, lambda _, ends: ends.put(key, ends[key].ljust(size, b"\0")))


def half(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def overwrite(file: Path) -> None:
    file.write_bytes(bytes(range(100)))


def damage_case(damage: Damage) -> Case:
    """A damage of the fixtures, done to a store that a broker wrote."""
    loads = damage.harm_to(rules_for("5.5.0")) is not Harm.NO_LOAD
    return Case(damage.name, partial(damage_store, damage), damage.findings, loads)


def without_database(store: Path) -> tuple[Snapshot, Sequence[str], object]:
    """A generated store: all files but those of the database, whose bytes vary; their names and rows."""
    files = snapshot(store)
    own = sorted(path for path in files if path.startswith("consumequeue/") and path.count("/") == 1)
    database = survey(open_directory(store)).files.get(FileKind.CONSUMEQUEUE_ROCKSDB, ())
    rows: dict[str, dict[bytes, bytes]] = {"default": {}, "offset": {}}
    reading = RocksReading(open_directory(store), database)
    for batch in reading.batches([RocksFamily(name) for name in rows]):
        rows[batch.family][batch.prefix] = batch.values
    return {path: files[path] for path in files.keys() - set(own)}, own, (rows, reading.failure)


HARMLESS = (
    Case("healthy", lambda _: None),
    Case("OPTIONS gone", files("OPTIONS*", Path.unlink)),
    Case("OPTIONS overwritten", files("OPTIONS*", overwrite)),
    Case("write-ahead log gone", files("*.log", Path.unlink)),
    Case("write-ahead log overwritten", files("*.log", overwrite)),
    Case("IDENTITY gone", files("IDENTITY", Path.unlink)),
    Case("dispatched longer", lengthen(DISPATCHED_KEY, 16)),
    Case("maximum longer", lengthen(MAXIMUM, 24)),
)
"""What may be missing or longer without loss."""
MANIFEST_CUT = Case("MANIFEST cut", files("MANIFEST*", half), ("consumequeue.behind-log",))
"""The database is as it was earlier, or does not open: that depends on where the file ends."""
CASES = (
    *HARMLESS,
    MANIFEST_CUT,
    *(damage_case(damage) for damage in DAMAGES.values() if damage.name.startswith("rocksdb-")),
)
"""Done to the golden store `NAME`."""
BY_NAME = {case.name: case for case in CASES}
