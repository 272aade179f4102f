"""The project's Python files, parsed once for all tests of how they are written."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Source(NamedTuple):
    """A Python file of the project: its path below the root, its text, and what the text parses to."""

    path: str
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        """The room of a file in the package, or an empty string."""
        parts = self.path.split("/")
        return parts[1] if parts[0] == "rmqtool" and len(parts) > 2 else ""

    @property
    def in_package(self) -> bool:
        return self.path.startswith("rmqtool/")


def source(path: str, text: str) -> Source:
    return Source(path, text, ast.parse(text))


@cache
def project_sources() -> list[Source]:
    """All Python files of the project, parsed once for all rules."""
    paths = [ROOT / "pyspark_rocketmq.py"]
    for folder in ("rmqtool", "tests", "benchmarks"):
        paths += sorted((ROOT / folder).rglob("*.py"))
    return [source(str(path.relative_to(ROOT)), path.read_text("utf-8")) for path in paths if path.exists()]


def package_imports(sources: Iterable[Source]) -> dict[str, set[str]]:
    """Of each module of the package, by its dotted name, those of the package that it imports, wherever that stands."""
    modules = {file.path.removesuffix(".py").replace("/", "."): file for file in sources if file.in_package}
    imports: dict[str, set[str]] = {}
    for module, file in modules.items():
        statements = [node for node in ast.walk(file.tree) if isinstance(node, ast.ImportFrom) and node.module]
        names = {f"{node.module}.{alias.name}" for node in statements for alias in node.names}
        names |= {node.module for node in statements if node.module}
        imports[module] = names & set(modules) - {module}
    return imports
