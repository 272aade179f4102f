"""The tables as data frames of a session."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from rmqtool.pipeline.enums import TableName
from rmqtool.pipeline.source import NAME, RocketmqStoreSource
from rmqtool.pipeline.stores import checked_stores, log_bytes
from rmqtool.pipeline.tables.fleet_findings import findings_frame
from rmqtool.pipeline.tables.log_splits import PART_BYTES
from rmqtool.pipeline.tables.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


PATH_PYTHON: Final = "python3"
"""Python that Spark runs by default."""
TASKS_PER_CORE: Final = 2
"""Each task costs Spark as long as it takes to read some tens of megabytes."""
SPLIT_BYTES_MAX: Final = 1 << 30


def register(session: SparkSession) -> SparkSession:
    """Make the format `rocketmq-store` known to a session; the session.

    Spark itself looks for it with the `python3` of the PATH, and runs tasks with that. In a script of an environment
    that is not activated, in a notebook and in a cron job that is another Python. So where tasks run on this machine
    and nobody has chosen a Python (`PYSPARK_PYTHON`), the one that calls this runs them.
    """
    if _is_classic(session):  # one of Spark Connect runs its Python on the server
        context = session.sparkContext
        if context.pythonExec == PATH_PYTHON and str(context.master).startswith("local"):
            context.pythonExec = sys.executable
    session.dataSource.register(RocketmqStoreSource)
    return session


def split_bytes(bytes_in_all: int, cores: int) -> int:
    """Bytes of a file that one task reads: as many as leave work for all cores."""
    return min(max(bytes_in_all // (TASKS_PER_CORE * cores), PART_BYTES), SPLIT_BYTES_MAX)


def table_frame(session: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """A table of the stores that the options of the data source name.

    By Spark Connect, where there are no jobs of two stages, a store's findings are made by one task.

    Raises:
        UsageError: an option is wrong.
        NotAStoreError, UnreadableError: a path is no store, or may not be read.
    """
    given = dict(options)
    if _is_classic(session):
        bytes_in_all = log_bytes(checked_stores(given))
        if not {"splits", "split_bytes"} & given.keys():
            given["split_bytes"] = str(split_bytes(bytes_in_all, session.sparkContext.defaultParallelism))
        parsed = SourceOptions.parse(given)
        if parsed.table == TableName.FINDINGS.value:
            return findings_frame(register(session), parsed)
    reader = register(session).read.format(NAME)
    for name, value in given.items():
        reader = reader.option(name, value)
    return reader.load()


def _is_classic(session: SparkSession) -> bool:
    from pyspark.sql import SparkSession as ClassicSession

    return type(session) is ClassicSession
