"""Files of the log: what a repair leaves until it is finished, and a log of which no record is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.findings.finding import Severity
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.store.file_kinds import FENCE_NAME, segment_name
from tests.campaign.cases import CASES
from tests.campaign.command import run
from tests.store_state import store_state
from tests.verify.stores import above_note, verified


def test_a_fence_in_each_directory_of_a_log(tmp_path: Path) -> None:
    store = CASES["recover two logs"].fresh(tmp_path)
    logs = (store / "log-a", tmp_path / "log-b")
    for log in logs:
        (log / FENCE_NAME).write_bytes(b"a repair is not finished")
    options = [word for log in logs for word in ("--commitlog", log)]
    checked = run("verify", store, "--format", "csv", *options)
    assert checked.code == 3, checked.said
    assert checked.output.count("store.repair-unfinished") == len(logs), checked.output


def _only_a_file_of_zeros_left(tmp_path: Path, start: int) -> tuple[Path, int, int]:
    """A store of whose log one file of zeros is left; begin and size of the file that held the newest message."""
    path = tmp_path / "store"
    make_store(RECIPES["many-files"], path, "5.5.0")
    files = sorted((path / "commitlog").iterdir())
    size, newest = files[0].stat().st_size, int(files[-1].name)
    for file in files:
        file.unlink()
    (path / "commitlog" / segment_name(newest + start * size)).write_bytes(bytes(size))
    return path, newest, size


@pytest.mark.parametrize("distance", [2, 5])
def test_a_log_without_a_record_far_after_the_newest_message(tmp_path: Path, distance: int) -> None:
    """Files expire from the oldest on, and brokers fill one after the other: here whole files are gone unread."""
    path, newest, size = _only_a_file_of_zeros_left(tmp_path, distance)
    (missing,) = (each for each in verified(path, "5.5.0")[1] if each.severity is Severity.ERROR)
    assert (missing.id, missing.file) == ("commitlog.missing-file", f"commitlog/{segment_name(newest)}")
    assert (missing.physical_offset, missing.length, missing.count) == (newest, distance * size, distance)
    state = store_state(path)
    repaired = run("recover", path, "--yes")
    assert repaired.code != 0, repaired.said
    assert "commitlog.missing-file" in repaired.output
    assert {file: state[file] for file in state if "consumequeue" in file} == {
        file: what for file, what in store_state(path).items() if "consumequeue" in file
    }


def test_a_log_without_a_record_right_after_the_newest_message_has_expired(tmp_path: Path) -> None:
    path, _, _ = _only_a_file_of_zeros_left(tmp_path, 1)
    assert "commitlog.missing-file" not in above_note(verified(path, "5.5.0")[1])
