"""A command answers as ever under what is around it, or says why it cannot.

Each circumstance is a process of its own: what a command takes counts from the memory of the process that forks it.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.campaign.doors.circumstances import CIRCUMSTANCES

QUICK = ("directories", "closed", "signals", "environment", "immutable")


def run_alone(name: str) -> str:
    command = [sys.executable, "-m", "tests.campaign.doors.circumstances", name]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize("name", QUICK)
def test_commands_keep_their_bounds_under(name: str) -> None:
    first, *lines = run_alone(name).splitlines()
    assert first.startswith(f"{name}: ")
    assert lines


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CIRCUMSTANCES if name not in QUICK])
def test_commands_keep_their_bounds_under_also(name: str) -> None:
    run_alone(name)
