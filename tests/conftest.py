"""Fixtures for the whole suite: golden stores, unpacked once for reading or privately for writing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from rmqtool.store import probe_lock
from tests.golden_stores import unpack
from tests.processes import own_processes
from tests.store_state import FileState, store_state

_LISTED = probe_lock._listed


def pytest_configure() -> None:
    """Times are printed in UTC, whatever the machine's zone is; a test that is about zones sets its own.

    No test fails because the machine is busy: Hypothesis looks at no clock.
    """
    os.environ["TZ"] = "UTC"
    time.tzset()
    hypothesis.settings.register_profile(
        "busy-machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("busy-machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write down what commands print today in the transcripts")


@pytest.fixture(scope="session", autouse=True)
def _processes_of_this_run() -> Iterator[None]:
    """Who maps a test's store is asked of the processes that the test started: nobody else has it.

    The list of what each process maps is long, and of the many that run beside the tests it would be made for every
    command. A command that runs as a process of its own looks at all.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe_lock, "_listed", lambda path: own_processes() if path == "/proc" else _LISTED(path))
        yield


@pytest.fixture
def all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that run on this machine are asked, as by a command."""
    monkeypatch.setattr(probe_lock, "_listed", _LISTED)


Unpacked = Callable[[str], Path]


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unpacked]:
    """`golden(name)` is the path of an unpacked store that all tests share, to read only; it is checked at the end."""
    folder = tmp_path_factory.mktemp("golden")
    states: dict[str, dict[str, FileState]] = {}

    def unpacked(name: str) -> Path:
        if name not in states:
            states[name] = store_state(unpack(name, folder))
        return folder / name

    yield unpacked
    changed = [name for name, state in states.items() if store_state(folder / name) != state]
    assert not changed, f"tests changed shared stores: {changed}"


@pytest.fixture
def golden_copy(tmp_path: Path) -> Unpacked:
    """`golden_copy(name)` is the path of a store that belongs to this test alone; a second call gives the same one."""

    def copied(name: str) -> Path:
        path = tmp_path / "stores" / name
        return path if path.exists() else unpack(name, path.parent)

    return copied
