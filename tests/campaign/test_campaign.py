"""A slice of each campaign in every run, all of it with the slow tests; see docs/development/campaigns.md."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.campaign.__main__ import Task
from tests.campaign.cases import CASES
from tests.campaign.failing_disk import fail_everywhere, fill_disk, small_file_system
from tests.campaign.kills import kill_at_random, kill_everywhere
from tests.campaign.lost_writes import lose_power_everywhere
from tests.campaign.pairs import interrupt_everywhere, start_pairs
from tests.campaign.real_calls import can_trace, kill_real_processes
from tests.campaign.tally import Tally
from tests.campaign.two_users import two_users

FEW = ("recover two logs", "salvage hard links", "rebuild neighbours")
MANY = [pytest.param(name, marks=pytest.mark.slow) for name in CASES]
SIZES = {"tmpfs": 600 << 10, "ext4": 4 << 20}
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


def test_a_campaign_that_breaks_off_is_a_failure() -> None:
    assert "KeyError" in Task("kills", "no such store", every=1, seed=1, count=1).run().failures[0]


@pytest.mark.parametrize("name", CASES)
def test_killed_at_some_calls(quick_path: Path, name: str) -> None:
    kill_everywhere(CASES[name], quick_path, every=41).demand_none()


@pytest.mark.parametrize("name", MANY)
def test_killed_at_every_call(quick_path: Path, name: str) -> None:
    kill_everywhere(CASES[name], quick_path).demand_none()


@pytest.mark.parametrize(("name", "count"), [(name, 4) for name in FEW] + [
    pytest.param(name, 100, marks=pytest.mark.slow) for name in CASES
])  # fmt: skip
def test_processes_killed_at_random(quick_path: Path, name: str, count: int) -> None:
    kill_at_random(CASES[name], quick_path, count, seed=1).demand_none()


@pytest.mark.parametrize(("name", "count"), [("salvage two logs", 2)] + [
    pytest.param(name, 40, marks=pytest.mark.slow) for name in CASES
])  # fmt: skip
def test_processes_killed_at_system_calls(quick_path: Path, name: str, count: int) -> None:
    if not can_trace():
        pytest.skip("needs strace, and the right to trace")
    kill_real_processes(CASES[name], quick_path / "case", count, seed=1).demand_none()


@pytest.mark.parametrize("name", FEW)
def test_errors_at_some_calls(quick_path: Path, name: str) -> None:
    fail_everywhere(CASES[name], quick_path, every=53, shift=7).demand_none()


@pytest.mark.parametrize("name", MANY)
def test_errors_at_every_call(quick_path: Path, name: str) -> None:
    fail_everywhere(CASES[name], quick_path).demand_none()


@pytest.mark.parametrize("name", CASES)
def test_power_lost_at_some_calls(quick_path: Path, name: str) -> None:
    lose_power_everywhere(CASES[name], quick_path, seed=11, every=47).demand_none()


@pytest.mark.parametrize("name", MANY)
def test_power_lost_at_every_call(quick_path: Path, name: str) -> None:
    lose_power_everywhere(CASES[name], quick_path, seed=12, times=5).demand_none()


@pytest.mark.parametrize("kind", SIZES)
def test_a_full_file_system_of_some_sizes(tmp_path: Path, kind: str) -> None:
    assert _full(tmp_path, "salvage missing file", kind, range(0, 120_000, 40_000)).outcomes


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("name", MANY)
def test_a_full_file_system_of_many_sizes(tmp_path: Path, name: str, kind: str) -> None:
    tally = _full(tmp_path, name, kind, range(0, 160_000, 4096))
    assert len(tally.outcomes) >= 3, "no size is too small, or none is large enough"


def _full(folder: Path, name: str, kind: str, sizes: range) -> Tally:
    with small_file_system(folder, kind, SIZES[kind]) as place:
        if place is None:
            pytest.skip(f"may not mount a {kind} of its own here")
        tally = fill_disk(CASES[name], place, sizes)
    tally.demand_none()
    return tally


def test_others_are_refused_at_some_calls(quick_path: Path) -> None:
    interrupt_everywhere(CASES["salvage bad record"], quick_path, every=43).demand_none()


@pytest.mark.parametrize("name", MANY)
def test_others_are_refused_at_every_call(quick_path: Path, name: str) -> None:
    interrupt_everywhere(CASES[name], quick_path).demand_none()


@pytest.mark.parametrize("count", [12, pytest.param(400, marks=pytest.mark.slow)])
def test_two_commands_that_start_at_once(quick_path: Path, count: int) -> None:
    tally = start_pairs(quick_path, count, seed=count)
    tally.demand_none()
    assert sum(tally.outcomes.values()), "none was in the way of another"


@NEEDS_ROOT
@pytest.mark.parametrize("name", ["salvage bad record", *MANY])
def test_root_repairs_what_another_user_owns(quick_path: Path, name: str) -> None:
    two_users(CASES[name], quick_path).demand_none()
