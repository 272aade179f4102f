"""Extensions of queues of which the log has no record any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from tests.commands.transcripts import rmqtool

SETTINGS = {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "400"}


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_damaged_extensions_do_not_outlive_the_log(tmp_path: Path, version: str) -> None:
    """A broker walks over each file of an extension when it loads, and ends at a unit that leads out of it."""
    path, conf = tmp_path / "store", tmp_path / "broker.conf"
    recipe = replace(RECIPES["many-files"], settings={**RECIPES["many-files"].settings, **SETTINGS})
    make_store(recipe, path, version)
    conf.write_text("".join(f"{name}={value}\n" for name, value in recipe.settings.items()))
    first, second, *later = sorted((path / "commitlog").iterdir())
    for file in (first, *later):
        file.unlink()
    second.write_bytes(b"\0")
    damaged = max(path.glob("consumequeue_ext/*/*/*"))
    with damaged.open("r+b") as sink:
        sink.write(b"\x60")
    options = ("--broker-version", version, "--broker-conf", conf)
    recovered = rmqtool("recover", path, "--full", "--accept-loss", "--yes", *options)
    assert recovered.code == 0, recovered
    assert rmqtool("verify", path, *options).code == 0
    assert not damaged.exists()
