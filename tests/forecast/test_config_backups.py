"""Configuration whose copy is broken keeps a broker from starting; tests/broker/test_config_backups.py asks brokers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.forecast.forecast import SharedStarts, forecast_store
from rmqtool.store.config import config_json
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.commands.transcripts import rmqtool

CUT = '{"offsetTable":{'


@pytest.mark.parametrize("file", ["topics.json", "consumerOffset.json", "consumerOrderInfo.json"])
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


def test_starts_of_several_versions_read_a_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_store(RECIPES["basic"], tmp_path / "store", "5.5.0")
    read: Counter[str] = Counter()
    original = config_json.parse_relaxed_json

    def counted(text: str) -> Any:
        read[text] += 1
        return original(text)

    monkeypatch.setattr(config_json, "parse_relaxed_json", counted)
    store, shared = survey(open_directory(tmp_path / "store")), SharedStarts()
    for version in ("4.9.7", "5.3.3", "5.5.0"):
        assert forecast_store(store, rules_for(version), shared=shared).starts
    assert list(read.values()) == [1]  # only topics.json is there
