"""Writes a RocksDB database in a process of its own, from rows on standard input: `rocksdb` starts it.

Rows come family by family, in the order of their keys. The tables are of the format version that is asked for and
are moved into the database whole, so no write-ahead log is needed. Started as a file: it imports nothing of rmqtool.
Usage: rocksdb_writer.py DIRECTORY SUFFIX_SIZE VALUE_SIZE TABLE_FORMAT
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import IO, Any

FRAME = struct.Struct(">cII")
"""As in `rocksdb_reader`."""
TABLE_BYTES = 256 << 20
CHECKED_ROWS = 1 << 16
"""Rows after which the size of a table is looked at."""
OWN_FILES = ("LOG", "rocksdict-config.json")


def main(arguments: Sequence[str]) -> None:
    """Write the database, and say so."""
    directory, suffix_size, value_size, table_format = arguments
    import rocksdict

    os.chdir(directory)
    tables: dict[str, list[str]] = {}
    with open(0, "rb", buffering=1 << 20, closefd=False) as source:
        for family, rows in families(source, int(suffix_size), int(value_size)):
            tables[family] = write_tables(rocksdict, family, rows, int(table_format))
    ingest(rocksdict, tables, int(table_format))
    for name in OWN_FILES:
        if os.path.exists(name):  # noqa: PTH110 - relative to the database
            os.unlink(name)  # noqa: PTH108 - see above
    os.write(1, b"D")


def options(rocksdict: Any, table_format: int) -> Any:
    """Options of a database or table as brokers have them."""
    chosen = rocksdict.Options(raw_mode=True)
    table = rocksdict.BlockBasedOptions()
    table.set_format_version(table_format)
    chosen.set_block_based_table_factory(table)
    chosen.set_compression_type(rocksdict.DBCompressionType.lz4())
    return chosen


def exactly(source: IO[bytes], length: int) -> bytes:
    """So many bytes.

    Raises:
        EOFError: they are not there.
    """
    data = source.read(length)
    if len(data) < length:
        raise EOFError
    return data


def families(
    source: IO[bytes], suffix_size: int, value_size: int
) -> Iterator[tuple[str, Iterator[tuple[bytes, bytes]]]]:
    """Each family with its rows, which must be read before the next family is asked for."""
    following: list[str] = []

    def rows() -> Iterator[tuple[bytes, bytes]]:
        while True:
            kind, length, count = FRAME.unpack(exactly(source, FRAME.size))
            text = exactly(source, length)
            if kind == b"R":
                yield text, exactly(source, count)
            elif kind == b"U":
                suffixes, values = exactly(source, count * suffix_size), exactly(source, count * value_size)
                for number in range(count):
                    at, value_at = number * suffix_size, number * value_size
                    yield text + suffixes[at : at + suffix_size], values[value_at : value_at + value_size]
            else:
                following[:] = [text.decode()] if kind == b"F" else []
                return

    for _ in rows():
        raise ValueError("rows before the first family")
    while following:
        yield following[0], rows()


def write_tables(rocksdict: Any, family: str, rows: Iterator[tuple[bytes, bytes]], table_format: int) -> list[str]:
    """Write rows into tables that follow each other; their paths."""
    paths: list[str] = []
    writer = None
    for count, (key, value) in enumerate(rows, 1):
        if writer is None:
            writer = rocksdict.SstFileWriter(options(rocksdict, table_format))
            paths.append(f"{family}-{len(paths)}.table")
            writer.open(paths[-1])
        writer[key] = value
        if count % CHECKED_ROWS == 0 and writer.file_size() >= TABLE_BYTES:
            writer.finish()
            writer = None
    if writer is not None:
        writer.finish()
    return paths


def ingest(rocksdict: Any, tables: dict[str, list[str]], table_format: int) -> None:
    """Make a database of the tables."""
    chosen = options(rocksdict, table_format)
    chosen.create_if_missing(True)
    chosen.create_missing_column_families(True)
    others = {name: options(rocksdict, table_format) for name in tables if name != "default"}
    database = rocksdict.Rdict(".", options=chosen, column_families={"default": chosen, **others})
    moving = rocksdict.IngestExternalFileOptions()
    moving.set_move_files(True)
    for name, paths in tables.items():
        if paths:
            family = database if name == "default" else database.get_column_family(name)
            family.ingest_external_file(paths, moving)
    database.close()
    for paths in tables.values():
        for path in paths:
            if os.path.exists(path):  # noqa: PTH110 - see above
                os.unlink(path)  # noqa: PTH108 - see above


if __name__ == "__main__":
    main(sys.argv[1:])
