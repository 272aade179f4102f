"""The verdict of `diff`, what it did not compare, and the next step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import damage_store
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from tests.commands.schema_check import schema_errors
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

SCHEMA = json.loads((Path(__file__).resolve().parents[3] / "docs" / "schema" / "diff.json").read_text("utf-8"))
BASE = "5.5.0-damage-base"


def diff(*words: object) -> tuple[int, dict[str, Any]]:
    ran = rmqtool("diff", *words, "--format", "json")
    answer = json.loads(ran.out)
    assert schema_errors(answer, SCHEMA) == []
    assert (answer["verdict"] == "ok") == (ran.code == 0) == (answer["equal"] and answer["complete"])
    assert answer["complete"] == (not answer["not_looked_at"])
    return ran.code, answer


def test_equal_stores_are_ok(golden: Unpacked) -> None:
    code, answer = diff(golden(BASE), golden(BASE))
    assert (code, answer["verdict"], answer["needs_decision"]) == (0, "ok", False)
    assert answer["next_step"] == {"command": None, "reason": "nothing to do"}


def test_damage_leads_to_verify_of_the_damaged_store(golden: Unpacked) -> None:
    damaged = golden("5.5.0-damage-zero-hole")
    code, answer = diff(golden(BASE), damaged)
    assert (code, answer["verdict"]) == (3, "inconsistent")
    assert answer["next_step"]["command"] == f"rmqtool verify {damaged}"


def test_different_stores_need_a_decision(golden: Unpacked) -> None:
    code, answer = diff(golden(BASE), golden("5.5.0-expired-head"))
    assert (code, answer["verdict"], answer["needs_decision"]) == (3, "inconsistent", True)
    assert answer["headline"].startswith("INCONSISTENT: the logs differ from physical offset")


@pytest.mark.parametrize(("option", "verdict"), [("replicas", "not-fully-checked"), ("messages", "ok")])
def test_what_is_not_compared_is_not_called_equal(golden: Unpacked, option: str, verdict: str) -> None:
    path = golden("5.5.0-rocksdb-cq")
    code, answer = diff(path, path, "--as", option)
    assert answer["equal"]
    if not answer["not_compared"]:
        assert code == 0
        return
    assert (code, answer["verdict"]) == (0 if verdict == "ok" else 3, verdict)
    assert rmqtool("diff", path, path, "--as", option).out.startswith("NOT FULLY CHECKED") == (verdict != "ok")


@pytest.mark.parametrize(
    ("file", "kind"),
    [("checkpoint", "checkpoint"), ("index/*", "index"), ("config/consumerFilter.json", "configuration")],
)
def test_a_file_that_is_not_decoded_counts_as_compared_only_where_its_bytes_are_equal(
    golden: Unpacked, golden_copy: Unpacked, tmp_path: Path, file: str, kind: str
) -> None:
    path, manifest = golden_copy(BASE), tmp_path / "manifest"
    rmqtool("diff", "--make-manifest", manifest, golden(BASE))
    for words in ((golden(BASE), path), (path, "--manifest", manifest)):
        assert diff(*words)[0] == 0
    (path / "config").mkdir(exist_ok=True)
    changed = next(path.glob(file), path / file)
    content = changed.read_bytes() if changed.exists() else b""
    changed.write_bytes(content[:20] + b"\x7f" + content[21:])
    for words in ((golden(BASE), path), (path, "--manifest", manifest)):
        code, answer = diff(*words)
        assert (code, answer["verdict"], answer["equal"]) == (3, "not-fully-checked", True)
        assert [files["kind"] for files in answer["not_looked_at"]] == [kind]
        assert rmqtool("diff", *words).out.startswith("NOT FULLY CHECKED")
        assert diff(*words, "--as", "messages")[0] == 0


def test_blocks_alone_are_no_complete_comparison(golden: Unpacked, tmp_path: Path) -> None:
    manifest = tmp_path / "manifest"
    assert rmqtool("diff", "--make-manifest", manifest, golden(BASE), "--detail", "blocks").code == 0
    code, answer = diff(golden("5.5.0-damage-zero-hole"), "--manifest", manifest)
    assert (code, answer["complete"]) == (3, False)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A store, and a copy in which old records came back after a truncation."""
    recipe, store, other = RECIPES["many-files"], tmp_path / "store", tmp_path / "other"
    make_store(recipe, store, "5.5.0")
    shutil.copytree(store, other)
    damage_store(DAMAGES["log-resurrected-tail"], other, 0, recipe.conf.settings())
    return store, other


def test_a_clock_that_was_set_back_is_no_tail_that_came_back(golden_copy: Unpacked, tmp_path: Path) -> None:
    """The store is healthy; of its copy the last record is damaged, so its log ends earlier."""
    store = golden_copy("clock-set-back-5.4.0")
    other = Path(shutil.copytree(store, tmp_path / "other"))
    with (other / f"commitlog/{32_768:020d}").open("r+b") as log:
        log.seek(55_592 - 32_768 + 100)
        log.write(b"?")
    code, answer = diff(store, other)
    assert code == 3
    assert answer["a"]["resurrected_tail"] is None
    assert "--cut-at" not in rmqtool("diff", store, other).out


def test_a_tail_that_came_back_is_named_with_the_command(pair: tuple[Path, Path]) -> None:
    store, other = pair
    code, answer = diff(store, other)
    assert (code, answer["a"]["resurrected_tail"]) == (3, None)
    tail = answer["b"]["resurrected_tail"]
    findings = json.loads(rmqtool("verify", other, "--format", "json").out)["findings"]
    (finding,) = (each for each in findings if each["id"] == "commitlog.resurrected-tail")
    assert tail == {"physical_offset": finding["physical_offset"], "messages": finding["count"]}
    command = f"rmqtool recover {other} --cut-at {tail['physical_offset']}"
    assert (answer["next_step"]["command"], answer["needs_decision"]) == (command, True)
    screen = rmqtool("diff", store, other).out
    assert command in screen
    assert "came back after a truncation" in " ".join(screen.split())
