"""A checkpoint that is gone or zero is a finding, also where no record of the log can be read."""

from __future__ import annotations

import random
from pathlib import Path

from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from tests.verify.stores import above_note, verified


def test_it_is_found_where_all_of_the_log_is_damaged(tmp_path: Path) -> None:
    make_store(RECIPES["basic"], tmp_path, "5.5.0")
    noise = random.Random(3)
    for file in (tmp_path / "commitlog").iterdir():
        file.write_bytes(noise.randbytes(file.stat().st_size))
    damaged = above_note(verified(tmp_path, "5.5.0")[1])
    (tmp_path / "checkpoint").unlink()
    findings = above_note(verified(tmp_path, "5.5.0")[1])
    assert findings["checkpoint.missing"] == 1
    assert set(findings) - {"checkpoint.missing"} == {name for name in damaged if not name.startswith("checkpoint.")}


def test_zeros_in_it_are_found_where_all_of_the_log_is_zero(tmp_path: Path) -> None:
    make_store(RECIPES["basic"], tmp_path, "5.3.1")
    for file in (tmp_path / "commitlog").iterdir():
        file.write_bytes(bytes(file.stat().st_size))
    before = above_note(verified(tmp_path, "5.3.1")[1])
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    findings = above_note(verified(tmp_path, "5.3.1")[1])
    assert findings - before == {"checkpoint.bad-time": 1}
