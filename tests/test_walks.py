"""CONTRIBUTING leads through the files in an order that their imports have too."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECTION = (ROOT / "CONTRIBUTING.md").read_text().partition("### The walks")[2].partition("\n## ")[0]
WALKS = {
    row[0]: re.findall(r"`([^`]+)`", row[1]) for row in re.findall(r"^\| (.+?) \| (`.+`) \|$", SECTION, re.MULTILINE)
}


def imported_by(path: Path) -> set[str]:
    """Files of the package that a file imports, inside functions too, as the walks name them."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name.removeprefix("rmqtool.").replace(".", "/") for name in names if name.startswith("rmqtool.")}


def test_there_are_walks() -> None:
    assert len(WALKS) == 5


@pytest.mark.parametrize("name", WALKS)
def test_each_file_of_a_walk_is_imported_by_one_before_it(name: str) -> None:
    first, *rest = WALKS[name]
    known = imported_by(ROOT / "rmqtool" / f"{first}.py")
    for file in rest:
        assert file in known, f"{file} is not imported by a file before it"
        known |= imported_by(ROOT / "rmqtool" / f"{file}.py")
