"""`verify` of what is no plain store: pipes, loops, devices for files, files that shrink, and what may not be read."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from rmqtool.answer.opened_store import OpenedStore
from rmqtool.commands.reading import verify as verify_module
from rmqtool.errors import UnreadableError
from rmqtool.store.source import ByteSource
from rmqtool.store.view import DirectoryView
from rmqtool.verify.files.reach import newest_record
from tests.commands.transcripts import Ran, rmqtool
from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged

SECONDS_MAX = 60


@contextmanager
def time_limit() -> Iterator[None]:
    def over(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError("verify hangs")

    signal.signal(signal.SIGALRM, over)
    signal.alarm(SECONDS_MAX)
    try:
        yield
    finally:
        signal.alarm(0)


def verified(store: Path, *options: object, may_change: bool = False) -> tuple[Ran, list[dict[str, Any]]]:
    """How a run ends, which it does in time, and its rows; no file of the store is changed."""
    with time_limit():
        if may_change:
            ran = rmqtool("verify", store, "--format", "jsonl", *options)
        else:
            with assert_store_unchanged(store):
                ran = rmqtool("verify", store, "--format", "jsonl", *options)
    assert "internal error" not in ran.err
    assert "Traceback" not in ran.err
    return ran, [json.loads(line) for line in ran.out.splitlines()]


@pytest.fixture
def store(golden_copy: Unpacked) -> Path:
    """A sound store with a configuration."""
    path = golden_copy("5.5.0-clean-basic")
    (path / "config").mkdir()
    topics = {name: {"topicName": name, "writeQueueNums": 4} for name in ("TopicTest", "OrderEvents", "Audit")}
    (path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    assert rmqtool("verify", path).code == 0
    return path


def pipe(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def outside(path: Path) -> None:
    secret = path.parents[1].parent / "elsewhere"
    secret.write_bytes(b"root:x:0:0")
    path.symlink_to(secret)


def directory(path: Path) -> None:
    path.mkdir()


def nothing(path: Path) -> None:
    path.touch()


def dangling(path: Path) -> None:
    path.symlink_to("gone")


FILES = (
    "commitlog/00000000000000065536",
    "commitlog/00000000000000262144",
    "checkpoint",
    "abort",
    "lock",
    "config/topics.json",
    "consumequeue/TopicTest/0/00000000000000000000",
    "index",
    "consumequeue/TopicTest",
)


SINGLE = ("checkpoint", "abort", "lock", "config/topics.json")
"""Those that a broker opens by their names."""


@pytest.mark.parametrize(
    "put", [pipe, loop, device, outside, directory, nothing, dangling], ids=lambda put: put.__name__
)
@pytest.mark.parametrize("name", FILES)
def test_something_else_in_the_place_of_a_file(store: Path, name: str, put: Callable[[Path], None]) -> None:
    place = store / name
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    if put is not nothing or name != "index":
        put(place)
    ran, rows = verified(store)
    if name in SINGLE and put not in (outside, nothing):
        assert (ran.code, f"{name}: a " in ran.err) == (4, True)
    assert ran.code in ({0, 3, 4} if put not in (outside, nothing) else {0, 3})
    assert "root:x" not in ran.out + ran.err
    if name.startswith("commitlog/"):
        assert ran.code != 0
        assert any(row.get("file", "").startswith("commitlog") for row in rows) or name.rpartition("/")[2] in ran.err
        assert sum(row["type"] == "summary" for row in rows) == 1


def test_links_in_a_ring_of_directories(store: Path) -> None:
    (store / "consumequeue" / "Ring").symlink_to(store / "consumequeue")
    (store / "config" / "self").symlink_to(store)
    ran, rows = verified(store)
    assert ran.code in (0, 3, 4)
    assert rows[-1]["checked"]["units"] == 320


@pytest.mark.parametrize("name", ["commitlog/00000000000000065536", "checkpoint", "config/topics.json"])
def test_a_file_that_may_not_be_read(store: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    true_open = DirectoryView.open

    def refused(view: DirectoryView, path: str) -> ByteSource:
        if path == name:
            raise UnreadableError(f"{path}: permission denied")
        return true_open(view, path)

    monkeypatch.setattr(DirectoryView, "open", refused)
    ran, rows = verified(store)
    assert ran.code == (3 if name.startswith("config") else 4)
    said = [row for row in rows[:-1] if row["file"] == name]
    assert said
    assert "permission denied" in said[0]["message"]


def test_a_folder_that_may_not_be_listed(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true_list = DirectoryView.list

    def refused(view: DirectoryView, path: str) -> Any:
        if path == "consumequeue/TopicTest":
            raise UnreadableError(f"{path}: permission denied")
        return true_list(view, path)

    monkeypatch.setattr(DirectoryView, "list", refused)
    ran, rows = verified(store)
    assert ran.code == 4
    assert "consumequeue/TopicTest: permission denied" in ran.err
    assert rows[-1]["checked"]["records"] == 320


@pytest.mark.parametrize("left", [0, 1, 100, 20_000])
@pytest.mark.parametrize(
    "name",
    [
        "commitlog/00000000000000065536",
        "commitlog/00000000000000262144",
        "consumequeue/TopicTest/0/00000000000000000000",
        "checkpoint",
    ],
)
def test_a_file_that_shrinks_once_it_was_measured(
    store: Path, monkeypatch: pytest.MonkeyPatch, name: str, left: int
) -> None:
    true_open = verify_module.shared.open_store

    def shrinking(*arguments: Any) -> OpenedStore:
        opened = true_open(*arguments)
        os.truncate(store / name, min(left, (store / name).stat().st_size))
        return opened

    monkeypatch.setattr(verify_module.shared, "open_store", shrinking)
    ran, rows = verified(store, may_change=True)
    assert ran.code in (0, 3, 4)
    assert rows[-1]["type"] == "summary"
    if name.startswith("commitlog/00000000000000065536"):
        assert ran.code != 0


@pytest.mark.parametrize("gone", ["commitlog/00000000000000065536", "checkpoint", "index", "consumequeue/TopicTest/0"])
def test_what_goes_away_meanwhile(store: Path, monkeypatch: pytest.MonkeyPatch, gone: str) -> None:
    true_open = verify_module.shared.open_store

    def vanishing(*arguments: Any) -> OpenedStore:
        opened = true_open(*arguments)
        (store / gone).rename(store.parent / "gone")
        return opened

    monkeypatch.setattr(verify_module.shared, "open_store", vanishing)
    ran, rows = verified(store, may_change=True)
    assert ran.code in (3, 4)
    assert rows[-1]["type"] == "summary"


def test_names_reach_no_terminal_unescaped(store: Path) -> None:
    for folder in ("consumequeue", "commitlog", "index", "consumequeue/TopicTest"):
        odd = store / folder / "\x1b[2J\u202eevil\n0"
        odd.write_bytes(b"x" * 100)
    for options in ((), ("--format", "jsonl"), ("--format", "csv"), ("--format", "json")):
        ran = rmqtool("verify", store, *options)
        assert ran.code in (3, 4)
        assert all(line.isprintable() for line in (ran.out + ran.err).splitlines())
        assert "evil" in ran.out


def test_queue_files_that_are_cut_while_it_runs_end_nothing(
    golden_copy: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unit that was the newest may be gone when it is read once more."""
    store = golden_copy("5.5.0-crashed")

    def cut_before(context: Any) -> tuple[int, int]:
        for file in store.glob("consumequeue/*/*/*"):
            os.truncate(file, 0)
        return newest_record(context)

    monkeypatch.setattr("rmqtool.verify.run.reach.newest_record", cut_before)
    ran = rmqtool("verify", store, "--threads", "1", "--format", "json")
    assert ran.code == 3, ran.err
