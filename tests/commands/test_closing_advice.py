"""Advice that ends: the command that is named has something to do, and none is named where none has."""

from __future__ import annotations

import json

import pytest

from tests.commands.transcripts import json_answer, rmqtool
from tests.conftest import Unpacked


@pytest.mark.parametrize("name", ["4.9.7-clean-empty", "5.5.0-clean-empty"])
def test_a_crash_of_a_store_without_a_message_is_nothing(golden_copy: Unpacked, name: str) -> None:
    path = golden_copy(name)
    for file in (path / "commitlog").glob("*"):
        file.unlink()
    (path / "abort").touch()
    code, verified = json_answer("verify", path)
    assert (code, verified["summary"]["verdict"]) == (0, "ok")
    assert json_answer("forecast", path)[1]["verdict"] == "ok"
    shown = json.loads(rmqtool("info", path, "--format", "json").out)
    assert (shown["verdict"], shown["next_step"]["command"]) == ("ok", None)
    assert "nothing to do" in shown["next_step"]["reason"]
    ran = rmqtool("recover", path, "--dry-run")
    assert (ran.code, ran.out.startswith("Nothing to do.")) == (0, True)
    assert "is mounted" not in rmqtool("rebuild", path, "--dry-run").err
