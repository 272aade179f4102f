"""Starts and ends Spark: quietly, with this package on every executor, and with its failures as one line.

The JVM writes what it has to say into a log file; nothing of it reaches the terminal.
"""

from __future__ import annotations

import os
import re
import signal
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic

import rmqtool
from rmqtool.errors import RmqtoolError, UnsupportedError, how_to_install
from rmqtool.pipeline.python_worker import keep_what_is_loaded
from rmqtool.scan.runner import Item, OnProgress, Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SHIM: Final = "pyspark_rocketmq.py"
_POLL_S: Final = 0.5
_DEFAULTS: Final = {
    "spark.app.name": "rmqtool",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_LOCAL: Final = {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}
"""A driver without executors elsewhere needs no name that others can look up."""
_OUR_ERROR: Final = re.compile(r"rmqtool\.[\w.]+Error: (.+)")
_LATE_PYTHON: Final = "Python worker failed to connect back"
"""`PythonWorkerFactory.createSimpleWorker` waits 10 s for a process that it starts; no setting changes that."""
_NO_START: Final = "JAVA_GATEWAY_EXITED"
_NO_PACKAGE: Final = re.compile(r"(?:download failed|unresolved dependency): ([^\s!:\]]+)")
_LOG_END_BYTES: Final = 1 << 16
_CAUSES_MAX: Final = 32
_RAISED: Final = re.compile(r"Traceback \(most recent call last\):\s*\n(?:[ \t]+.*\n|\s*\n)+(\S.*)")
"""Error of a Python process, after the lines of its traceback."""
_MISSING_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


class SparkError(RmqtoolError):
    """Spark could not be started, or a job of it failed."""


@dataclass(frozen=True)
class SparkSettings:
    """Where jobs run.

    Attributes:
        conf: Spark's own settings, which go before ours.
    """

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        return self.master.startswith("local")


def require_pyspark() -> None:
    """Report a missing prerequisite in one line.

    Raises:
        UnsupportedError: pyspark is not installed, or too old for data sources in Python.
    """
    if find_spec("pyspark") is None:
        raise UnsupportedError(f"pyspark is not installed: {how_to_install('spark')}")
    if find_spec("pyspark.sql.datasource") is None:
        import pyspark

        raise UnsupportedError(
            f"pyspark {pyspark.__version__} is too old, 4.0 or newer is needed: pip install -U pyspark"
        )
    if find_spec("pyarrow") is None:
        raise UnsupportedError(f"pyarrow is not installed: {how_to_install('spark')}")


@contextmanager
def spark_session(settings: SparkSettings, on_progress: OnProgress | None = None) -> Iterator[SparkSession]:
    """A session that is stopped at the end, with whatever still runs in it; one that was there before stays.

    Raises:
        UnsupportedError: see `require_pyspark`.
        SparkError: Spark could not be started, or failed; the text says where its log is.
    """
    require_pyspark()
    from pyspark.sql import SparkSession

    descriptor, log = tempfile.mkstemp(prefix="rmqtool-spark-", suffix=".log")
    with ExitStack() as stack:
        stack.callback(os.close, descriptor)
        if threading.current_thread() is threading.main_thread():
            # Spark takes over what ^C does, and keeps it.
            stack.callback(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT))
        with errors_told(Path(log)):
            is_ours = SparkSession.getActiveSession() is None
            session = _started(settings, descriptor)
            if is_ours:
                stack.callback(session.stop)
            session.sparkContext.setLogLevel("WARN")
            if not settings.is_local:  # executors elsewhere get this package, as it is here
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqtool-ship-"))
                archive = Path(folder) / f"rmqtool-{rmqtool.__version__}.zip"
                write_package(archive)
                session.sparkContext.addPyFile(str(archive))
            if on_progress is not None:
                stack.enter_context(_watched(session, on_progress))
            yield session
    Path(log).unlink(missing_ok=True)


def _started(settings: SparkSettings, log_descriptor: int) -> SparkSession:
    from pyspark.sql import SparkSession

    chosen = {**_DEFAULTS, **(_LOCAL if settings.is_local else {}), **settings.conf}
    builder = SparkSession.builder.master(settings.master)
    for name, value in chosen.items():
        builder = builder.config(name, value)
    # The JVM keeps the standard error that it is started with.
    standard_error = os.dup(2)
    os.dup2(log_descriptor, 2)
    try:
        return builder.getOrCreate()
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)


@contextmanager
def errors_told(log: Path) -> Iterator[None]:
    """Failures of Spark as one line; what the log is about to be asked for stays."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        log_end = ""
        with suppress(OSError), log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_END_BYTES))
            log_end = file.read().decode(errors="replace")
        raise SparkError(f"{told(str(error), log_end, root_cause(error))} (Spark's log: {log})") from error
    except BaseException:
        log.unlink(missing_ok=True)
        raise


def root_cause(error: BaseException) -> str | None:
    """Root cause of a failure of Spark, as Java or Python names it; None if unknown."""
    unnamed = getattr(error, "java_exception", None)  # of which py4j's own text says nothing in its first line
    thrown: Any = unnamed or getattr(error, "_origin", None)
    text = None
    with suppress(Exception):  # Java may have ended, and then the error itself has to do
        text = None if unnamed is None else str(unnamed.toString())
        for _ in range(_CAUSES_MAX):
            cause = None if thrown is None else thrown.getCause()
            if cause is None:
                break
            thrown, text = cause, str(cause.toString())
    if raised := _RAISED.findall(text or str(error)):
        return str(raised[-1]).strip()
    return next((line.strip() for line in (text or "").splitlines() if line.strip()), None)


def told(text: str, log: str = "", cause: str | None = None) -> str:
    """The one line of a failure of Spark that a person can act on.

    Args:
        log: its end, where Spark did not start.
        cause: what it goes back to.
    """
    if _NO_START in text and (missing := _NO_PACKAGE.findall(log)):
        return (
            f"Spark could not download the package {missing[-1]}: if ~/.m2/repository or ~/.ivy2*/cache has only a "
            "part of it, remove it there; without internet, name its files with --conf spark.jars=..."
        )
    if ours := _OUR_ERROR.findall(f"{text}\n{cause or ''}"):
        return str(ours[-1]).strip()
    if _LATE_PYTHON in text:
        return "Spark waits 10 s for a Python process, and one took longer to start: run this again with less load"
    if missing := _MISSING_MODULE.findall(text):
        return (
            f"the Python of Spark's executors has no module {missing[-1]}: install rmqtool there, or ship an archive "
            "with --conf spark.archives=... (docs/spark.md)"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = f"Spark: {lines[0]}" if lines else "Spark failed"
    return first if cause is None or cause in first else f"{first}; cause: {cause}"


def write_package(archive: Path) -> None:
    """Write this package and the shim into a zip, as `--py-files` takes it."""
    package = Path(rmqtool.__file__).parent
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for path in sorted(package.rglob("*.py")):
            target.write(path, path.relative_to(package.parent))
        shim = package.parent / SHIM
        if shim.exists():
            target.write(shim, SHIM)


@contextmanager
def _watched(session: SparkSession, on_progress: OnProgress) -> Iterator[None]:
    """Report the tasks of running jobs until the end."""
    ended = threading.Event()
    tracker: Any = session.sparkContext.statusTracker()

    def watch() -> None:
        while not ended.wait(_POLL_S):
            with suppress(Exception):  # the session may be about to end, and nothing depends on a bar
                stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
                known_stages = [stage for stage in stages if stage is not None]
                if known_stages:
                    on_progress(
                        sum(one.numCompletedTasks for one in known_stages), sum(one.numTasks for one in known_stages)
                    )

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


WAVES: Final = 32
"""Items for each core of the cluster that one job has: few, so that results come while the rest still runs."""


@dataclass(frozen=True)
class SparkRunner:
    """A `scan.runner.Runner` on Spark; each item is a task. Where a task dies with its machine, Spark runs it again."""

    session: SparkSession

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Results in the order of the items, a job for some of them at a time.

        Raises:
            RmqtoolError: the one that the work raised.
        """
        context = self.session.sparkContext
        step = max(1, WAVES * context.defaultParallelism)
        for first in range(0, len(items), step):
            some = items[first : first + step]
            for outcome in context.parallelize(some, len(some)).map(_Guarded(work)).collect():
                if isinstance(outcome, RmqtoolError):
                    raise outcome
                yield outcome


@dataclass(frozen=True)
class _Guarded(Generic[Item, Result]):
    """Work whose own errors are results: Spark would repeat it three times, and wrap the error."""

    work: Callable[[Item], Result]

    def __call__(self, item: Item) -> Result | RmqtoolError:
        try:
            return self.work(item)
        except RmqtoolError as error:
            return error
        finally:
            keep_what_is_loaded()
