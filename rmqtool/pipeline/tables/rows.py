"""Record batches out of columns and constants, and files of many sizes in parts of about one size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.pipeline.tables.schemas import arrow_schema
from rmqtool.pipeline.tables.texts import time_array
from rmqtool.report.fields import RowField, Type, UnfilledFieldError

PART_BYTES: Final = 64 << 20
"""Bytes of small files that one task reads."""


class Sized(Protocol):
    """Something with a size in bytes."""

    @property
    def size(self) -> int: ...


File = TypeVar("File", bound=Sized)


def batch_of(table: Sequence[RowField], row_type: str, count: int, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """A record batch of rows of one type: a column is an array, or one value for all rows.

    Every field that such rows have must be there, though it may be None; the others are null. Times are made out of
    their milliseconds.

    Raises:
        UnfilledFieldError: a field of such rows is missing.
    """
    given = {"type": row_type, **columns}
    schema = arrow_schema(table)
    arrays = []
    for field, column in zip(table, schema, strict=True):
        value = None
        if field.is_in(row_type):
            is_time = field.type is Type.TIME
            name = field.name.removesuffix("time") + "timestamp_ms" if is_time else field.name
            if name not in given:
                raise UnfilledFieldError(name, f"rows of type {row_type}")
            value = given[name]
            if is_time and value is not None:
                value = time_array(np.broadcast_to(value, count))
        if value is None:
            arrays.append(pa.nulls(count, column.type))
        elif isinstance(value, np.ndarray):
            arrays.append(pa.array(value, column.type))
        else:
            arrays.append(value if isinstance(value, pa.Array) else pa.repeat(pa.scalar(value, column.type), count))
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
