"""Budgets of the house: how much of it a reader meets on a walk, and how finely it is cut; each may only fall."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conftest import Unpacked
from tests.sources import Source, package_imports, project_sources, source

PACKAGE = Path(__file__).resolve().parent.parent / "rmqtool"

LINES_MAX = 70_300
SHORT_FUNCTION_LINES = 4
SHORT_FUNCTIONS_MAX = 1_230
"""Every third: in fourteen packages that this environment installs (mypy, rich, fsspec, textual, pyiceberg and others)
39 to 66 of a hundred are. Some 320 are properties, 120 special methods, 70 members of protocols."""
OWN_FILE_LINES_MIN = 100
"""Lines of a file that one other file alone imports, from which on it is a page of its own."""
OWN_FILES = {
    "rmqtool/answer/": "each is the answer to one command",
    "rmqtool/commands/": "each is a command, which is loaded when it is typed",
    "rmqtool/dump/": "each reads one kind of file, and is imported when that is to be shown",
    "rmqtool/findings/": "each is one chapter of the catalogue, which `registry` joins",
    "rmqtool/fixtures/damages/": "each is one kind of damage, which the catalogue of damages joins",
    "rmqtool/fixtures/recipe": "each is a recipe, or what a store that is made of one must come to",
    "rmqtool/report/check_formats": "what `verify` says to CI systems, as its screen says it to people",
    "rmqtool/report/screens/": "each is the screen of the command of its name",
    "rmqtool/scan/kernels/": "each is compiled by itself, when it is first called",
}
"""Where a short file with one importer is a row of a table."""

WINGS = frozenset(
    {
        *("replay", "replication", "watch", "extract", "evidence", "pipeline", "browse", "decoders", "fixtures"),
        "remoting",
    }
)
"""Rooms beside the core, which never imports one: what they grow by is no burden to whoever reads a walk."""

WALKS = {
    "dump": (("dump", "{store}", "--limit", "1"), "5.5.0-clean-basic", 55),
    "verify": (("verify", "{store}"), "5.5.0-damage-cq-entry-wrong-tag", 120),
    "recover": (("recover", "{store}", "--dry-run"), "5.5.0-crashed", 160),
    "salvage": (("salvage", "{store}", "--dry-run"), "5.5.0-damage-flip-body-earlier-file", 180),
}
"""Of each walk the command line, the store, and how many files it may enter."""

WALKED = """
import sys, threading

root, files = sys.argv[1], set()

def is_imported(frame):
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(root):
            return True
        frame = frame.f_back
    return False

def note(frame, event, _):
    path = frame.f_code.co_filename
    if event == "call" and path.startswith(root) and path not in files and not is_imported(frame):
        files.add(path)

from rmqtool.commands.app import run

sys.setprofile(note)
threading.setprofile(note)
try:
    run(sys.argv[2:])
except SystemExit:
    pass
finally:
    sys.setprofile(None)
    print(*sorted(files), sep="\\n", file=sys.stderr)
"""
"""Runs a command line and prints the files of a folder of which a function was called, but not to import them."""


def files_entered(arguments: Iterable[str]) -> list[str]:
    command = [sys.executable, "-c", WALKED, str(PACKAGE), *arguments]
    ran = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
    return [line for line in ran.stderr.splitlines() if line.startswith(str(PACKAGE))]


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_enters_few_files(walk: str, golden: Unpacked) -> None:
    words, name, files_max = WALKS[walk]
    entered = files_entered(word.format(store=golden(name)) for word in words)
    assert str(PACKAGE / "engine" / "rules" / "versions.py") in entered, "the walk was not seen"
    assert len(entered) <= files_max, "\n".join(entered)


def package_sources() -> list[Source]:
    return [file for file in project_sources() if file.in_package]


def core_sources() -> list[Source]:
    return [file for file in package_sources() if Path(file.path).parts[1] not in WINGS]


def test_the_core_has_few_lines() -> None:
    assert sum(file.text.count("\n") for file in core_sources()) <= LINES_MAX


def short_functions(files: Iterable[Source]) -> list[str]:
    """Functions whose body, without its docstring, has few lines."""
    short = []
    for file in files:
        for node in ast.walk(file.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[ast.get_docstring(node) is not None :]
                lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
                short += [f"{file.path}: {node.name}"] if lines < SHORT_FUNCTION_LINES else []
    return short


def test_few_functions_are_short() -> None:
    assert len(short_functions(core_sources())) <= SHORT_FUNCTIONS_MAX


def test_a_short_function_is_counted() -> None:
    text = (
        'def short():\n    """Say."""\n    return 1\ndef long():\n    a = 1\n    b = 2\n    c = 3\n    return a, b, c\n'
    )
    assert short_functions([source("rmqtool/a.py", text)]) == ["rmqtool/a.py: short"]


def small_files_of_one(files: Iterable[Source]) -> list[str]:
    """Small files that one file of the package alone imports."""
    files, importers = list(files), defaultdict[str, set[str]](set)
    for module, imports in package_imports(files).items():
        for other in imports:
            importers[other].add(module)
    return [
        file.path
        for file in files
        if len(importers[file.path.removesuffix(".py").replace("/", ".")]) == 1
        and file.text.count("\n") < OWN_FILE_LINES_MIN
        and not file.path.startswith(tuple(OWN_FILES))
    ]


def test_no_small_file_serves_one_other_alone() -> None:
    assert small_files_of_one(package_sources()) == []


def test_a_small_file_of_one_other_is_seen() -> None:
    files = [source("rmqtool/a.py", "from rmqtool.b import c\n"), source("rmqtool/b.py", "c = 1\n")]
    assert small_files_of_one(files) == ["rmqtool/b.py"]
