"""Options of the commands that run on Spark, and the session that they mean."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

from rmqtool.commands.messages import Messages
from rmqtool.commands.options.help_groups import SPARK, option
from rmqtool.commands.options.run import pairs
from rmqtool.errors import UnsupportedError, UsageError
from rmqtool.memory import memory_budget
from rmqtool.scan.runner import Runner

JAVA_LEAST: Final = 17
DEFAULT_MASTER: Final = "local[*]"

MasterOption = Annotated[
    str | None, option("--master URL", "Run on Spark: local[*], spark://host:port, yarn, k8s://...", SPARK)
]
AlwaysMasterOption = Annotated[
    str, option("--master URL", "Where Spark runs: local[*], spark://host:port, yarn, k8s://...", SPARK)
]
LargeMasterOption = Annotated[
    str | None,
    option(
        "--master URL",
        "Run on Spark: local[*] (default above 4 GiB of logs), spark://host:port, yarn, k8s://...",
        SPARK,
    ),
]
ConfOption = Annotated[list[str] | None, option("--conf K=V", "Spark setting; repeatable.", SPARK)]


@contextmanager
def spark(master: str, conf: list[str] | None, messages: Messages, what: str | None = None) -> Iterator[Any]:
    """A Spark session for a command, stopped at its end; `what` stands beside the bar over tasks, unless the command
    has one.

    UsageError if a setting is not K=V, or memory is limited; UnsupportedError if Java or pyspark is missing or too old;
    SparkError if Spark failed.
    """
    if memory_budget().is_chosen:
        raise UsageError(
            "--max-memory limits this process, and Spark runs in others: leave out --master, or limit these with "
            "--conf spark.driver.memory=SIZE and --conf spark.executor.memory=SIZE"
        )
    from rmqtool.pipeline.session import SparkSettings, require_pyspark, spark_session

    settings = SparkSettings(master, settings_of(conf))
    require_pyspark()
    require_java()
    # Which Python runs tasks: this one, unless they run elsewhere or somebody has said it.
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    executors = settings.conf.get("spark.pyspark.python")
    if executors is not None:
        os.environ["PYSPARK_PYTHON"] = executors
    elif settings.is_local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    messages.note(f"Spark runs at {master}")
    if what is None:
        with spark_session(settings) as session:
            yield session
        return
    with messages.progress(what, unit="task") as progress, spark_session(settings, progress.show) as session:
        yield session


@contextmanager
def runner(master: str | None, conf: list[str] | None, messages: Messages) -> Iterator[Runner | None]:
    """What runs a command's splits: Spark, or None for own threads; UsageError for settings without a master."""
    if master is None:
        if conf:
            raise UsageError("--conf is a Spark setting; it needs --master")
        yield None
        return
    from rmqtool.pipeline.session import SparkRunner

    with spark(master, conf, messages) as session:
        yield SparkRunner(session)


def require_java() -> None:
    """Refuse, as UnsupportedError in one line, to run Spark 4 without a Java, or with one that is too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    requirement = f"Spark needs Java {JAVA_LEAST} or newer"
    if java is None:
        raise UnsupportedError(f"no java on the PATH and no JAVA_HOME: {requirement}")
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnsupportedError(f"{java} does not run: {requirement}") from error
    match = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    if ran.returncode or match is None:
        raise UnsupportedError(f"{java} does not print its version: {requirement}")
    major = int(match[1])
    if major < JAVA_LEAST:
        raise UnsupportedError(f"{java} is Java {major}: {requirement}")


def settings_of(conf: list[str] | None) -> dict[str, str]:
    """Settings of Spark by name, K=V each; the last one of a name counts."""
    return dict(pairs(conf or (), "--conf", "K=V"))
