"""Record batches out of columns and constants, and files of many sizes in parts of about one size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.pipeline.tables.times import time_array

PART_BYTES: Final = 64 << 20
"""Bytes of small files that one task reads."""


class Sized(Protocol):
    """Something with a size in bytes."""

    @property
    def size(self) -> int: ...


File = TypeVar("File", bound=Sized)


def batch_of(schema: pa.Schema, count: int, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """A record batch: a column is an array, one value for all rows, or null where it is not named.

    Times are made out of their milliseconds.
    """
    times = {f"{name.removesuffix('timestamp_ms')}time": name for name in columns if name.endswith("_timestamp_ms")}
    arrays = []
    for field in schema:
        value = columns.get(field.name)
        if field.name in times:
            value = time_array(np.broadcast_to(columns[times[field.name]], count))
        if value is None:
            arrays.append(pa.nulls(count, field.type))
        elif isinstance(value, np.ndarray | pa.Array):
            arrays.append(pa.array(value, field.type) if isinstance(value, np.ndarray) else value)
        else:
            arrays.append(pa.repeat(pa.scalar(value, field.type), count))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def native(rows: NDArray[Any], name: str) -> NDArray[Any]:
    """A column in this machine's byte order."""
    column = rows[name]
    return np.ascontiguousarray(column, column.dtype.newbyteorder("="))


def grouped_by_size(files: Sequence[File], part_bytes: int) -> list[tuple[File, ...]]:
    """Files in their order, as many together as have `part_bytes` in all."""
    parts: list[list[File]] = []
    held = 0
    for file in files:
        if not parts or held + file.size > part_bytes:
            parts.append([])
            held = 0
        parts[-1].append(file)
        held += file.size
    return [tuple(part) for part in parts]
