"""What cannot work fails before the work begins: files that cannot be written, stores that are not there, formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqtool.commands import app
from rmqtool.commands.options import spark
from rmqtool.commands.reading import diff, verify
from rmqtool.commands.repairs import repair_plan
from rmqtool.report.writers import OutputFormat
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.store_state import store_state

STORE = "5.5.0-crashed"


def begun(*_: object, **__: object) -> Any:
    raise AssertionError("the work has begun")


@pytest.mark.parametrize(
    ("module", "work", "command"),
    [
        (verify, "verify_store", ["verify", "STORE", "--junit", "TMP/none/report.xml"]),
        (verify, "verify_store", ["verify", "STORE", "--sarif", "TMP"]),
        (diff, "write_manifest", ["diff", "STORE", "--make-manifest", "TMP/file/manifest"]),
        (repair_plan, "plan_with_sizes", ["recover", "STORE", "--plan", "TMP/none/plan.json"]),
        (repair_plan, "plan_with_sizes", ["recover", "STORE", "--apply", "TMP/none/plan.json", "--yes"]),
        (repair_plan, "plan_with_sizes", ["rebuild", "STORE", "--output", "TMP/file/copy", "--yes"]),
        (repair_plan, "plan_with_sizes", ["recover", "STORE", "--undo-dir", "TMP/file/undo", "--yes"]),
        (spark, "require_java", ["stats", "TMP/none"]),
        (spark, "require_java", ["search", "TMP/none", "pattern"]),
        (spark, "require_java", ["export", "TMP/none", "--to", "TMP/out"]),
        (spark, "require_java", ["export", "STORE", "--to", "TMP/file/out"]),
        (spark, "require_java", ["stats", "TMP/file"]),
    ],
)
def test_what_fails_fails_first(
    module: Any, work: str, command: list[str], golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, work, begun)
    (tmp_path / "file").write_text("kept")
    words = [word.replace("STORE", str(golden(STORE))).replace("TMP", str(tmp_path)) for word in command]
    ran = rmqtool(*words)
    assert (ran.code, ran.out, ran.err.count("\n")) == (4, "", 1), ran.err
    assert str(tmp_path) in ran.err
    assert "internal error" not in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "command",
    [
        "verify STORE --junit", "verify STORE --sarif", "verify STORE --state", "watch STORE --once --textfile",
        "watch STORE --once --state", "diff STORE --make-manifest", "report STORE --html", "evidence STORE --output",
        "extract STORE --topic t --output", "merge STORE --output", "recover STORE --plan", "recover STORE --output",
        "recover STORE --yes --undo-dir", "salvage STORE --export", "export STORE --to",
        "replay STORE --to h:1 --state",
    ],
)  # fmt: skip
def test_a_dash_is_the_name_of_no_file(
    command: str, golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = rmqtool(*command.replace("STORE", str(golden(STORE))).split(), "-")
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert f"{command.rsplit(maxsplit=1)[-1]}: - is not the name of a file" in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        "verify STORE --state", "watch STORE --once --state", "watch STORE --once --textfile",
        "replay STORE --to 127.0.0.1:1 --state", "mirror 127.0.0.1:1 TMP/copy --textfile", "diff STORE --make-manifest",
        "recover STORE --plan", "rebuild STORE --plan", "salvage STORE --plan", "convert STORE --plan",
        "patch STORE/commitlog/00000000000000000000 --at 0 --set flag=3 --plan",
    ],
)  # fmt: skip
@pytest.mark.parametrize("content", ["", "{", "{}\n", '{"format"', "last year's invoices"])
def test_the_file_of_another_program_stays(command: str, content: str, golden: Unpacked, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(content)
    words = command.replace("STORE", str(golden(STORE))).replace("TMP", str(tmp_path)).split()
    ran = rmqtool(*words, tmp_path / "file")
    assert (ran.code, ran.out, ran.err.count("\n")) == (5, "", 1), ran.err
    assert f"{tmp_path / 'file'}: is " in ran.err
    assert (tmp_path / "file").read_text() == content
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_trial_changes_nothing(golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(verify, "verify_store", interrupt)
    (tmp_path / "old.xml").write_text("last week's report")
    before = store_state(tmp_path / "old.xml")
    ran = rmqtool("verify", golden(STORE), "--junit", tmp_path / "old.xml", "--sarif", tmp_path / "new.sarif")
    assert ran.code == 130
    assert store_state(tmp_path / "old.xml") == before
    assert not (tmp_path / "new.sarif").exists()


def format_option(name: str) -> Any:
    (option,) = (parameter for parameter in app.load(name).params if "--format" in parameter.opts)
    return option


@pytest.mark.parametrize("name", ["info", "forecast", "recover", "rebuild", "salvage"])
def test_commands_without_rows_have_no_csv(name: str, golden: Unpacked) -> None:
    assert list(format_option(name).type.choices) == ["table", "json", "jsonl"]
    ran = rmqtool(name, golden(STORE), "--format", "csv")
    assert (ran.code, ran.out) == (2, "")
    assert "'table', 'json', 'jsonl'" in ran.err


@pytest.mark.parametrize("name", ["dump", "get", "verify", "diff", "stats", "search", "append", "undo", "formats"])
def test_commands_with_rows_have_it(name: str) -> None:
    assert list(format_option(name).type.choices) == [*OutputFormat]
