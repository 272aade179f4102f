"""`rmqtool recover --cut-at`: the log ends where a person says, with the consent and undo of every repair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import damage_store
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from tests import golden_stores
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged

CLEAN = "5.5.0-clean-basic"
DAMAGED = "4.9.7-damage-flip-body-middle-file-abort"


def answer(*arguments: object) -> tuple[int, dict[str, Any]]:
    ran = rmqtool(*arguments, "--format", "json")
    assert ran.out, ran.err
    return ran.code, json.loads(ran.out)


def offsets_of(name: str) -> list[int]:
    return sorted(record.at for record in golden_stores.manifest(name).records)


def content_of(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize("number", [1, -7, -1])
def test_cut_at_discards_the_record_and_all_later_ones(golden_copy: Unpacked, number: int) -> None:
    path, offsets = golden_copy(CLEAN), offsets_of(CLEAN)
    cut = offsets[number]
    lost = len(offsets) - offsets.index(cut)
    with assert_store_unchanged(path):
        code, plan = answer("recover", path, "--cut-at", cut, "--dry-run")
        assert (code, plan["verdict"], plan["loss"]["messages"]) == (3, "would-lose", lost)
        assert f"--cut-at {cut} --accept-loss" in plan["next_step"]["command"]
        ran = rmqtool("recover", path, "--cut-at", cut, "--yes")
        assert ran.code == 5
        assert "--accept-loss" in ran.err
    before = content_of(path)
    code, done = answer("recover", path, "--cut-at", cut, "--yes", "--accept-loss")
    assert code == 0, done["headline"]
    assert done["loss"]["messages"] == lost
    ran = rmqtool("verify", path, "--format", "json")
    assert ran.code == 0, ran.out
    assert json.loads(ran.out)["summary"]["checked"]["records"] == len(offsets) - lost
    with assert_store_unchanged(path):
        assert rmqtool("recover", path, "--cut-at", cut, "--yes").code == 0
    assert rmqtool("undo", path, "--yes").code == 0
    assert content_of(path) == before


@pytest.mark.parametrize("by", [1, -1, 40])
def test_an_offset_where_no_record_starts_is_refused_with_the_nearest(golden: Unpacked, by: int) -> None:
    offsets = offsets_of(CLEAN)
    between = (4, 5) if by > 0 else (3, 4)
    with assert_store_unchanged(golden(CLEAN)):
        ran = rmqtool("recover", golden(CLEAN), "--cut-at", offsets[4] + by, "--dry-run")
    assert ran.code == 2
    assert "no record starts there" in ran.err
    assert all(str(offsets[number]) in ran.err for number in between)


def test_an_offset_outside_of_the_log_is_refused(golden: Unpacked) -> None:
    ran = rmqtool("recover", golden(CLEAN), "--cut-at", 1 << 60, "--dry-run")
    assert ran.code == 2
    assert "the commit log files go from 0 to" in ran.err


def test_a_cut_after_damage_leaves_the_damage_to_salvage(golden: Unpacked) -> None:
    path = golden(DAMAGED)
    code, plan = answer("recover", path, "--cut-at-damage", "--dry-run", "--full")
    first_lost = plan["damage"] or [step for step in plan["steps"] if "after the damage" in step["why"]]
    assert code == 3
    assert first_lost
    offsets = offsets_of(DAMAGED)
    code, plan = answer("recover", path, "--cut-at", offsets[-1], "--dry-run", "--full")
    assert (code, plan["steps"]) == (3, [])
    assert [finding["id"] for finding in plan["damage"]] == ["commitlog.body-crc-mismatch"]
    code, plan = answer("recover", path, "--cut-at", offsets[2], "--dry-run", "--full")
    assert (code, plan["damage"]) == (3, [])
    assert plan["loss"]["messages"] == len(offsets) - 3  # the damaged one is lost already


def test_one_way_to_cut_at_a_time(golden: Unpacked) -> None:
    ran = rmqtool("recover", golden(CLEAN), "--cut-at", 0, "--cut-at-damage", "--dry-run")
    assert ran.code == 2
    assert "exclude each other" in ran.err


@pytest.fixture
def came_back(tmp_path: Path) -> Path:
    """A store with the times of one in which old records came back after a truncation."""
    recipe, path = RECIPES["many-files"], tmp_path / "store"
    make_store(recipe, path, "5.5.0")
    damage_store(DAMAGES["log-resurrected-tail"], path, 0, recipe.conf.settings())
    return path


def test_records_that_may_have_come_back_are_named_without_a_command(came_back: Path) -> None:
    with assert_store_unchanged(came_back):
        code, checked = answer("verify", came_back)
        (finding,) = [each for each in checked["findings"] if each["id"] == "commitlog.resurrected-tail"]
        assert (code, finding["severity"], finding["repair"]) == (0, "note", None)
        assert "the clock was set back" in finding["message"]
        for name in ("recover", "salvage"):
            code, plan = answer(name, came_back, "--dry-run")
            assert (code, plan["steps"], plan["remaining"]) == (0, [], [])


def test_records_that_came_back_are_named_with_the_command(came_back: Path) -> None:
    begin = answer("verify", came_back)[1]["findings"][0]["physical_offset"]
    repeat_a_queue_offset(came_back, begin)
    code, checked = answer("verify", came_back)
    (finding,) = [each for each in checked["findings"] if each["id"] == "commitlog.resurrected-tail"]
    assert (code, finding["severity"], finding["physical_offset"]) == (3, "warning", begin)
    assert finding["repair"] == f"rmqtool recover --cut-at {begin} {came_back}"


def repeat_a_queue_offset(path: Path, begin: int) -> None:
    """Give the first record from a place on whose queue has an earlier one in the same file the offset of that one."""
    rows = [json.loads(line) for line in rmqtool("dump", path, "--format", "jsonl").out.splitlines()]
    rows = [row for row in rows if row.get("topic")]
    file = max(path.joinpath("commitlog").iterdir(), key=lambda file: (int(file.name) <= begin, file.name))
    start, last = int(file.name), {}
    for row in rows:
        queue = row["topic"], row["queue_id"]
        if row["physical_offset"] >= begin and queue in last:
            with file.open("r+b") as log:
                log.seek(row["physical_offset"] - start + 20)
                log.write(last[queue].to_bytes(8, "big"))
            return
        if start <= row["physical_offset"] < begin:
            last[queue] = row["queue_offset"]


def test_records_that_came_back_are_cut_off(came_back: Path) -> None:
    finding = answer("verify", came_back)[1]["findings"][0]
    cut = finding["physical_offset"]
    code, done = answer("recover", came_back, "--cut-at", cut, "--yes", "--accept-loss")
    assert (code, done["verdict"], done["loss"]["messages"]) == (0, "ok", finding["count"])
    assert rmqtool("verify", came_back).code == 0
