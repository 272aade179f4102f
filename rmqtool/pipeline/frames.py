"""The tables as data frames of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rmqtool.pipeline.options import SourceOptions
from rmqtool.pipeline.source import NAME, RocketmqStoreSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table_frame(session: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """A table of the stores that the options of the data source name.

    Raises:
        UsageError: an option is wrong.
        NotAStoreError, UnreadableError: a path is no store, or may not be read.
    """
    given = {"pushdown": "true", **options}
    parsed = SourceOptions.parse(given)  # here, where an error is still one line
    parsed.check_table()
    parsed.stores()
    session.dataSource.register(RocketmqStoreSource)
    reader = session.read.format(NAME)
    for name, value in given.items():
        reader = reader.option(name, value)
    return reader.load()
