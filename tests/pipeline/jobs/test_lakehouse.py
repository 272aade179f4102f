"""A fleet goes into tables of Iceberg and Delta through kills, and ends there with each message once.

The tables are read by pyiceberg and delta-rs, which know nothing of Spark. Packages come from the Maven registry.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import rmqtool
from tests.commands.transcripts import rmqtool as command
from tests.pipeline.cluster import family, kill
from tests.pipeline.export_campaign import make_fleet
from tests.pipeline.jobs import lake

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FLEET: Final = int(os.environ.get("RMQTOOL_FLEET", "200"))
Key = tuple[str, int]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lake.install_spark(tmp_path_factory.mktemp("lake"))


def export(pattern: str, target: Path, form: str, packages: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        lake.command_line(pattern, target, form, packages),
        env=lake.environment(packages),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def killed_when(job: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    """End a job and all its processes at once as soon as something is there."""
    end = time.monotonic() + lake.DEADLINE_S
    while not reached():
        assert job.poll() is None, job.communicate()
        assert time.monotonic() < end
        time.sleep(0.005)
    kill(family(job.pid))
    job.communicate(timeout=60)


COMMIT: Final = {"delta": "_delta_log/*.json", "iceberg": "metadata/snap-*.avro"}


def messages_in(rows: Iterator[dict[str, Any]]) -> Counter[Key]:
    return Counter((row["store"], row["physical_offset"]) for row in rows if row["type"] == "message")


def expected_of(target: Path, stores: list[Path]) -> Counter[Key]:
    """The messages of all stores up to where the batches say that they went; for most stores that is the log's end."""
    ends: dict[str, int] = {}
    for path in sorted((target / "_rmqtool" / "messages" / "batches").glob("*.json")):
        noted = json.loads(path.read_text())["stores"]
        ends |= {store: ranges["to_offset"] for store, ranges in noted.items()}
    found: Counter[Key] = Counter()
    for store in stores:
        columns = ["store", "physical_offset", "type"]
        rows = rmqtool.open(store).messages(columns).read_all().to_pylist()
        flushed = [row for row in rows if row["physical_offset"] < ends.get(str(store), 0)]
        assert flushed == rows or (store / "abort").exists(), store
        found += messages_in(iter(flushed))
    return found


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_fleet_ends_with_each_message_once(
    tmp_path: Path, form: str, packages: Path, record_property: Callable[[str, object], None]
) -> None:
    stores = make_fleet(tmp_path / "fleet", FLEET)
    target, pattern = tmp_path / "lake", f"{tmp_path}/fleet/*"
    table, notes = target / "messages", target / "_rmqtool" / "messages"
    started = time.monotonic()
    states: list[Callable[[], bool]] = [
        lambda: any((notes / "plans").glob("[0-9]*.json")),  # planned, nothing written
        lambda: any(table.rglob("*.parquet")),  # in the middle of writing
        lambda: any(table.glob(COMMIT[form])),  # in the table, and perhaps noted nowhere else
    ]
    for reached in states:
        killed_when(export(pattern, target, form, packages), reached)
    before, grown = 0, list[Path]()
    for run in range(2):
        job = export(pattern, target, form, packages)
        _, err = job.communicate(timeout=lake.DEADLINE_S)
        assert job.returncode == 0, err
        expected = expected_of(target, stores)
        assert messages_in(lake.ROWS[form](table)) == expected
        assert set(expected.values()) == {1}
        if run == 0:
            words = ("--topic", "Audit", "--queue-id", "0", "--body", "more", "--count", "3", "--end", "clean")
            generated = [store for store in stores if store.name.startswith("generated")]
            grown = [store for store in generated[-20:] if not (store / "abort").exists()]
            for store in grown:
                assert command("append", store, *words).code == 0
            before = expected.total()
    assert expected.total() == before + 3 * len(grown)
    record_property(
        "figure", f"{form}: {FLEET} stores, {expected.total()} messages, {time.monotonic() - started:.0f} s"
    )
