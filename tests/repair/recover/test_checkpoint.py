"""`recover` and the checkpoint of a log without a record, in which nothing shows which times and offsets are right."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.formats.checkpoint import Checkpoint, build_checkpoint, parse_checkpoint
from tests.commands.transcripts import rmqtool

POSSIBLE = 1_790_000_000_000


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Checkpoint(POSSIBLE, 1 << 62, POSSIBLE), Checkpoint(POSSIBLE, 0, POSSIBLE)),
        (Checkpoint(-1, POSSIBLE, POSSIBLE), Checkpoint(0, POSSIBLE, POSSIBLE)),
        (Checkpoint(POSSIBLE, POSSIBLE, 0, -5), Checkpoint(POSSIBLE, POSSIBLE)),
    ],
)
def test_only_impossible_numbers_are_replaced(tmp_path: Path, before: Checkpoint, after: Checkpoint) -> None:
    make_store(RECIPES["basic"], tmp_path, "5.5.0")
    for name in ("commitlog", "consumequeue", "index", "config"):
        shutil.rmtree(tmp_path / name)
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(65536))
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes(build_checkpoint(before))
    version = ("--broker-version", "5.5.0")
    assert rmqtool("verify", tmp_path, *version).code == 3
    assert rmqtool("recover", tmp_path, "--yes", *version).code == 0
    assert parse_checkpoint(checkpoint.read_bytes()) == after
    assert rmqtool("verify", tmp_path, *version).code == 0
    assert rmqtool("undo", tmp_path, "--yes").code == 0
    assert checkpoint.read_bytes() == build_checkpoint(before)
