"""Configuration whose copy is broken keeps a broker from starting; tests/broker/test_config_backups.py asks brokers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from tests.commands.transcripts import rmqtool

CUT = '{"offsetTable":{'


@pytest.mark.parametrize("file", ["topics.json", "consumerOffset.json", "subscriptionGroup.json"])
def test_a_file_that_is_lost_and_a_copy_that_is_no_json(tmp_path: Path, file: str) -> None:
    path = tmp_path / "store"
    make_store(RECIPES["basic"], path, "5.5.0")
    own, backup = path / "config" / file, path / "config" / f"{file}.bak"
    backup.write_text(CUT)
    line = ("--format", "json", "--broker-version", "5.5.0")
    for content in (CUT, "", None):
        own.unlink(missing_ok=True) if content is None else own.write_text(content)
        answer = json.loads(rmqtool("forecast", path, *line).out)
        assert answer["verdict"] == "will-not-start"
        assert json.loads(rmqtool("verify", path, *line).out)["summary"]["verdict"] == "will-not-start"
    backup.unlink()
    own.write_text(CUT)
    assert json.loads(rmqtool("forecast", path, *line).out)["verdict"] == "inconsistent"
