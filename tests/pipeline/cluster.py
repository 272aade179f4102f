"""A standalone cluster of Spark on loopback, out of the installed pyspark: a master, and workers of one core each."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

ROOT = Path(__file__).resolve().parents[2]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
DEADLINE_S = 120
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Half of what a short job costs is Java's second compiler."""


@dataclass
class Cluster:
    """A running cluster.

    Attributes:
        python: what executors run: an interpreter that has rmqtool's dependencies, and not rmqtool.
    """

    folder: Path
    python: Path
    url: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start_worker(self, number: int) -> subprocess.Popen[bytes]:
        """Start a worker; the process."""
        work = self.folder / f"work-{number}"
        options = ["--cores", "1", "--memory", "1g", "--host", "127.0.0.1", "--work-dir", str(work)]
        worker = self._start("worker", f"worker-{number}", *options, "--webui-port", "0", self.url)
        until(lambda: "Successfully registered" in (self.folder / f"worker-{number}.log").read_text())
        return worker

    def start_master(self) -> None:
        """Start the master."""
        self._start("master", "master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        found: list[str] = []

        def is_up() -> bool:
            found[:] = re.findall(r"spark://127\.0\.0\.1:\d+", (self.folder / "master.log").read_text())
            return bool(found)

        until(is_up)
        self.url = found[0]

    def submit(self, *arguments: object) -> subprocess.Popen[str]:
        """Start a command of rmqtool on the cluster."""
        conf = {
            "spark.pyspark.python": str(self.python),
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.executor.extraJavaOptions": QUICK_JAVA,
        }
        options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        command = [sys.executable, "-m", "rmqtool", *map(str, arguments), "--master", self.url, *options]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def stop(self) -> None:
        """Stop whatever still runs."""
        for each in reversed(self.processes):
            kill(family(each.pid))
            each.wait(timeout=30)

    def _start(self, kind: str, name: str, *options: str) -> subprocess.Popen[bytes]:
        java_class = f"org.apache.spark.deploy.{kind}.{kind.capitalize()}"
        with (self.folder / f"{name}.log").open("wb") as log:
            started = subprocess.Popen(
                ["/bin/bash", SPARK_CLASS, java_class, *options],
                stdout=log,
                stderr=log,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA},
            )
        self.processes.append(started)
        return started


def until(done: Callable[[], bool]) -> None:
    """Wait for something that is about to happen."""
    end = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def kill(pids: list[int]) -> None:
    """End processes of ours at once."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def bare_python(folder: Path, *, delay_s: int = 0) -> Path:
    """An interpreter that finds installed packages, but no project that is installed where it is developed."""
    path = folder / "python"
    packages = sysconfig.get_path("purelib")
    path.write_text(
        f'#!/bin/sh\nsleep {delay_s}\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys.executable}" -S "$@"\n'
    )
    path.chmod(0o755)
    return path


@contextmanager
def cluster_in(folder: Path, *, delay_s: int = 0) -> Iterator[Cluster]:
    """A cluster with a master, whose workers are still to be started.

    Args:
        delay_s: how long it takes an executor to start its Python.
    """
    cluster = Cluster(folder, bare_python(folder, delay_s=delay_s))
    try:
        cluster.start_master()
        yield cluster
    finally:
        cluster.stop()
