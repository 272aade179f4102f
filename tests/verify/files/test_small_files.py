"""A checkpoint that is gone or zero is a finding, also where no record of the log can be read."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.formats.checkpoint import CHECKPOINT
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


def test_a_zero_queue_time_is_found_where_all_queues_are_gone(tmp_path: Path) -> None:
    """A clean stop writes it after the queues, so that they were there."""
    make_store(RECIPES["basic"], tmp_path, "5.1.4")
    shutil.rmtree(tmp_path / "consumequeue")
    before = above_note(verified(tmp_path, "5.1.4")[1])
    with (tmp_path / "checkpoint").open("r+b") as sink:
        sink.seek(CHECKPOINT.position("consumequeue_timestamp_ms"))
        sink.write(bytes(8))
    findings = above_note(verified(tmp_path, "5.1.4")[1])
    assert findings - before == {"checkpoint.bad-time": 1}


@pytest.mark.parametrize(
    ("name", "value"), [("consumequeue_timestamp_ms", 0x774D1CB0347B1F27), ("confirm_physical_offset", 1 << 40)]
)
def test_an_impossible_number_is_found_where_no_record_can_be_compared(tmp_path: Path, name: str, value: int) -> None:
    """Two files with each other's names: no record lies where it says."""
    make_store(RECIPES["basic"], tmp_path, "5.5.0")
    for file in (tmp_path / "commitlog").iterdir():
        file.rename(file.with_name(f"{int(file.name) + 65536:020d}"))
    before = above_note(verified(tmp_path, "5.5.0")[1])
    with (tmp_path / "checkpoint").open("r+b") as sink:
        sink.seek(CHECKPOINT.position(name))
        sink.write(value.to_bytes(8, "big"))
    findings = above_note(verified(tmp_path, "5.5.0")[1])
    assert findings - before == {"checkpoint.bad-time": 1}
