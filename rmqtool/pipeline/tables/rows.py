"""Record batches out of columns and constants, and files of many sizes in parts of about one size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar, assert_never

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.pipeline.tables.schemas import arrow_schema
from rmqtool.pipeline.tables.texts import time_array
from rmqtool.report.fields import Computed, Given, Time, UnfilledFieldError, UnitField

PART_BYTES: Final = 64 << 20
"""Bytes of small files that one task reads."""


class Sized(Protocol):
    """Something with a size in bytes."""

    @property
    def size(self) -> int: ...


File = TypeVar("File", bound=Sized)


def batch_of(table: Sequence[UnitField], row_type: str, count: int, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """A record batch of rows of one type, each field as its source says; a column is an array, or one value for all.

    Every column out of which such rows are made must be there, though it may be None; the other fields are null.

    Raises:
        UnfilledFieldError: a field of such rows is made out of a column that is missing.
    """
    given = {"type": row_type, **columns}

    def of_row(column: str) -> Any:
        if column not in given:
            raise UnfilledFieldError(column, f"rows of type {row_type}")
        return given[column]

    schema = arrow_schema(table)
    arrays = []
    for field, column in zip(table, schema, strict=True):
        value = None
        if field.is_in(row_type):
            match field.source:
                case Given(name):
                    value = of_row(name)
                case Time(name):
                    value = of_row(name)
                    value = value if value is None else time_array(np.broadcast_to(value, count))
                case Computed(names, value_of):
                    value = value_of(*map(of_row, names))
                case unknown:
                    assert_never(unknown)
        if value is None:
            arrays.append(pa.nulls(count, column.type))
        elif isinstance(value, np.ndarray):
            arrays.append(pa.array(value, column.type))
        else:
            arrays.append(value if isinstance(value, pa.Array) else pa.repeat(pa.scalar(value, column.type), count))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def native_columns(rows: NDArray[Any]) -> dict[str, Any]:
    """The columns of rows by name, in this machine's byte order."""
    columns = ((name, rows[name]) for name in rows.dtype.names or ())
    return {name: np.ascontiguousarray(column, column.dtype.newbyteorder("=")) for name, column in columns}


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
