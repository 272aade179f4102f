"""Reads a RocksDB database in a process of its own and writes its rows to standard output: `rocksdb` starts it.

The library can end its process, so nothing else runs in this one. It imports nothing of rmqtool, for it is started as a
file. Usage: rocksdb_reader.py DIRECTORY MEMORY_BYTES FAMILY SUFFIX_SIZE VALUE_SIZE [FAMILY SUFFIX_SIZE VALUE_SIZE ...]
"""

from __future__ import annotations

import os
import resource
import struct
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import IO, Any

FRAME = struct.Struct(">cII")
"""Kind, bytes of the text that follows, and rows after it; see `rocksdb.Frame`."""
BATCH_ROWS = 8192
KEY_MAX = 4096
"""Bytes of a key; longer ones are cut."""
TABLE_FORMAT_MAX = 5
FORMAT_FROM_END = 12
"""Where a table has the version of its format: before the eight bytes of its magic number, which are its last."""
VALUE_MAX = 1 << 20
"""Bytes of a value; longer ones are cut."""


def main(arguments: Sequence[str]) -> None:
    """Write all rows, or the reason why not."""
    directory, memory_bytes, *families = arguments
    # No more memory than this, no core left behind, and as many open tables as there are.
    for kind, limit in ((resource.RLIMIT_AS, int(memory_bytes)), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with open(1, "wb", buffering=1 << 20, closefd=False) as out:
        try:
            import rocksdict
        except ImportError as error:
            write(out, b"M", str(error))
            return
        try:
            opened = open_database(rocksdict, directory, out)
        except Exception as error:  # noqa: BLE001 - the library raises bare exceptions
            write(out, b"O", str(error))
            return
        for name, suffix_size, value_size in zip(families[::3], families[1::3], families[2::3], strict=True):
            try:
                family = opened.get(name)
                if family is not None:
                    write(out, b"F", name)
                    write_family(out, family, int(suffix_size), int(value_size))
            except Exception as error:  # noqa: BLE001 - see above
                write(out, b"E", f"{name}: {error}")
        write(out, b"D", "")


def open_database(rocksdict: Any, directory: str, out: IO[bytes]) -> dict[str, Any]:
    """The column families by name, opened read-only; options that lie in the directory are not obeyed."""
    os.chdir(directory)  # so that messages name files as the store has them
    names = rocksdict.Rdict.list_cf(".")
    for name in names:
        write(out, b"N", name)
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(False)
    database = rocksdict.Rdict(
        ".",
        options=options,
        column_families={name: rocksdict.Options(raw_mode=True) for name in names},
        access_type=rocksdict.AccessType.read_only(),
    )
    demand_known_tables(database)
    return {name: database if name == "default" else database.get_column_family(name) for name in names}


def demand_known_tables(database: Any) -> None:
    """Refuse tables that this library reads, and the older one of brokers does not.

    Raises:
        ValueError: a table is newer.
    """
    for table in database.live_files():
        name = table["name"].lstrip("/")
        with Path(name).open("rb") as file:
            file.seek(-FORMAT_FROM_END, os.SEEK_END)
            table_format = int.from_bytes(file.read(4), "little")
        if table_format > TABLE_FORMAT_MAX:
            raise ValueError(
                f"Corruption: {name} has table format version {table_format}, and the RocksDB 8.4.4 of brokers reads "
                f"versions up to {TABLE_FORMAT_MAX}"
            )


def write_family(out: IO[bytes], family: Any, suffix_size: int, value_size: int) -> None:
    """Write the rows of a column family in batches that have all but the last bytes of their keys in common.

    Raises:
        Exception: the library's own, where a table cannot be read.
    """
    last = None
    rows = iter(family.items())
    while batch := list(islice(rows, BATCH_ROWS)):
        last = batch[-1][0]
        for prefix, group in groupby(batch, key=lambda row: row[0][:-suffix_size] if suffix_size else b""):
            write_group(out, prefix, list(group), suffix_size, value_size)
    demand_end(family, last)


def write_group(out: IO[bytes], prefix: bytes, rows: list[tuple[bytes, bytes]], suffix_size: int, size: int) -> None:
    """Write rows of one prefix: as columns where key and value have the declared sizes, the others one by one.

    A value that is longer counts as far as it is declared, so such a row is written both ways.
    """
    regular: list[tuple[bytes, bytes]] = []
    if suffix_size and len(prefix) <= KEY_MAX:
        regular = [row for row in rows if len(row[1]) >= size and len(row[0]) > suffix_size]
    if regular:
        out.write(FRAME.pack(b"U", len(prefix), len(regular)) + prefix)
        out.write(b"".join([key[-suffix_size:] for key, _ in regular]))
        out.write(b"".join([value[:size] for _, value in regular]))
    for key, value in rows:
        if not regular or len(value) != size or len(key) <= suffix_size:
            key, value = key[:KEY_MAX], value[:VALUE_MAX]  # noqa: PLW2901 - shortened
            out.write(FRAME.pack(b"R", len(key), len(value)) + key + value)


def demand_end(family: Any, last: bytes | None) -> None:
    """Ask why the rows ended: the library's iterator ends at a damaged block as it does at the last row.

    Raises:
        Exception: the library's own, where it was not the last row.
    """
    rows: Iterator[Any] = family.iter()
    if last is None:
        rows.seek_to_first()  # type: ignore[attr-defined]
    else:
        rows.seek(last)  # type: ignore[attr-defined]
        if rows.valid():  # type: ignore[attr-defined]
            rows.next()  # type: ignore[attr-defined]
    rows.status()  # type: ignore[attr-defined]


def write(out: IO[bytes], kind: bytes, text: str) -> None:
    """Write a frame without rows."""
    encoded = text.encode("utf-8", "replace")[:KEY_MAX]
    out.write(FRAME.pack(kind, len(encoded), 0) + encoded)


if __name__ == "__main__":
    main(sys.argv[1:])
