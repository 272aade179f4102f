"""Damage to consume queues in RocksDB, done to the files of a database or to its rows by the library itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocksdict import BlockBasedOptions, Options, Rdict

from rmqtool.formats.rocksdb_queue import DISPATCHED_KEY, offset_key, unit_key

NAME = "5.5.0-rocksdb-cq"
QUEUE = (b"Audit", 0)
"""44 messages, from the first record of the log on."""
MAXIMUM, MINIMUM = offset_key(*QUEUE, is_maximum=True), offset_key(*QUEUE, is_maximum=False)
Rows = Any


def edit(
    store: Path, change: Callable[[Rows, Rows], None], folder: str = "consumequeue", table_format: int = 5
) -> None:
    """Change rows of a database: tables of a format that brokers read, nothing left in the write-ahead log."""
    table = BlockBasedOptions()
    table.set_format_version(table_format)
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
    table.set_format_version(5)
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
    """A damage, the findings about the database and its queues; if a broker loads the store, the library opens it."""

    name: str
    apply: Callable[[Path], None]
    findings: tuple[str, ...] = ()
    loads: bool = True
    opens: bool = True


def files(pattern: str, change: Callable[[Path], object]) -> Callable[[Path], None]:
    def apply(store: Path) -> None:
        for file in sorted((store / "consumequeue").glob(pattern)):
            change(file)

    return apply


def rows(change: Callable[[Rows, Rows], object]) -> Callable[[Path], None]:
    return lambda store: edit(store, change)  # type: ignore[arg-type]


def remove(*queue_offsets: int) -> Callable[[Path], None]:
    return rows(lambda units, _: [units.delete(unit_key(*QUEUE, each)) for each in queue_offsets])


def put_end(key: bytes, *values: int) -> Callable[[Path], None]:
    return rows(lambda _, ends: ends.put(key, numbers(*values)))


def drop_end(key: bytes) -> Callable[[Path], None]:
    return rows(lambda _, ends: ends.delete(key))


def put_value(key: bytes, size: int) -> Callable[[Path], None]:
    """Cut or lengthen the value of an end."""
    return rows(lambda _, ends: ends.put(key, (ends.get(key) or numbers(0, 0))[:size].ljust(size, b"\0")))


def put_unit(queue_offset: int, size: int) -> Callable[[Path], None]:
    """Cut or lengthen the value of a unit."""
    key = unit_key(*QUEUE, queue_offset)
    return rows(lambda units, _: units.put(key, units[key][:size].ljust(size, b"\0")))


def half(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def overwrite(file: Path) -> None:
    file.write_bytes(bytes(range(100)))


def dispatch_less(units: Rows, ends: Rows) -> None:
    for queue_offset in (41, 42, 43):
        units.delete(unit_key(*QUEUE, queue_offset))
    ends.put(DISPATCHED_KEY, numbers(112_000))
    ends.put(MAXIMUM, numbers(113_788, 40))


def same_rows(units: Rows, _ends: Rows) -> None:
    """Write all units again into other tables."""
    for key, value in list(units.items()):
        units.put(key, value)
    units.flush()
    units.compact_range(None, None)


def copy_while_it_runs(store: Path) -> None:
    """What names the tables was copied first, and a compaction replaced them before they were."""
    folder = store / "consumequeue"
    early = {file.name: file.read_bytes() for file in folder.iterdir() if file.name.startswith(("CURRENT", "MANIFEST"))}
    edit(store, same_rows)
    for file in folder.glob("MANIFEST*"):
        file.unlink()
    for name, content in early.items():
        (folder / name).write_bytes(content)


_UNLOADABLE = {"findings": ("rocksdb.not-loadable",), "loads": False, "opens": False}
_BEHIND = ("rocksdb.dispatched-behind",)
CASES = (
    Case("healthy", lambda _: None),
    Case("tables overwritten", files("*.sst", overwrite), **_UNLOADABLE),
    Case("tables gone", files("*.sst", Path.unlink), **_UNLOADABLE),
    Case("tables cut", files("*.sst", half), **_UNLOADABLE),
    Case("tables of format version 6", lambda store: edit(store, same_rows, table_format=6), **_UNLOADABLE),
    Case("copied while it ran", copy_while_it_runs, **_UNLOADABLE),
    Case("one table gone", files("000010.sst", Path.unlink), **_UNLOADABLE),
    Case("CURRENT empty", files("CURRENT", lambda file: file.write_bytes(b"")), **_UNLOADABLE),
    Case("CURRENT gone", files("CURRENT", Path.unlink), **_UNLOADABLE),
    Case("CURRENT overwritten", files("CURRENT", overwrite), **_UNLOADABLE),
    Case("MANIFEST gone", files("MANIFEST*", Path.unlink), **_UNLOADABLE),
    Case("MANIFEST overwritten", files("MANIFEST*", overwrite), **_UNLOADABLE),
    Case("MANIFEST cut", files("MANIFEST*", half), ("consumequeue.behind-log",)),
    Case("OPTIONS gone", files("OPTIONS*", Path.unlink)),
    Case("OPTIONS overwritten", files("OPTIONS*", overwrite)),
    Case("write-ahead log gone", files("*.log", Path.unlink)),
    Case("write-ahead log overwritten", files("*.log", overwrite)),
    Case("IDENTITY gone", files("IDENTITY", Path.unlink)),
    Case("middle units gone", remove(10, 11, 12), ("consumequeue.missing-unit",)),
    Case("first units gone", remove(0, 1, 2), ("consumequeue.missing-unit",)),
    Case("last units gone", remove(41, 42, 43), ("consumequeue.missing-unit", "rocksdb.wrong-end")),
    Case("all units gone", remove(*range(44)), ("consumequeue.missing-unit", "rocksdb.wrong-end")),
    Case(
        "unit after the end",
        rows(lambda units, _: units.put(unit_key(*QUEUE, 44), numbers(5) + bytes(20))),
        ("rocksdb.stale-unit",),
    ),
    Case(
        "unit with another time",
        rows(lambda units, _: units.put(unit_key(*QUEUE, 5), units[unit_key(*QUEUE, 5)][:20] + numbers(77))),
        ("rocksdb.wrong-time",),
    ),
    Case(
        "unit of another record",
        rows(lambda units, _: units.put(unit_key(*QUEUE, 5), units[unit_key(b"TopicTest", 1, 5)])),
        ("consumequeue.wrong-record",),
    ),
    Case(
        "rows that mean nothing",
        rows(lambda units, ends: (units.put(b"x", b"y"), ends.put(b"x", b""), units.put(unit_key(*QUEUE, -1), b""))),
        ("rocksdb.odd-row",),
    ),
    Case("unit cut to its place", put_unit(5, 8), ("consumequeue.missing-unit", "rocksdb.odd-row")),
    Case("unit empty", put_unit(5, 0), ("consumequeue.missing-unit", "rocksdb.odd-row")),
    Case("unit longer", put_unit(5, 29), ("rocksdb.odd-row",)),
    Case("maximum too low", put_end(MAXIMUM, 68_990, 20), ("consumequeue.missing-unit", "rocksdb.stale-unit")),
    Case("maximum too high", put_end(MAXIMUM, 120_092, 60), ("rocksdb.wrong-end",)),
    Case("maximum gone", drop_end(MAXIMUM), ("consumequeue.missing-unit", "rocksdb.missing-end")),
    Case("minimum too high", put_end(MINIMUM, 60_000, 20), ("rocksdb.wrong-end",)),
    Case("dispatched after the log", put_end(DISPATCHED_KEY, 500_000), ("rocksdb.ahead-of-log",)),
    Case("dispatched zero", put_end(DISPATCHED_KEY, 0), _BEHIND),
    Case("dispatched gone", drop_end(DISPATCHED_KEY), _BEHIND),
    Case("dispatched cut", put_value(DISPATCHED_KEY, 7), ("rocksdb.odd-row", *_BEHIND), loads=False),
    Case("dispatched longer", put_value(DISPATCHED_KEY, 16)),
    Case(
        "maximum cut",
        put_value(MAXIMUM, 15),
        ("consumequeue.missing-unit", "rocksdb.missing-end", "rocksdb.odd-row"),
    ),
    Case("maximum longer", put_value(MAXIMUM, 24)),
    Case("minimum cut", put_value(MINIMUM, 8), ("rocksdb.odd-row",)),
    Case("dispatched in the middle", put_end(DISPATCHED_KEY, 70_000), _BEHIND),
    Case("dispatched less", rows(dispatch_less), ("consumequeue.behind-log", *_BEHIND)),
)
"""Done to the golden store `NAME`."""
