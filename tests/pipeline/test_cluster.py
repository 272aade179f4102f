"""The jobs on a standalone cluster, whose executors have to be sent rmqtool: right, also where a worker dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.transcripts import Ran, rmqtool
from tests.conftest import Unpacked
from tests.pipeline.cluster import DEADLINE_S, QUICK_JAVA, ROOT, Cluster, bare_python, cluster_in, family, kill, until
from tests.pipeline.stores import contents
from tests.store_state import assert_store_unchanged

pytestmark = pytest.mark.spark

STORE = "5.5.0-many-files"


def ended(job: subprocess.Popen[str]) -> Ran:
    out, err = job.communicate(timeout=2 * DEADLINE_S)
    return Ran(job.returncode, out, err)


def starts_python(worker: int, python: Path) -> bool:
    """Whether an executor of a worker is starting its Python, for a task that it has."""
    return any(str(python).encode() in command_of(pid) for pid in family(worker))


def command_of(pid: int) -> list[bytes]:
    """The words of a process' command; none of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def test_a_job_ends_right_though_a_worker_dies(tmp_path: Path, golden: Unpacked) -> None:
    path = golden(STORE)
    with cluster_in(tmp_path, delay_s=3) as cluster, assert_store_unchanged(path):
        first = cluster.start_worker(1)
        job = cluster.submit("verify", path, "--format", "jsonl")
        until(lambda: starts_python(first.pid, cluster.python))
        cluster.start_worker(2)
        kill(family(first.pid))  # it has tasks, and none of them is done
        found = ended(job)
    assert found.out == rmqtool("verify", path, "--format", "jsonl").out
    assert found.code == 0, found.err


def test_an_interrupt_ends_the_job_and_leaves_nothing(tmp_path: Path, golden: Unpacked) -> None:
    python = bare_python(tmp_path, delay_s=3)
    target = tmp_path / "archive" / "out"
    target.parent.mkdir()
    conf = (f"spark.pyspark.python={python}", f"spark.driver.extraJavaOptions={QUICK_JAVA}")
    options = ["--to", target, "--master", "local[2]", *(word for each in conf for word in ("--conf", each))]
    job = subprocess.Popen(
        [sys.executable, "-m", "rmqtool", "export", golden(STORE), *options],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: any(target.parent.iterdir()) or job.poll() is not None)
    processes = family(job.pid)
    job.send_signal(signal.SIGINT)
    found = ended(job)
    assert (found.code, found.out) == (130, ""), found.err
    assert list(target.parent.iterdir()) == []
    assert list(tmp_path.glob("rmqtool-*")) == []
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two workers."""
    with cluster_in(tmp_path_factory.mktemp("cluster")) as found:
        found.start_worker(1)
        found.start_worker(2)
        yield found


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["verify", "--format", "jsonl"],
        ["rebuild", "--dry-run", "--format", "json"],
        ["diff", "--format", "json"],
        ["stats", "--by", "queue", "--format", "csv"],
        ["search", "[0-9]", "--in", "keys", "--format", "csv"],
    ],
    ids=lambda command: command[0],
)
def test_every_job_says_on_a_cluster_what_it_says_here(
    cluster: Cluster, golden: Unpacked, golden_copy: Unpacked, command: list[str]
) -> None:
    name, *options = command
    path = golden_copy("5.5.0-many-no-queues" if name == "rebuild" else STORE)
    words = [name, path, *([golden("5.5.0-many-no-queues")] if name == "diff" else []), *options]
    found = ended(cluster.submit(*words))
    local = rmqtool(*words) if name in ("verify", "rebuild", "diff") else rmqtool(*words, "--master", "local[1]")
    assert (found.code, sorted(found.out.splitlines())) == (local.code, sorted(local.out.splitlines())), found.err


@pytest.mark.slow
def test_an_export_on_a_cluster_is_whole(cluster: Cluster, golden: Unpacked, tmp_path: Path) -> None:
    found = ended(cluster.submit("export", golden(STORE), "--to", tmp_path / "out"))
    assert found.code == 0, found.err
    manifest = json.loads((tmp_path / "out" / "_rmqtool-export.json").read_text())
    assert manifest["rows"] == len(rmqtool("dump", golden(STORE), "--format", "jsonl").out.splitlines())


@pytest.mark.slow
def test_a_rebuild_on_a_cluster_is_the_one_here(cluster: Cluster, golden: Unpacked, tmp_path: Path) -> None:
    path = golden("5.5.0-many-no-queues")
    found = ended(cluster.submit("rebuild", path, "--yes", "--output", tmp_path / "cluster"))
    assert found.code == 0, found.err
    assert rmqtool("rebuild", path, "--yes", "--output", tmp_path / "here").code == 0
    assert contents(tmp_path / "cluster") == contents(tmp_path / "here")
