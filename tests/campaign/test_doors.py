"""A slice of the hostile inputs that `python -m tests.campaign.doors` runs; see docs/development/campaigns.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign.doors.kinds import KINDS

SLICE = 220


def test_hostile_inputs_keep_their_bounds() -> None:
    """In a process of its own: it forks children, for which it must have no thread."""
    ran = _doors("--inputs", str(SLICE), "--workers", "1", "--seed", "1")
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
    assert f"{SLICE}" <= ran.stdout.rpartition("all: ")[2]


@pytest.mark.slow
def test_ten_thousands_of_hostile_inputs_keep_their_bounds() -> None:
    ran = _doors("--inputs", "20000", "--workers", "2", "--seed", "2")
    assert ran.returncode == 0, ran.stdout[-8000:]


def test_every_door_has_a_share_of_the_inputs() -> None:
    assert sum(kind.share for kind in KINDS.values()) == 1000


def _doors(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.campaign.doors", *arguments]
    return subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
