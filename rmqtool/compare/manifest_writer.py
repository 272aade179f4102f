"""Writes the manifest of a store: one walk over its log, a block at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final
from zlib import crc32

import numpy as np
import zstandard

from rmqtool.compare.log_side import StoreLog, Terms
from rmqtool.compare.manifest import (
    BLOCK,
    CHUNK,
    FIRST_LINE,
    TRAILER,
    TRAILER_MARK,
    VERSION,
    Description,
    packed_rows,
)
from rmqtool.compare.rows import LogTotals, QueueNumbers
from rmqtool.compare.run import ComparedStore
from rmqtool.report.own_file import OwnFile, replaced_own

_LEVEL: Final = 1
"""Of packing: most of a manifest is digests, which no effort makes smaller."""


def write_manifest(
    path: Path,
    subject: ComparedStore,
    made_by: str,
    terms: Terms,
    *,
    has_rows: bool,
    on_progress: Callable[[int, int], None] | None = None,
) -> Description:
    """Write a manifest; one that is there is replaced once the new one is whole.

    Args:
        subject: whose log is that of a store.
        has_rows: keep a digest of each message, and not of blocks only.

    Raises:
        RefusedError: another file is there.
        WriteError: the file cannot be written.
    """
    log = subject.log
    assert isinstance(log, StoreLog)
    with replaced_own(path, OwnFile.MANIFEST) as file:
        file.write(FIRST_LINE + b"%d\n" % VERSION)
        numbers = QueueNumbers()
        totals = LogTotals()
        tables = [np.empty(0, BLOCK)]
        total = sum(span.size for span in log.files)
        for number, span in enumerate(log.files):
            stream = log.stream(number, numbers, terms)
            table: list[tuple[int, int, int, int, int]] = []
            for block in stream.blocks():
                assert block.rows is not None
                place = _put(file, packed_rows(block.rows)) if has_rows else 0
                table.append((block.begin, block.end, block.digest, place, len(block.rows)))
                if on_progress is not None:
                    on_progress(block.end - log.files[0].start, total)
            tables.append(np.array(table, BLOCK))
            totals.merge(stream.totals)
            log.close(number)
            if on_progress is not None:
                on_progress(span.end - log.files[0].start, total)
        description = Description(
            subject.label,
            made_by,
            terms,
            has_rows,
            log.files,
            tuple(numbers.keys) if has_rows else (),
            totals,
            subject.facts,
            subject.not_compared,
        )
        table_at = _put(file, np.concatenate(tables).tobytes())
        description_at = _put(file, json.dumps(description.as_json()).encode("ascii"))
        file.write(TRAILER.pack(table_at, description_at, TRAILER_MARK))
        return description


def _put(file: BinaryIO, plain: bytes) -> int:
    """Write a chunk; its place."""
    place = file.tell()
    packed = zstandard.ZstdCompressor(level=_LEVEL).compress(plain)
    file.write(CHUNK.pack(len(packed), len(plain), crc32(packed)))
    file.write(packed)
    return place
