"""One local session for all tests of the pipeline that need Spark; each that does is marked `spark`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from rmqtool.commands.messages import Messages
from rmqtool.commands.options.spark import require_java
from rmqtool.commands.options.spark import spark as spark_session
from rmqtool.errors import UnsupportedError
from rmqtool.pipeline import session as session_module
from tests.commands.transcripts import Ran, rmqtool
from tests.pipeline.cluster import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = [
    *("spark.sql.shuffle.partitions=2", "spark.default.parallelism=2", "spark.driver.memory=1g"),
    "spark.sql.python.filterPushdown.enabled=true",
    f"spark.driver.extraJavaOptions={QUICK_JAVA}",
]


@cache
def missing_java() -> str | None:
    """What keeps Spark from being started here; None where nothing does."""
    try:
        require_java()
    except UnsupportedError as error:
        return str(error)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without Java what needs it is left out, visibly; in CI it fails."""
    if os.environ.get("CI") == "true" or missing_java() is None:
        return
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.skip(reason=missing_java() or ""))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores of this machine, as a command has it."""
    before = signal.getsignal(signal.SIGINT)
    with spark_session("local[2]", CONF, Messages(quiet=True)) as session:
        # Spark takes over what ^C does; the tests of other rooms run while this session lasts.
        signal.signal(signal.SIGINT, before)
        yield session


@pytest.fixture
def run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command line in the session that is there: one process has one, and a start takes seconds."""

    @contextmanager
    def shared(*_arguments: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(session_module, "spark_session", shared)

    def ran(*arguments: object) -> Ran:
        return rmqtool(*arguments, "--master", "local[2]")

    return ran
