"""One local session for all tests of the pipeline that need Spark; each that does is marked `spark`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from rmqtool.commands.messages import Messages
from rmqtool.commands.spark import spark as spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = ["spark.sql.shuffle.partitions=2", "spark.default.parallelism=2", "spark.driver.memory=1g"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores of this machine, as a command has it."""
    with spark_session("local[2]", CONF, Messages(quiet=True)) as session:
        yield session
