"""A store that changes while a repair is planned, as a broker changes it that starts: nobody is told of damage."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.campaign.calls import watched
from tests.campaign.command import run
from tests.golden_stores import unpack

VERSION = "4.9.7"
SPARE = "commitlog/00000000000000262144"
"""A log file of zeros after the log's end, which a broker removes when it loads."""


def at_call(number: int, action: Callable[[], None]) -> Callable[[str, str], None]:
    """Do something in front of one of the changes that a repair makes."""
    count = 0

    def watch(_call: str, _path: str) -> None:
        nonlocal count
        count += 1
        if count == number:
            action()

    return watch


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return unpack("4.9.7-crashed", tmp_path)


def test_a_plan_is_made_of_what_is_there_when_it_begins(store: Path) -> None:
    with watched(store, at_call(1, (store / SPARE).unlink)):
        outcome = run("recover", store, "--yes", "--broker-version", VERSION)
    assert outcome.code == 0, outcome
    assert SPARE not in outcome.output


@pytest.mark.parametrize("command", ["recover", "rebuild", "salvage"])
def test_a_store_that_changes_while_it_is_planned_is_refused(store: Path, command: str) -> None:
    (store / "consumequeue/TopicTest/0/00000000000000000000").unlink()

    def change() -> None:
        (store / SPARE).unlink()
        (store / "index").rename(store / "index.old")

    with watched(store, at_call(5, change)):
        outcome = run(command, store, "--yes", "--accept-loss", "--broker-version", VERSION)
    assert outcome.code == 5, outcome
    assert "changed while it was read" in outcome.errors
    assert outcome.output == ""
    assert not (store / ".rmqtool").exists()


def test_a_store_that_changes_under_a_dry_run_is_refused(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"  # where a dry run builds
    outside.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(outside))
    with watched(outside, at_call(5, (store / SPARE).unlink)):
        outcome = run("recover", store, "--dry-run", "--broker-version", VERSION)
    assert outcome.code == 5, outcome
    assert "changed while it was read" in outcome.errors
    assert outcome.output == ""


def test_a_file_that_goes_before_the_fence_stands_is_a_change_and_no_error_of_the_disk(store: Path) -> None:
    replaced = max((store / "index").iterdir())

    def watch(call: str, path: str) -> None:
        if call == "mkdir" and path.endswith(".rmqtool/undo"):
            replaced.unlink()

    with watched(store, watch):
        outcome = run("recover", store, "--yes", "--broker-version", VERSION)
    assert outcome.code == 5, outcome
    assert "changed since the plan was made" in outcome.errors
    assert not (store / ".rmqtool").exists()
