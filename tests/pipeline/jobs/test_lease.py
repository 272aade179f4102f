"""One run at a time writes into a target; who does is told, and a run that has ended is in nobody's way."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqtool.errors import RefusedError
from rmqtool.pipeline.enums import Form
from rmqtool.pipeline.jobs import lease as lease_module
from rmqtool.pipeline.jobs.export import Export
from rmqtool.pipeline.jobs.lease import Lease, break_lease
from rmqtool.pipeline.jobs.target_files import HadoopFiles, LocalFiles, TargetFiles
from rmqtool.store.probe_lock import started_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "WAIT_S", 0.5)


def ended_process() -> dict[str, float | None]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        processes = {str(process.pid): started_at(process.pid)}
        process.communicate(b"\n")
    return processes


def foreign(folder: Path, **holder: object) -> None:
    """The lease of another run."""
    folder.mkdir(parents=True, exist_ok=True)
    since = {"since": time.time() - 60, "user": "ops", "host": "archive-1"}
    (folder / "other.json").write_text(json.dumps({**since, **holder}))


@pytest.mark.parametrize("kind", ["local", "hadoop"])
def test_the_second_run_is_refused_and_told_who_writes(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    folder = f"{tmp_path}/leases" if kind == "local" else f"file://{tmp_path}/leases"
    files: TargetFiles = LocalFiles() if kind == "local" else HadoopFiles(spark)
    first = Lease.take(files, folder, spark)
    with pytest.raises(RefusedError, match=f"since 20.* --break-lease {first.id}"):
        Lease.take(files, folder, spark)
    first.check()
    first.release()
    Lease.take(files, folder, spark).release()
    assert not (tmp_path / "leases").exists()


def test_of_runs_that_start_together_one_has_the_lease(spark: SparkSession, tmp_path: Path) -> None:
    results: list[Lease | RefusedError] = []

    def take() -> None:
        try:
            results.append(Lease.take(LocalFiles(), f"{tmp_path}/leases", spark))
        except RefusedError as error:
            results.append(error)

    for _ in range(10):
        threads = [threading.Thread(target=take) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        [own] = [result for result in results if isinstance(result, Lease)]
        own.release()
        results.clear()


def test_the_lease_of_a_run_that_has_ended_on_this_machine_is_removed(spark: SparkSession, tmp_path: Path) -> None:
    machine = lease_module._machine()
    if machine is None:
        pytest.skip("nothing tells this machine from others here")
    foreign(tmp_path, machine=machine, processes=ended_process())
    Lease.take(LocalFiles(), str(tmp_path), spark).release()


@pytest.mark.parametrize("kept", ["machine", "process", "torn"])
def test_a_lease_that_may_be_held_is_broken_by_a_person_only(spark: SparkSession, tmp_path: Path, kept: str) -> None:
    """Of another machine, of a process that runs, and one of which a kill left a part."""
    if kept == "torn":
        foreign(tmp_path)
        (tmp_path / "other.json").write_text('{"since": 17')
    elif kept == "machine":
        foreign(tmp_path, machine="another one", processes=ended_process())
    else:
        with subprocess.Popen([sys.executable, "-c", ""]) as process:
            running = {**ended_process(), "1": started_at(1), str(process.pid): started_at(process.pid)}
        foreign(tmp_path, machine=lease_module._machine(), processes=running)
    with pytest.raises(RefusedError, match="--break-lease other"):
        Lease.take(LocalFiles(), str(tmp_path), spark)
    with pytest.raises(RefusedError, match="leases there: other"):
        break_lease(LocalFiles(), str(tmp_path), "another")
    break_lease(LocalFiles(), str(tmp_path), "other")
    own = Lease.take(LocalFiles(), str(tmp_path), spark)
    break_lease(LocalFiles(), str(tmp_path), own.id)
    with pytest.raises(RefusedError, match="was broken"):
        own.check()


def test_a_file_is_created_by_one_of_two(spark: SparkSession, tmp_path: Path) -> None:
    for files, place in ((LocalFiles(), f"{tmp_path}/a/note"), (HadoopFiles(spark), f"file://{tmp_path}/b/note")):
        assert files.create(place, "one")
        assert not files.create(place, "two")
        assert files.read(place) == "one"
    assert not list(tmp_path.rglob("*.tmp"))


def test_what_another_run_removes_meanwhile_is_not_there(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that waits looks at the lease of one that releases it."""
    files, place = HadoopFiles(spark), f"file://{tmp_path}/leases/other.json"

    def exists_and_is_removed(self: HadoopFiles, place: str) -> bool:
        was_there = there(self, place)
        shutil.rmtree(tmp_path / "leases", ignore_errors=True)
        return was_there

    there = HadoopFiles.exists
    monkeypatch.setattr(HadoopFiles, "exists", exists_and_is_removed)
    foreign(tmp_path / "leases")
    assert files.read(place) is not None
    assert files.sizes(f"file://{tmp_path}/leases").keys() == {"other.json"}
    shutil.rmtree(tmp_path / "leases")
    assert files.read(place) is None
    assert files.sizes(f"file://{tmp_path}/leases") == {}


def test_a_run_removes_no_rows_that_another_one_has_staged(spark: SparkSession, tmp_path: Path) -> None:
    """Its lease was broken, and the other run writes."""
    files, target = LocalFiles(), f"{tmp_path}/table"
    export = Export(target, Form.PARQUET, {}, ())
    broken, other = (Lease(files, export.leases) for _ in range(2))
    for lease in (broken, other):
        assert files.create(f"{tmp_path}/.table.rmqtool-partial/{lease.id}/part-0", "rows")
    export.discard_partial(files, broken)
    assert [path.parent.name for path in tmp_path.rglob("part-0")] == [other.id]
    export.discard_partial(files, other)
    assert list(tmp_path.iterdir()) == []
