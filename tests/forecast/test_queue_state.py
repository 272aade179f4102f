"""What a start has entered itself is not read again to find where its queues end, and comes to the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtool.engine.queues.loaded_files import LoadedFiles
from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.forecast.forecast import forecast_store
from rmqtool.forecast.options import ForecastOptions
from rmqtool.forecast.queue_state import QueueState
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory


@pytest.mark.parametrize("recipe", ["basic", "many-files", "expired-head", "crashed"])
@pytest.mark.parametrize("version", ["4.9.7", "5.3.3", "5.5.0"])
def test_queues_end_where_they_would_if_they_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str, version: str
) -> None:
    path, rules = tmp_path / "store", rules_for(version)
    make_store(RECIPES[recipe], path, version)
    shutil.rmtree(path / "consumequeue")
    (path / "abort").touch()
    store = survey(open_directory(path), RECIPES[recipe].conf.settings())
    with monkeypatch.context() as patch:
        patch.setattr(QueueState, "_is_entered_below", lambda _self, _log_end: False)
        expected = forecast_store(store, rules, ForecastOptions())
    assert expected.queues
    read: list[str] = []
    length = LoadedFiles.valid_length

    def watched(loaded: LoadedFiles, segment: object, *arguments: object, **options: object) -> int:
        read.append(str(segment))
        return length(loaded, segment, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(LoadedFiles, "valid_length", watched)
    assert forecast_store(store, rules, ForecastOptions()) == expected
    assert not read
