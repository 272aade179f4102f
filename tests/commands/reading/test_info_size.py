"""`info` on a store of a terabyte needs little memory; how long it takes is measured in `benchmarks/scan.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.terabyte import FULL_TOPICS, terabyte_store

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_a_terabyte_is_answered_for_in_little_memory(tmp_path: Path) -> None:
    terabyte_store(tmp_path / "store")
    program = (
        "import resource, sys; from rmqtool.commands.app import run;"
        "code = run(['info', sys.argv[1], '--format', 'json']);"
        "print(code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "store"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    code, kilobytes = map(float, ran.stderr.split()[-2:])
    found = json.loads(ran.stdout)
    assert found["commitlog"]["file_count"] == 1000
    assert found["commitlog"]["max_offset_is"] == "exact"
    counts = Counter(row["max_queue_offset"] for row in found["consumequeue"]["queues"])
    assert counts == {301_000: 4 * FULL_TOPICS, 1000: 400 - 4 * FULL_TOPICS}
    assert code == 0
    assert kilobytes < 100_000
