"""The store's owner exchanges directories while root plans a repair: nothing is written where that leads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.campaign.calls import watched
from tests.campaign.command import run
from tests.campaign.trees import capture, differences
from tests.golden_stores import unpack
from tests.repair.machine.test_two_users import owned

CRASHED = "5.5.0-crashed"
DAMAGED = "5.5.0-damage-flip-body-middle-file-abort"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs the superuser, who can give files away")


@pytest.mark.parametrize(
    ("name", "command", "options"),
    [
        (CRASHED, "recover", []),
        (CRASHED, "rebuild", []),
        (DAMAGED, "salvage", []),
        (DAMAGED, "salvage", ["--lost-found"]),
    ],
)
def test_root_writes_into_the_directory_that_it_made(
    tmp_path: Path, name: str, command: str, options: list[str]
) -> None:
    store = owned(unpack(name, tmp_path))
    (store / "consumequeue/TopicTest/0/00000000000000000000").unlink()
    victim = tmp_path / "victim"
    victim.mkdir()
    staging = store / ".rmqtool/staging"
    exchanged = []

    def exchange(_call: str, path: str) -> None:
        if exchanged or not (run_directory := next(staging.glob("*"), None)) or not path.startswith(str(run_directory)):
            return
        (victim / run_directory.name).mkdir()
        staging.rename(staging.with_name("old"))
        staging.symlink_to(victim)
        exchanged.append(capture(victim))

    with watched(store, exchange):
        outcome = run(command, store, "--yes", "--accept-loss", *options)
    assert exchanged
    assert not differences(exchanged[0], capture(victim))
    assert outcome.code in (0, 3, 5), outcome
