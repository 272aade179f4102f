"""`verify` of several stores: each as alone, nothing left out, one exit code; Spark is in tests/pipeline."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rmqtool.commands.options.spark_tables import name_several
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.report.json_schemas import schema_text
from tests.commands.schema_check import schema_errors
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged

SCHEMA = json.loads(schema_text("verify-fleet") or "")
STORES = ("5.5.0-clean-basic", "5.5.0-clean-single", "5.5.0-damage-zero-hole-abort", "5.5.0-many-files")


@pytest.fixture
def fleet(golden: Unpacked, tmp_path: Path) -> Path:
    """Stores, and what else a pattern matches."""
    for name in STORES:
        (tmp_path / name).symlink_to(golden(name))
    (tmp_path / "empty").mkdir()
    (tmp_path / "circle").symlink_to("circle")
    return tmp_path


def alone(path: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of `verify` of one store."""
    ran = rmqtool("verify", path, "--format", "json", *options)
    return ran.code, json.loads(ran.out) if ran.out else {}


def without_store(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "store"} for row in rows]


@pytest.mark.parametrize("options", [(), ("--depth", "records"), ("--broker-version", "4.9.7", "--index-slots", "7")])
def test_each_store_has_the_answer_that_it_has_alone(fleet: Path, options: tuple[str, ...]) -> None:
    with assert_store_unchanged(fleet / STORES[2]):
        ran = rmqtool("verify", f"{fleet}/*", "--format", "json", *options)
    answer = json.loads(ran.out)
    assert schema_errors(answer, SCHEMA) == []
    assert [Path(one["store"]).name for one in answer["stores"]] == sorted([*STORES, "empty", "circle"])
    codes = set()
    for one in answer["stores"]:
        code, expected = alone(Path(one["store"]), *options)
        summary = one["summary"]
        codes.add(code)
        assert summary["exit_code"] == code
        if expected:
            assert without_store(one["findings"]) == expected["findings"]
            assert {name: summary[name] for name in expected["summary"]} == expected["summary"]
            severities = [row["severity"] for row in expected["findings"]]
            counts = [severities.count(name) for name in ("error", "warning", "note")]
            assert [summary["errors"], summary["warnings"], summary["notes"]] == counts
        else:
            assert summary["verdict"] in ("not-a-store", "not-readable")
    assert ran.code == max(codes) == 4
    assert answer["fleet"]["stores"] == len(answer["stores"])


def test_lines_are_the_findings_with_their_store(fleet: Path) -> None:
    rows = [json.loads(line) for line in rmqtool("verify", f"{fleet}/*", "--format", "jsonl").out.splitlines()]
    assert [error for row in rows for error in schema_errors(row, SCHEMA)] == []
    answer = json.loads(rmqtool("verify", f"{fleet}/*", "--format", "json").out)
    findings = [finding for one in answer["stores"] for finding in one["findings"]]
    assert [row for row in rows if row["type"] == "finding"] == findings
    assert [row["type"] for row in rows].count("summary") == 6
    assert rows[-1] == {"type": "fleet", **answer["fleet"]}
    table = list(csv.DictReader(io.StringIO(rmqtool("verify", f"{fleet}/*", "--format", "csv").out)))
    assert [(row["store"], row["id"]) for row in table] == [(row["store"], row["id"]) for row in findings]


def test_a_screen_has_a_line_for_each_store(fleet: Path) -> None:
    ran = rmqtool("verify", fleet / STORES[2], fleet / "empty", fleet / STORES[0])
    alone_shown = rmqtool("verify", fleet / STORES[2]).out
    assert f"== {fleet / STORES[2]}\n{alone_shown}\n" in ran.out
    assert f"== {fleet / 'empty'}\nNOT A STORE: " in ran.out
    assert f"== {fleet / STORES[0]}" not in ran.out  # nothing to say
    assert [line.split()[0] for line in ran.out.splitlines()[-6:-2]] == ["verdict", "damaged", "not-a-store", "ok"]
    assert ran.out.endswith("\n3 stores: 1 damaged, 1 not-a-store, 1 ok\n")
    assert ran.code == 4
    assert rmqtool("verify", fleet / STORES[2], fleet / STORES[0]).code == 3
    assert rmqtool("verify", f"{fleet}/5.5.0-clean-ba*").code == 0


def test_a_store_with_very_many_findings_is_cut_on_the_screen_only(tmp_path: Path) -> None:
    path, recipe = tmp_path / "store", RECIPES["basic"]
    make_store(recipe, path, "5.5.0")
    unit_file = next(path.glob("consumequeue/*/0/*"))
    unit_file.write_bytes(bytes(range(20)) * (unit_file.stat().st_size // 20))
    one = rmqtool("verify", path).out
    assert " more (--verbose shows all)" in one
    assert one in rmqtool("verify", path, tmp_path).out


@pytest.mark.parametrize(
    "options",
    [("--state", "x"), ("--slice", "1/2"), ("--max-duration", "1s"), ("--sample", "0.5"), ("--junit", "x"),
     ("--sarif", "x"), ("--commitlog", "x"), ("--broker-conf", "x")],
)  # fmt: skip
def test_an_option_that_means_one_store_is_refused(fleet: Path, options: tuple[str, ...]) -> None:
    ran = rmqtool("verify", fleet / STORES[0], fleet / STORES[1], *options)
    assert (ran.code, ran.err) == (2, f"rmqtool: {options[0]} works with one store only\n")


def test_no_store_at_all_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for words in ((f"{tmp_path}/*",), (f"{tmp_path}/b*",), (tmp_path / "a", tmp_path / "b")):
        ran = rmqtool("verify", *words)
        assert (ran.code, ran.out, ran.err.count("\n")) == (4, "", 1)
        assert str(tmp_path) in ran.err


def test_patterns_are_told_from_names(tmp_path: Path) -> None:
    (tmp_path / "st[0]re{a,b}").mkdir()
    several = ["/archive/*/store", "/a/broker-[ab]", "/a/{b,c}/store", "s3://bucket/*/store", "memory://x/{a,b}"]
    single = [str(tmp_path / "st[0]re{a,b}"), "/a/store", "/a/{b}", "s3://[::1]:9000/store", "s3://b/store?region=x*"]
    assert [text for text in several if not name_several([text])] == []
    assert [text for text in single if name_several([text])] == []
    assert name_several(["/a", "/b"])


def test_tasks_need_neither_typer_nor_rich() -> None:
    code = (
        "import sys; sys.modules['typer'] = sys.modules['rich'] = None; import rmqtool.commands.reading.store_answers"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
