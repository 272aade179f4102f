"""The file that a repair leaves until it is finished is a finding in every directory of the log."""

from __future__ import annotations

from pathlib import Path

from rmqtool.store.file_kinds import FENCE_NAME
from tests.campaign.cases import CASES
from tests.campaign.command import run


def test_a_fence_in_each_directory_of_a_log(tmp_path: Path) -> None:
    store = CASES["recover two logs"].fresh(tmp_path)
    logs = (store / "log-a", tmp_path / "log-b")
    for log in logs:
        (log / FENCE_NAME).write_bytes(b"a repair is not finished")
    options = [word for log in logs for word in ("--commitlog", log)]
    checked = run("verify", store, "--format", "csv", *options)
    assert checked.code == 3, checked.said
    assert checked.output.count("store.repair-unfinished") == len(logs), checked.output
