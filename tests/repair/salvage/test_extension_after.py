"""The extensions of queues after a salvage: nothing lies after the units that the queues lead to."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.formats.consumequeue import UNIT, extension_position, is_extension_address
from tests.commands.transcripts import rmqtool

SETTINGS = {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "400"}
EXTENSION_SIZE = 400


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_tombstones_have_no_unit_in_an_extension(tmp_path: Path, version: str) -> None:
    """Brokers unlink files of an extension after the last address, and append went on in the wrong one."""
    path, conf = tmp_path / "store", tmp_path / "broker.conf"
    recipe = replace(RECIPES["many-files"], settings={**RECIPES["many-files"].settings, **SETTINGS})
    make_store(recipe, path, version)
    conf.write_text("".join(f"{name}={value}\n" for name, value in recipe.settings.items()))
    logs = sorted((path / "commitlog").iterdir())
    holding = [file for file in logs if file.read_bytes().strip(b"\0")]
    for file in holding[-2:]:
        file.write_bytes(random.Random(1).randbytes(file.stat().st_size))
    options = ("--broker-version", version, "--broker-conf", conf)
    salvaged = rmqtool("salvage", path, "--yes", *options)
    assert salvaged.code == 0, salvaged
    for directory in sorted(path.glob("consumequeue_ext/*/*")):
        units = np.frombuffer(b"".join(file.read_bytes() for file in queue_files(path, directory)), UNIT.dtype)
        ends = [extension_position(code) + 20 for code in units["tags_code"].tolist() if is_extension_address(code)]
        assert ends
        assert all(int(file.name) < ends[-1] for file in directory.iterdir()), directory
    for directory in sorted(path.glob("consumequeue/*/*")):
        appended = rmqtool(
            "append", path, "--topic", directory.parent.name, "--queue-id", directory.name, "--count", "30", *options
        )
        assert appended.code == 0, appended


def queue_files(path: Path, directory: Path) -> list[Path]:
    return sorted((path / "consumequeue" / directory.relative_to(path / "consumequeue_ext")).iterdir())
