"""The command line as a whole: its list, its help, and how a run ends whatever happens."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest
import typer

import rmqtool
from rmqtool.commands import app
from rmqtool.commands.options.run import with_run_options
from rmqtool.errors import NotAStoreError, RefusedError, RmqtoolError, UsageError
from tests.commands.transcripts import rmqtool as run_command
from tests.conftest import Unpacked

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "rmqtool"]
STORE = "5.5.0-crashed"


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let `info` end with an error."""

    def info() -> None:
        """One line."""
        raise error

    command = typer.Typer(add_completion=False)
    command.command("info")(with_run_options(info))
    monkeypatch.setattr(app, "load", lambda _name: typer.main.get_command(command))


@pytest.mark.parametrize("name", app.COMMANDS)
def test_the_list_says_what_the_docstring_says(name: str) -> None:
    assert (app.load(name).help or "").partition("\n")[0].strip() == app.COMMANDS[name][1]


def test_the_help_lists_every_command_whole() -> None:
    ran = run_command("--help")
    assert ran.code == 0
    for name, (_, short_help) in app.COMMANDS.items():
        assert f" {name} {short_help}" in " ".join(ran.out.split())


def test_a_command_keeps_no_core_busy_with_threads_that_wait() -> None:
    count = "lambda _arguments: __import__('numpy') and len(os.listdir('/proc/self/task'))"
    code = f"import os; from rmqtool.commands import app; app.run = {count}; app.main()"
    own = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, env=own).returncode == 1


def test_the_help_loads_hardly_more_than_typer() -> None:
    """The time itself is measured in `benchmarks/scan.py`: a test that reads a clock fails on a busy machine."""

    def loaded(*arguments: str) -> set[str]:
        code = "import runpy, sys\ntry:\n    " + arguments[0] + "\nexcept SystemExit:\n    pass\nprint(*sys.modules)"
        ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
        return set(ran.stdout.splitlines()[-1].split())

    help_run = "sys.argv = ['rmqtool', '--help']; runpy.run_module('rmqtool', run_name='__main__')"
    own = {name for name in loaded(help_run) - loaded("import typer") if not name.startswith("rmqtool")}
    assert {name.partition(".")[0] for name in own} <= sys.stdlib_module_names | {"typer", "shellingham"}
    assert len(own) < 40, sorted(own)


def test_the_version_is_the_one_of_the_package() -> None:
    assert run_command("--version") == (0, f"rmqtool {rmqtool.__version__}\n", "")


def test_an_unknown_command_is_wrong_usage() -> None:
    ran = run_command("nfo", "x")
    assert (ran.code, ran.out) == (2, "")
    assert "Did you mean 'info'?" in ran.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotAStoreError("no store"), 4),
        (UsageError("wrong"), 2),
        (RefusedError("held"), 5),
        (OSError(errno.EIO, "Input/output error", "a"), 4),
        (MemoryError(), 1),
        (RecursionError("deep"), 1),
        (ValueError("odd"), 1),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_error_is_at_most_a_line_and_a_code(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    raising(monkeypatch, error)
    ran = run_command("info")
    assert (ran.code, ran.out) == (code, "")
    assert "Traceback" not in ran.err
    assert ran.err.count("\n") == 1
    assert all(line.startswith("rmqtool: ") for line in ran.err.splitlines())


def test_verbose_shows_the_stack_and_may_stand_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, ValueError("odd"))
    for words in (["--verbose", "info"], ["info", "-v"]):
        ran = run_command(*words)
        assert ran.code == 1
        assert "Traceback" in ran.err


def test_no_control_code_reaches_the_terminal_through_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, RmqtoolError("a\x1b[31m\nb\udcff\u202e"))
    assert run_command("info").err == "rmqtool: a\\x1b[31m\\nb\\udcff\\u202e\n"


def run_with_output(*arguments: str, stdout: int, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("arguments", [["info", STORE], ["info", STORE, "--format", "json"], ["--help"]])
def test_a_closed_pipe_is_no_error(golden: Unpacked, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ran = run_with_output(*arguments, stdout=writing, folder=golden(STORE).parent)
    finally:
        os.close(writing)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_full_disk_is_one(golden: Unpacked) -> None:
    with Path("/dev/full").open("wb") as full:
        ran = run_with_output("info", STORE, stdout=full.fileno(), folder=golden(STORE).parent)
    assert (ran.returncode, ran.stderr) == (4, "rmqtool: standard output: No space left on device\n")


def test_a_terminal_of_few_characters_gets_escapes(golden: Unpacked) -> None:
    ran = subprocess.run(
        [*PROGRAM, "info", "störe"],
        cwd=golden(STORE).parent,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (4, b"rmqtool: st\\xf6re: no such directory\n")


def test_completion_knows_the_commands() -> None:
    ran = subprocess.run(
        PROGRAM,
        cwd=ROOT,
        env={
            **os.environ,
            "_RMQTOOL_COMPLETE": "complete_bash",
            "COMP_WORDS": "rmqtool in",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.stdout.split() == ["info"]


def test_an_install_compiles_beforehand(tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    shutil.copytree(ROOT / "rmqtool", installed / "rmqtool", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [*PROGRAM, "--compile"]
    ran = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    (folder,) = (installed / "rmqtool/scan/kernels/__pycache__").glob("kernels-*")
    assert (ran.returncode, ran.stdout) == (0, f"compiled; the code is kept in {folder}\n")
    kept = {path.name.partition("-")[0] for path in folder.glob("*/*.nbi")}
    expected = {
        "kernel.walk_block",
        "index_kernel.entries_met",
        "digest_kernel.record_digests",
        "json_kernel.put_rows",
    }
    assert expected <= kept
    for target, _help in app.COMMANDS.values():
        module = installed.joinpath("rmqtool", "commands", *target.partition(":")[0].split(".")).with_suffix(".py")
        assert Path(cache_from_source(module)).exists(), module
