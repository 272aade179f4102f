"""The columns of the tables as Arrow and Spark have them, out of the description of their fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from rmqtool.errors import UsageError
from rmqtool.pipeline.tables.texts import LIST_TYPE, MAP_TYPE, TIME_TYPE
from rmqtool.report.fields import MESSAGE_PROFILES, TABLES, RowField, Type
from rmqtool.report.names import unknown_name

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

OPTIONS_KEY: Final = "rocketmq-store"
"""Of a column's metadata."""
_TYPES: Final = {
    Type.INT16: pa.int16(),
    Type.INT32: pa.int32(),
    Type.INT64: pa.int64(),
    Type.BOOL: pa.bool_(),
    Type.TEXT: pa.string(),
    Type.TEXTS: LIST_TYPE,
    Type.MAP: MAP_TYPE,
    Type.BYTES: pa.binary(),
    Type.TIME: TIME_TYPE,
}


def arrow_schema(fields: Iterable[RowField]) -> pa.Schema:
    """The schema of a table with these fields; those that not every row has are null in the others."""
    return pa.schema(
        [
            pa.field(field.name, _TYPES[field.type], nullable=field.nullable or field.rows is not None)
            for field in fields
        ]
    )


def message_schema(profile: str, columns: tuple[str, ...] = ()) -> pa.Schema:
    """The schema of a profile, or of chosen columns of all of them.

    Raises:
        UsageError: there is no such profile or column.
    """
    if profile not in MESSAGE_PROFILES:
        raise UsageError(f"profile {profile!r}: there are {', '.join(MESSAGE_PROFILES)}")
    return chosen(arrow_schema(TABLES["messages"]), columns or MESSAGE_PROFILES[profile])


def chosen(schema: pa.Schema, columns: tuple[str, ...]) -> pa.Schema:
    """The named columns of a schema, in the order of the names; all where none is named.

    Raises:
        UsageError: one of them is none.
    """
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        raise UsageError(unknown_name("column", unknown[0], schema.names))
    return pa.schema([schema.field(name) for name in columns]) if columns else schema


def commented(schema: pa.Schema, table: str, options: Mapping[str, str] | None = None) -> StructType:
    """A schema as Spark has it, with the comments of a table's columns, which tables written from them keep.

    Args:
        options: of a table in a catalog, which keeps its columns and hands readers nothing else (Spark 4.3.0).
    """
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    comments = {field.name: field.comment for field in TABLES[table]}
    columns = [
        StructField(field.name, field.dataType, field.nullable, {"comment": comments[field.name]})
        for field in from_arrow_schema(schema).fields
    ]
    if options is not None:
        columns[0].metadata[OPTIONS_KEY] = json.dumps(options)
    return StructType(columns)


def options_in(schema: StructType) -> dict[str, str]:
    """The options that `commented` left with the columns of a table in a catalog; none elsewhere."""
    for field in schema.fields:
        if OPTIONS_KEY in field.metadata:
            return dict(json.loads(field.metadata[OPTIONS_KEY]))
    return {}
