"""Imports: the contracts of the rooms hold, the quick commands stay quick, every import is a declared dependency."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"
SLOW_TO_IMPORT = ["numpy", "numba", "llvmlite", "pyarrow", "pyspark"]
STORE = "5.5.0-crashed"

# What a person waits for with a store at hand: each answers before a compiler could start.
QUICK = {
    "info": ["info", STORE],
    "dump-one": ["dump", STORE, "--limit", "1"],
    "get": ["get", STORE, "--topic", "TopicTest", "--queue-id", "0", "--queue-offset", "0"],
}

# Import name, where it is not the name of the distribution.
DISTRIBUTIONS = {"google": "protobuf", "llvmlite": "numba", "py4j": "pyspark"}

# Runs the command line as the console script does, then says on stderr which modules are there.
PROBE = """
import json, sys
from rmqtool.commands.app import main
sys.argv = ["rmqtool", *sys.argv[1:]]
try:
    main()
finally:
    sys.stdout.flush()
    print("modules " + json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def modules_after(*arguments: str, folder: Path = ROOT) -> tuple[int, set[str]]:
    """The exit code of a command line, and what it imported."""
    ran = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    found = re.search(r"^modules (.*)$", ran.stderr, re.MULTILINE)
    assert found, ran.stderr
    return ran.returncode, set(json.loads(found.group(1)))


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT_IMPORTS, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )


def test_contracts_hold() -> None:
    linted = lint_imports(ROOT)
    assert linted.returncode == 0, linted.stdout


def test_contracts_break_on_a_forbidden_import(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "rmqtool", tmp_path / "rmqtool", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    bad = "import rmqtool.verify\nimport rich.table\nimport construct\nimport pyspark\nimport click\n"
    (tmp_path / "rmqtool/scan/upward.py").write_text(bad)
    (tmp_path / "rmqtool/scan/whole_store.py").write_text("import rmqtool.store\n")
    linted = lint_imports(tmp_path)
    assert linted.returncode == 1, linted.stdout
    assert len(re.findall(r" BROKEN\b", linted.stdout)) == 6, linted.stdout


def test_help_imports_nothing_slow() -> None:
    code, modules = modules_after("--help")
    assert code == 0
    assert "typer" in modules
    assert [name for name in [*SLOW_TO_IMPORT, "construct"] if name in modules] == []


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store in it that a real broker wrote before it crashed."""
    folder = tmp_path_factory.mktemp("stores")
    subprocess.run(["tar", "-xJf", ROOT / f"tests/golden/{STORE}.tar.xz", "-C", folder], check=True)
    return folder


@pytest.mark.parametrize("arguments", QUICK.values(), ids=QUICK)
def test_quick_commands_import_nothing_slow(stores: Path, arguments: list[str]) -> None:
    code, modules = modules_after(*arguments, folder=stores)
    assert code == 0
    assert [name for name in SLOW_TO_IMPORT if name in modules] == []


def third_party_imports(folder: Path) -> set[str]:
    """Top-level names imported anywhere below a folder that are neither ours nor Python's."""
    names = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"rmqtool", "pyspark_rocketmq"}


def test_every_import_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    of_users = [line for extra, lines in extras.items() if extra != "dev" for line in lines]
    declared = [*project["dependencies"], *of_users]
    names = {match.group() for line in declared if (match := re.match(r"[\w-]+", line))}
    # The plugin for other projects' tests is loaded by pytest, so it needs none declared.
    imported = third_party_imports(ROOT / "rmqtool") - {"pytest"}
    assert {DISTRIBUTIONS.get(name, name) for name in imported} - names == set()
    assert "construct" in imported


@pytest.mark.parametrize("line", ["import yaml", "from yaml.reader import Reader"])
def test_an_undeclared_import_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.py").write_text(f"import os\ndef late():\n    {line}\n")
    assert third_party_imports(tmp_path) == {"yaml"}
