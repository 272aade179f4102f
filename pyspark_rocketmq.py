"""The data source `rocketmq-store` for programs that use Spark.

Spark looks for `DefaultSource` in modules `pyspark_*` of the `python3` on the PATH; `register` works with any Python.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

with suppress(ImportError, SyntaxError):  # a Python without the dependencies, which must not stop other programs' jobs
    from rmqtool.pipeline.source import RocketmqStoreSource as DefaultSource  # noqa: F401 - Spark takes it by this name


def register(session: SparkSession) -> SparkSession:
    """Make the format `rocketmq-store` known to a session, and let tasks on this machine run with this Python."""
    from rmqtool.pipeline import frames

    return frames.register(session)


def findings(session: SparkSession, *paths: str, **options: str) -> DataFrame:
    """The table `findings` of stores in one job, for which large logs are cut; options are those of the data source."""
    from rmqtool.pipeline import frames

    return frames.table_frame(session, {**options, "paths": json.dumps(paths), "table": "findings"})


def lag(progress: StreamingQueryProgress) -> dict[str, int]:
    """How many bytes of each store's log a stream has still to read, by its `lastProgress`; empty before a batch."""
    from rmqtool.pipeline import stream

    offsets = [(source.endOffset, source.latestOffset) for source in progress.sources]
    return {store: count for end, latest in offsets for store, count in stream.lag(end, latest).items()}


def text_of_folder(folder: str) -> str | None:
    """The topic, or other text, that a folder of `--partition-by` is named for; None of a name that was shortened."""
    from rmqtool.pipeline.jobs import partitions

    return partitions.text_of_folder(folder)
