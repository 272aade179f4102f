"""Imports: the contracts of the rooms hold, the quick commands stay quick, no files import each other,
each import is a declared dependency.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.sources import ROOT, Source, package_imports, project_sources, source

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
        timeout=600,
    )
    found = re.search(r"^modules (.*)$", ran.stderr, re.MULTILINE)
    assert found, ran.stderr
    return ran.returncode, set(json.loads(found.group(1)))


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT_IMPORTS, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False, timeout=600
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


def importable(module: str) -> list[str]:
    """A dotted name and every package above it."""
    parts = module.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def unreachable(sources: list[Source]) -> list[str]:
    """Modules of the package that nothing imports, be it by statement or by their dotted name in a string."""
    modules = {found.path.removesuffix(".py").replace("/", "."): found for found in sources if found.in_package}
    reached = {"rmqtool.__main__", "rmqtool.commands.app"}  # by `python -m rmqtool` and the console script
    for found in sources:
        own = found.path.removesuffix(".py").replace("/", ".")
        seen: list[str] = []
        for node in ast.walk(found.tree):
            if isinstance(node, ast.Import):
                seen += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                seen += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                module, colon, _ = node.value.partition(":")
                if module.startswith("rmqtool."):
                    seen.append(module)
                elif colon and re.fullmatch(r"[a-z_.]+", module):  # of its own room
                    seen.append(f"{own.rpartition('.')[0]}.{module}")
        reached.update(name for module in seen for name in importable(module) if name != own)
    return sorted(name for name in modules if name not in reached and not name.endswith("__init__"))


def test_every_module_is_reachable() -> None:
    assert unreachable(project_sources()) == []


def test_an_unreachable_module_is_found() -> None:
    alone = source("rmqtool/scan/alone.py", "import rmqtool.scan.alone\n")
    used = source("rmqtool/scan/used.py", "")
    user = source("tests/test_a.py", "from rmqtool.scan import used\n")
    assert unreachable([alone, used, user]) == ["rmqtool.scan.alone"]


def import_circle(sources: Iterable[Source]) -> list[str]:
    """Modules of the package of which each imports the next, and the last is the first; wherever the import stands."""
    try:
        TopologicalSorter(package_imports(sources)).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_files_import_each_other() -> None:
    assert import_circle(project_sources()) == []


@pytest.mark.parametrize(
    "statement", ["from {0} import A", "def f():\n    from {0} import A", "from rmqtool.scan import a"]
)
def test_a_circle_of_imports_is_found(statement: str) -> None:
    first = source("rmqtool/scan/a.py", "from rmqtool.scan.b import B\n")
    second = source("rmqtool/scan/b.py", statement.format("rmqtool.scan.a") + "\n")
    assert set(import_circle([first, second])) == {"rmqtool.scan.a", "rmqtool.scan.b"}
    assert import_circle([first]) == []


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Where things go")[2].partition("\n### ")[0]
CONTRACTS = {
    contract["id"]: [set(layer.replace(" ", "").split("|")) for layer in contract["layers"]]
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    if contract["type"] == "layers"
}


def test_contributing_lists_the_rooms_of_the_contract() -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (?:(?! > )[^|])+ \|$", CONTRIBUTING, re.MULTILINE)
    assert [set(re.findall(r"\w+", row)) for row in rows] == CONTRACTS["rooms"]


@pytest.mark.parametrize("room", [name for name in CONTRACTS if name != "rooms"])
def test_contributing_lists_the_rooms_within(room: str) -> None:
    (row,) = re.findall(rf"^\| `{room}` \| (.+ > .+) \|$", CONTRIBUTING, re.MULTILINE)
    assert [set(re.findall(r"\w+", layer)) for layer in row.split(" > ")] == CONTRACTS[room]
