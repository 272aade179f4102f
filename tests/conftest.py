"""Fixtures for the whole suite: golden stores, unpacked once for reading or privately for writing."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from rmqtool.commands import app
from rmqtool.fixtures.recipe import make_store
from rmqtool.store import probe_lock
from tests.distribution import FileScheduling, sort_files
from tests.golden_stores import unpack
from tests.processes import own_processes
from tests.store_state import FileState, store_state

_LISTED = probe_lock._listed


def pytest_configure() -> None:
    """Times are printed in UTC, whatever the machine's zone is; a test that is about zones sets its own.

    No test fails because the machine is busy: Hypothesis looks at no clock. None fails in a shell's background, where
    ^C is ignored, which processes inherit.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["TZ"] = "UTC"
    time.tzset()
    hypothesis.settings.register_profile(
        "busy-machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("busy-machine")
    gc.set_threshold(50_000, 20, 20)  # as the command has it; with 700 each collection of tests looks through all


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling | None:
    return FileScheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    sort_files(items)


def pytest_collection_finish() -> None:
    """What the collection made stays to the end: no search for cycles looks through it again."""
    gc.freeze()


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


@pytest.fixture(scope="session", autouse=True)
def _commands_read_once() -> Iterator[None]:
    """A command line that runs in this process is put together once, where a process of its own does it each time."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("application", "load"):
            patch.setattr(app, name, cache(getattr(app, name)))
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
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: thousands of syncs take minutes on a disk."""
    memory = Path("/dev/shm")  # noqa: S108 - made below, with a name of its own
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store of 5.5.0 by the test module's `RECIPE`; a module without one has a fixture of its own."""
    make_store(request.module.RECIPE, tmp_path / "store", "5.5.0")
    return tmp_path / "store"


@pytest.fixture
def golden_copy(tmp_path: Path) -> Unpacked:
    """`golden_copy(name)` is the path of a store that belongs to this test alone; a second call gives the same one."""

    def copied(name: str) -> Path:
        path = tmp_path / "stores" / name
        return path if path.exists() else unpack(name, path.parent)

    return copied
