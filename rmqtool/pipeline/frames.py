"""The tables as data frames of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from rmqtool.pipeline.log_splits import PART_BYTES
from rmqtool.pipeline.options import SourceOptions
from rmqtool.pipeline.source import NAME, RocketmqStoreSource
from rmqtool.store.directory import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


TASKS_PER_CORE: Final = 2
"""Each task costs Spark as long as it takes to read some tens of megabytes."""
SPLIT_BYTES_MAX: Final = 1 << 30


def split_bytes(log_bytes: int, cores: int) -> int:
    """Bytes of a file that one task reads: as many as leave work for all cores."""
    return min(max(log_bytes // (TASKS_PER_CORE * cores), PART_BYTES), SPLIT_BYTES_MAX)


def checked_stores(options: Mapping[str, str]) -> list[Store]:
    """The stores that the options name, looked at before a session starts for them.

    Raises:
        UsageError: an option is wrong.
        NotAStoreError, UnreadableError: a path is no store, or may not be read.
    """
    parsed = SourceOptions.parse(options)  # here, where an error is still one line
    parsed.check_table()
    return parsed.stores()


def table_frame(session: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """A table of the stores that the options of the data source name.

    Raises:
        UsageError: an option is wrong.
        NotAStoreError, UnreadableError: a path is no store, or may not be read.
    """
    given = dict(options)
    log_bytes = sum(segment.size for store in checked_stores(given) for segment in store.commitlog)
    if not {"splits", "split_bytes"} & given.keys():
        given["split_bytes"] = str(split_bytes(log_bytes, session.sparkContext.defaultParallelism))
    session.dataSource.register(RocketmqStoreSource)
    reader = session.read.format(NAME)
    for name, value in given.items():
        reader = reader.option(name, value)
    return reader.load()
