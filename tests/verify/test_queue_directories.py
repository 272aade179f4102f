"""A directory among the files of a queue stops brokers up to 5.0.0; a file's name must sort by its number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.verify.stores import above_note, verified


@pytest.mark.parametrize("version", ["4.4.0", "4.9.7", "5.0.0", "5.1.4"])
@pytest.mark.parametrize("name", ["77", "lost+found"])
def test_a_directory_among_the_files_of_a_queue(golden_copy: Unpacked, version: str, name: str) -> None:
    path = golden_copy("4.9.7-clean-basic")
    (path / "consumequeue/Audit/lost+found").mkdir()
    before = above_note(verified(path, version)[1])
    (path / "consumequeue/Audit/0" / name).mkdir()
    findings = above_note(verified(path, version)[1]) - before
    assert findings == ({} if version == "5.1.4" else {"consumequeue.stray-file": 1})


def test_a_file_of_a_queue_that_does_not_sort_by_its_number(tmp_path: Path) -> None:
    """Brokers serve all of it, and look for expired units in the file whose name is the first one."""
    path, conf = tmp_path / "store", tmp_path / "broker.conf"
    recipe = RECIPES["many-files"]
    make_store(recipe, path, "5.3.1")
    conf.write_text("".join(f"{name}={value}\n" for name, value in recipe.settings.items()))
    options = ("--broker-version", "5.3.1", "--broker-conf", conf)
    first, _, third = next(
        files[:3] for queue in path.glob("consumequeue/*/*") if len(files := sorted(queue.iterdir())) > 2
    )
    before = third.read_bytes()
    misnamed = third.rename(third.with_name(f"00{third.name}"))
    assert first.name < misnamed.name < third.name
    answer = json.loads(rmqtool("verify", path, "--format", "json", *options).out)
    named = [row["file"] for row in answer["findings"] if row["id"] == "consumequeue.stray-file"]
    assert named == [str(misnamed.relative_to(path))]
    assert rmqtool("recover", path, "--full", "--yes", *options).code == 0
    assert (misnamed.exists(), third.read_bytes()) == (False, before)
    assert rmqtool("verify", path, *options).code == 0
