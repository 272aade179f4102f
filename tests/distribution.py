"""Which tests run in one process, and in which order files begin: together, so that no process waits at the end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from xdist.scheduler import LoadFileScheduling

ROOT: Final = Path(__file__).resolve().parents[1]
SPARK_FILES: Final = (
    "tests/pipeline/test_source.py",
    "tests/pipeline/test_commands.py",
    "tests/pipeline/test_every_store.py",
    "tests/pipeline/test_runner.py",
    "tests/pipeline/test_store_sink.py",
    "tests/pipeline/test_cluster_sink.py",
    "tests/pipeline/test_stream.py",
    "tests/pipeline/test_cluster_examples.py",
    "tests/pipeline/jobs/test_in_process.py",
    "tests/pipeline/jobs/test_incremental.py",
    "tests/pipeline/jobs/test_lease.py",
    "tests/pipeline/tables/test_fleet_findings.py",
)
"""Files whose tests share a session of Spark."""
LONGEST: Final = (
    "tests/judge/test_judge_slice.py",
    "tests/repair/salvage/test_generated_damage.py",
    "tests/forecast/test_golden.py",
    "tests/campaign/test_campaign.py",
    "tests/commands/test_truth_table.py",
    "tests/repair/salvage/test_record_repair.py",
    "tests/scan/test_install.py",
    "tests/commands/test_advice.py",
    "tests/fuzz/test_fuzz.py",
    "tests/remote/test_s3.py",
    "tests/repair/salvage/test_unit_faults.py",
    "tests/commands/test_app.py",
    "tests/repair/test_bytes_read.py",
    "tests/packaging/test_zipapp.py",
)
"""Files in other folders than those of Spark and brokers that take ten seconds of processor time and more."""
WAITING_END: Final = 0.8
"""After which part of the other files the last one begins that waits."""


class FileScheduling(LoadFileScheduling):  # type: ignore[misc]
    """A file's tests stay in one process, and so do all that share a session of Spark: its start takes long."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return "spark" if path in SPARK_FILES else path


def sort_files(items: list[pytest.Item]) -> None:
    """Put the files into the order in which they begin.

    Each process that runs tests takes the next file. Files whose tests wait for brokers and Spark lie between the
    others: while one waits, the others compute. Of the others the longest begin first, then those with most tests, so
    that none has a long file left when the rest is done.
    """
    counts = Counter(item.path for item in items)
    names = {path: path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else "" for path in counts}
    shared = [path for path, name in names.items() if name in SPARK_FILES]
    waiting = [path for path in counts if {"broker", "pipeline"} & set(path.parts) and path not in shared]
    others = [path for path in counts if path not in (*shared, *waiting)]
    others.sort(key=lambda path: (names[path] not in LONGEST, -counts[path]))
    order: dict[Path, float] = dict.fromkeys(shared, -1)
    order |= {path: WAITING_END * number / len(waiting) for number, path in enumerate(waiting)}
    order |= {path: number / len(others) for number, path in enumerate(others)}
    items.sort(key=lambda item: order[item.path])
