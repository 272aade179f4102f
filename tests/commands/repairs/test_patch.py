"""`rmqtool patch` has the plan, consent and undo of every repair; `tests/repair/test_patch.py` has the structures."""

from __future__ import annotations

import json
from pathlib import Path

from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged

CLEAN = "5.5.0-clean-basic"
LOG = "commitlog/00000000000000000000"


def files_of(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_patch_is_shown_applied_and_undone(golden_copy: Unpacked) -> None:
    store = golden_copy(CLEAN)
    before = files_of(store)
    command = ("patch", store / LOG, "--at", 0, "--set", "born_timestamp_ms=0x18bcfe56801")
    with assert_store_unchanged(store):
        ran = rmqtool(*command, "--dry-run", "--format", "json")
        assert ran.code == 3, ran.err
    [field] = json.loads(ran.out)["patch"]["fields"]
    assert (field["name"], field["after"]["value"].split()[0]) == ("born_timestamp_ms", str(0x18BCFE56801))
    ran = rmqtool(*command, "--yes")
    assert ran.code == 0, ran.err
    after = files_of(store)
    assert [name for name in before if after[name] != before[name]] == [LOG]
    assert rmqtool("undo", store, "--yes").code == 0
    assert files_of(store) == before


def test_a_patch_that_harms_needs_consent(golden_copy: Unpacked) -> None:
    store = golden_copy(CLEAN)
    with assert_store_unchanged(store):
        for value in ("queue_id=3", "body_crc=1"):
            ran = rmqtool("patch", store / LOG, "--at", 0, "--set", value, "--yes")
            assert ran.code == 5
            assert "--accept-loss" in ran.err
    ran = rmqtool("patch", store / LOG, "--at", 0, "--set", "body_crc=1", "--yes", "--accept-loss")
    assert ran.code == 3
    ran = rmqtool("patch", store / LOG, "--at", 0, "--fix-crc", "--yes")
    assert ran.code == 0, ran.err
    assert rmqtool("verify", store).code == 0


def test_a_file_outside_a_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    ran = rmqtool("patch", tmp_path / "file", "--at", 0, "--set", "size=1")
    assert (ran.code, ran.out) == (4, "")
    assert "not in a store" in ran.err
