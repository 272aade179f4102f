"""Findings about the text files of controller mode; tests/broker/test_controller.py asks the broker's own classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.fixtures.recipes import RECIPES
from rmqtool.formats.controller import EPOCHS, IDENTITY, epochs_text
from tests.commands.transcripts import rmqtool

RECIPE = RECIPES["basic"]
RIGHT = epochs_text([(1, 0), (3, 700)])


def answer(command: str, path: Path, version: str = "5.5.0") -> dict[str, Any]:
    ran = rmqtool(command, path, "--format", "json", "--broker-version", version)
    content: dict[str, Any] = json.loads(ran.out)
    return content


def ids(path: Path) -> set[str]:
    return {finding["id"] for finding in answer("verify", path)["findings"] if finding["id"].startswith("controller.")}


def test_right_files_are_looked_at_and_are_no_finding(store: Path) -> None:
    (store / EPOCHS).write_text(RIGHT)
    (store / IDENTITY).write_text("DefaultCluster#broker-a#2")
    assert ids(store) == set()
    for command in ("verify", "forecast"):
        content = answer(command, store)
        assert content.get("summary", content)["verdict"] == "ok"
    left_out = answer("info", store)["not_looked_at"]
    assert {files["path"] for files in left_out} >= {EPOCHS, IDENTITY}


@pytest.mark.parametrize("text", ["", "x\n1\n", "2\n0\n1-0\nx-5\n", "2\n"])
def test_a_broker_in_controller_mode_would_not_start(store: Path, text: str) -> None:
    (store / EPOCHS).write_text(text)
    (store / f"{EPOCHS}.bak").write_text(RIGHT)
    assert ids(store) == {"controller.epochs-not-parsed"}
    assert answer("verify", store)["summary"]["verdict"] == "will-not-start"
    assert answer("forecast", store)["verdict"] == "will-not-start"
    assert answer("forecast", store, "4.9.7")["verdict"] != "will-not-start"


def test_the_end_of_the_log_may_start_an_epoch_and_no_byte_after_it(store: Path) -> None:
    end = answer("forecast", store)["forecasts"][0]["log_end_offset"]
    (store / EPOCHS).write_text(epochs_text([(1, 0), (2, end)]))
    assert ids(store) == set()
    (store / EPOCHS).write_text(epochs_text([(1, 0), (2, end + 1)]))
    assert ids(store) == {"controller.epochs-ahead-of-log"}


def test_a_missing_file_with_a_backup_and_a_huge_file(store: Path) -> None:
    (store / f"{EPOCHS}.bak").write_text(RIGHT)
    assert ids(store) == {"controller.epochs-from-backup"}
    with (store / EPOCHS).open("wb") as file:
        file.truncate(1 << 40)
    content = answer("verify", store)
    assert ids(store) == set()
    assert "store.unreadable" in {finding["id"] for finding in content["findings"]}
    assert content["summary"]["verdict"] != "ok"
