"""Without any extra, so without numba, every command on files does its work; a large log is read with a warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.commands.command_list import COMMANDS
from tests.conftest import Unpacked
from tests.packaging.environments import run

CRASHED, DAMAGED = "5.5.0-crashed", "5.5.0-damage-zero-hole-abort"


@pytest.mark.parametrize("name", ["numba", "llvmlite", "pyarrow", "pytest"])
def test_it_has_no_compiler_and_no_tool_of_ours(slim: Path, tmp_path: Path, name: str) -> None:
    assert f"No module named '{name}'" in run([slim / "python", "-c", f"import {name}"], tmp_path).stderr


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (0, ["info", CRASHED]),
        (0, ["dump", CRASHED, "--limit", "2", "--body", "text"]),
        (3, ["verify", DAMAGED]),
        (3, ["forecast", DAMAGED]),
        (3, ["recover", CRASHED, "--dry-run"]),
        (3, ["salvage", DAMAGED, "--dry-run"]),
        (0, ["get", CRASHED, "--topic", "TopicTest", "--queue-id", "0", "--queue-offset", "0"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands_answer_without_a_word_on_what_is_missing(
    slim: Path, golden: Unpacked, tmp_path: Path, code: int, arguments: list[str]
) -> None:
    command = [arguments[0], str(golden(arguments[1])), *arguments[2:]]
    ran = run([slim / "rmqtool", *command], tmp_path)
    assert (ran.returncode, ran.stderr) == (code, "")
    assert ran.stdout


def test_stores_are_compared_record_by_record(slim: Path, golden: Unpacked, tmp_path: Path) -> None:
    ran = run([slim / "rmqtool", "diff", golden(CRASHED), golden(DAMAGED)], tmp_path)
    assert (ran.returncode, ran.stderr) == (3, "")
    assert "TopicTest" in ran.stdout


def test_every_command_shows_its_help(slim: Path, tmp_path: Path) -> None:
    """So its module needs no extra: what does is imported where it is used."""
    imports = "from rmqtool.commands.app import load; from rmqtool.commands.command_list import COMMANDS"
    script = f"{imports}; print(sum(load(name) is not None for name in COMMANDS))"
    ran = run([slim / "python", "-c", script], tmp_path)
    assert (ran.stdout, ran.stderr) == (f"{len(COMMANDS)}\n", "")


def test_a_repair_is_applied_and_rolled_back(slim: Path, golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy(CRASHED)
    codes = [
        run([slim / "rmqtool", *words], tmp_path).returncode
        for words in (["recover", store, "--yes"], ["verify", store], ["undo", store, "--yes"], ["verify", store])
    ]
    assert codes == [0, 0, 0, 3]


def test_a_large_log_is_read_with_one_warning(slim: Path, golden: Unpacked, tmp_path: Path) -> None:
    lowered = (
        "import rmqtool.scan.log as log; log.COMPILED_FROM_BYTES = 1; from rmqtool.commands.app import main; main()"
    )
    ran = run([slim / "python", "-c", lowered, "verify", golden(CRASHED)], tmp_path)
    assert ran.returncode == 3
    assert ran.stderr.count("numba does not load here") == 1
    assert "pip install '.[fast]'" in ran.stderr
    quiet = run([slim / "python", "-c", lowered, "--quiet", "verify", golden(CRASHED)], tmp_path)
    assert (quiet.returncode, quiet.stderr) == (3, "")
