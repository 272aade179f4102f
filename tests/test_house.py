"""The house rules that a linter cannot know, as tests; each rule is also shown to fail on a bad sample."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.sources import Source, project_sources, source

LINE_COLUMNS = 120

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)

# A word that says nothing about what a thing is. The two verbs are banned where they are the verb: `process_records`
# says nothing, but `broker_process` is a noun with a meaning.
EMPTY_VARIABLES = {"each", "found", "made", "said", "taken", "wanted"}
EMPTY_WORDS = {"util", "utils", "common", "helper", "helpers", "manager", "managers"}
EMPTY_VERBS = {"process", "handle", "processor", "handler"}


def words(name: str) -> list[str]:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return [word for word in spaced.lower().split("_") if word]


def at(found: Source, node: ast.AST, what: str) -> str:
    return f"{found.path}:{getattr(node, 'lineno', 1)}: {what}"


def short_lines(found: Source) -> Iterator[str]:
    """A line fits beside another file."""
    for number, line in enumerate(found.text.splitlines(), 1):
        if len(line) > LINE_COLUMNS:
            yield f"{found.path}:{number}: {len(line)} columns, at most {LINE_COLUMNS}"


def first_line(found: Source) -> Iterator[str]:
    """A file begins with a sentence that says what the file is for."""
    docstring = ast.get_docstring(found.tree)
    if docstring is None:
        yield f"{found.path}: no docstring that says what the file is for"
    elif not docstring.split("\n\n")[0].rstrip().endswith((".", ":", "?")):
        yield f"{found.path}: the docstring does not begin with a sentence"


def room_docstrings(found: Source) -> Iterator[str]:
    """A room's __init__ is a docstring and nothing else: a name is imported from the file that owns it."""
    if not (found.room and found.path.endswith("/__init__.py")):
        return
    if ast.get_docstring(found.tree) is None or len(found.tree.body) != 1:
        yield f"{found.path}: a room's __init__ holds a docstring and nothing else"


def telling_names(found: Source) -> Iterator[str]:
    """Modules, classes and functions have names that say what they are."""
    if not found.in_package:
        return
    named: list[tuple[str, ast.AST]] = [(part.removesuffix(".py"), found.tree) for part in found.path.split("/")]
    named += [(node.name, node) for node in ast.walk(found.tree) if isinstance(node, (*FUNCTIONS, ast.ClassDef))]
    for name, node in named:
        parts = words(name)
        if EMPTY_WORDS & set(parts) or (parts and (parts[0] in EMPTY_VERBS or parts[-1] in EMPTY_VERBS - {"process"})):
            yield at(found, node, f"{name} says nothing about what it is")


def telling_variables(found: Source) -> Iterator[str]:
    """A variable says what it holds; a field may be called `found` where the JSON calls it so."""
    if not found.in_package:
        return
    inside = (
        node for function in ast.walk(found.tree) if isinstance(function, FUNCTIONS) for node in ast.walk(function)
    )
    for node in inside:
        name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
        if name in EMPTY_VARIABLES:
            yield at(found, node, f"`{name}` does not say what it holds")


def kinds_of_offset(found: Source) -> Iterator[str]:
    """No parameter is called `offset` alone: it is a physical_offset, a queue_offset or a file_position."""
    if not found.in_package:
        return
    for node in ast.walk(found.tree):
        if isinstance(node, ast.arg) and node.arg in {"offset", "offsets"}:
            yield at(found, node, f"parameter `{node.arg}` does not say which of the three kinds of offset it is")


def silence(found: Source) -> Iterator[str]:
    """Nothing below report prints."""
    if not found.in_package or found.room in {"commands", "report"}:
        return
    for node in ast.walk(found.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield at(found, node, "print below report")
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"sys.stdout", "sys.stderr"}:
            yield at(found, node, f"{ast.unparse(node)} below report")


def environment(found: Source) -> Iterator[str]:
    """Nothing below commands reads or sets an environment variable, but for the place of the user's cache."""
    if not found.in_package or found.room == "commands" or found.path.endswith("code_cache.py"):
        return
    names = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    for node in ast.walk(found.tree):
        if isinstance(node, ast.Attribute) and node.attr in names and ast.unparse(node.value) == "os":
            yield at(found, node, f"{ast.unparse(node)} below commands")
        if isinstance(node, ast.ImportFrom) and node.module == "os" and names & {alias.name for alias in node.names}:
            yield at(found, node, "environment imported below commands")


def global_state(found: Source) -> Iterator[str]:
    """No function rebinds a global of its module."""
    if not found.in_package:
        return
    for node in ast.walk(found.tree):
        if isinstance(node, ast.Global):
            yield at(found, node, f"global {', '.join(node.names)}")


def _names_a_version(node: ast.expr) -> bool:
    text = ast.unparse(node)
    return "version" in words(re.sub(r"\W+", "_", text)) and "sys.version_info" not in text


def _is_version_text(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(map(_is_version_text, node.elts))
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return False
    return re.fullmatch(r"[45]\.[\d.]*", node.value) is not None


def _is_version_tuple(node: ast.expr) -> bool:
    items = node.elts if isinstance(node, ast.Tuple | ast.List) else []
    return len(items) > 1 and all(isinstance(item, ast.Constant) and type(item.value) is int for item in items)


def versions_as_data(found: Source) -> Iterator[str]:
    """Broker versions are compared in one file only; elsewhere a switch of their description is asked."""
    if not found.in_package or found.path == "rmqtool/engine/rules/versions.py":
        return
    for node in ast.walk(found.tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            ordered = any(isinstance(operator, ORDERINGS) for operator in node.ops)
            about_versions = any(map(_names_a_version, sides))
            compared = about_versions and (ordered or any(map(_is_version_tuple, sides)))
            compared = compared or any(map(_is_version_text, sides))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            compared = node.func.attr == "startswith" and any(map(_is_version_text, node.args))
        else:
            continue
        if compared:
            yield at(found, node, f"compares a version: {ast.unparse(node)}")


def versions_in_tables(found: Source) -> Iterator[str]:
    """Only tables of rules, formats and findings name a version; what programs say of one follows from the rules."""
    tables = ("rmqtool/engine/rules/", "rmqtool/findings/", "rmqtool/formats/")
    if not found.in_package or found.path.startswith(tables):
        return
    docstrings = {id(node.value) for node in ast.walk(found.tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(found.tree):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)) or id(node) in docstrings:
            continue
        if version := re.search(r"(?<![.:\w])[45]\.\d+\.\d+", node.value):
            yield at(found, node, f"names version {version.group()}")


def no_pickles(found: Source) -> Iterator[str]:
    """What the package reads runs nothing: a pickle in a store, or where others may write, would."""
    if not found.in_package:
        return
    for number, line in enumerate(found.text.splitlines(), 1):
        if re.search(r"\b(import|from) (pickle|marshal|shelve|dill|cloudpickle)\b|allow_pickle=True", line):
            yield f"{found.path}:{number}: {line.strip()}"


def no_reminders(found: Source) -> Iterator[str]:
    """What is in the package is finished: no reminders, no bodies to be written later."""
    if not found.in_package:
        return
    for number, line in enumerate(found.text.splitlines(), 1):
        if reminder := re.search(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError|NotImplemented)\b", line):
            yield f"{found.path}:{number}: {reminder.group()}"


RULES: list[Callable[[Source], Iterator[str]]] = [
    short_lines,
    first_line,
    room_docstrings,
    telling_names,
    telling_variables,
    kinds_of_offset,
    silence,
    environment,
    global_state,
    versions_as_data,
    versions_in_tables,
    no_pickles,
    no_reminders,
]

DOC = '"""Says what it is for."""\n'


def test_a_class_name_means_one_class() -> None:
    files: dict[str, list[str]] = {}
    for file in project_sources():
        if file.in_package:
            for node in ast.walk(file.tree):
                if isinstance(node, ast.ClassDef):
                    files.setdefault(node.name, []).append(file.path)
    assert {name: paths for name, paths in files.items() if len(paths) > 1} == {}


BAD: list[tuple[Callable[[Source], Iterator[str]], str, str]] = [
    (short_lines, "benchmarks/a.py", DOC + "#" * 121),
    (first_line, "rmqtool/scan/a.py", "A = 1\n"),
    (first_line, "rmqtool/scan/a.py", '"""scan things"""\n'),
    (first_line, "rmqtool/scan/a.py", '"""scan things\n\nA longer text."""\n'),
    (room_docstrings, "rmqtool/scan/__init__.py", DOC + "from rmqtool.scan.walk import walk\n"),
    (room_docstrings, "rmqtool/scan/__init__.py", "# empty\n"),
    (telling_variables, "rmqtool/scan/a.py", DOC + "def count() -> None:\n    found = 1\n"),
    (telling_variables, "rmqtool/scan/a.py", DOC + "def add(said: int) -> int: ...\n"),
    (telling_names, "rmqtool/scan/utils.py", DOC),
    (telling_names, "rmqtool/store/path_helpers.py", DOC),
    (telling_names, "rmqtool/store/a.py", DOC + "class LockManager: ...\n"),
    (telling_names, "rmqtool/store/a.py", DOC + "def process_records(): ...\n"),
    (telling_names, "rmqtool/store/a.py", DOC + "class Reader:\n    def handle(self): ...\n"),
    (kinds_of_offset, "rmqtool/store/a.py", DOC + "def read(offset: int): ...\n"),
    (kinds_of_offset, "rmqtool/store/a.py", DOC + "f = lambda *, offset: offset\n"),
    (silence, "rmqtool/verify/a.py", DOC + "print('found')\n"),
    (silence, "rmqtool/errors.py", DOC + "import sys\nsys.stderr.write('found')\n"),
    (environment, "rmqtool/report/a.py", DOC + "import os\nos.environ['NO_COLOR']\n"),
    (environment, "rmqtool/scan/a.py", DOC + "from os import getenv\n"),
    (global_state, "rmqtool/scan/a.py", DOC + "n = 0\ndef count():\n    global n\n    n = 1\n"),
    (versions_as_data, "rmqtool/forecast/a.py", DOC + "def f(version):\n    return version >= (5, 3, 2)\n"),
    (versions_as_data, "rmqtool/forecast/a.py", DOC + "def f(broker):\n    return broker.version < other\n"),
    (versions_as_data, "rmqtool/forecast/a.py", DOC + "def f(v):\n    return v.startswith('5.')\n"),
    (versions_as_data, "rmqtool/forecast/a.py", DOC + "def f(v):\n    return v.startswith(('4.', '5.4'))\n"),
    (versions_as_data, "rmqtool/forecast/a.py", DOC + "def f(broker_version):\n    return broker_version == '5.5.0'\n"),
    (versions_as_data, "rmqtool/forecast/a.py", DOC + "def f(v):\n    return v == '4.9.7'\n"),
    (versions_in_tables, "rmqtool/forecast/a.py", DOC + "note = f'{path}: brokers from 5.5.0 on do not start'\n"),
    (no_pickles, "rmqtool/repair/a.py", DOC + "import pickle\n"),
    (no_pickles, "rmqtool/repair/a.py", DOC + "from marshal import loads\n"),
    (no_pickles, "rmqtool/repair/a.py", DOC + "found = numpy.load(file, allow_pickle=True)\n"),
    (no_reminders, "rmqtool/scan/a.py", DOC + "# TODO: later\n"),
    (no_reminders, "rmqtool/scan/a.py", DOC + "def f():\n    raise NotImplementedError\n"),
    (no_reminders, "rmqtool/scan/a.py", DOC + "A = 1  # XXX\n"),
]

GOOD: list[tuple[str, str]] = [
    ("rmqtool/scan/__init__.py", DOC),
    ("rmqtool/engine/rules/versions.py", DOC + "def f(version):\n    return version >= (5, 3, 2)\n"),
    ("rmqtool/formats/a.py", DOC + "import sys\nNEW = sys.version_info >= (3, 12)\nSCHEDULE = 'SCHEDULE_TOPIC_XXXX'\n"),
    ("rmqtool/formats/a.py", DOC + "def ratio(a):\n    return a == 5.0 or a == 4 or a.shape == (4, 5)\n"),
    ("rmqtool/store/a.py", DOC + "def broker_process(physical_offset, reconversion, file_position): ...\n"),
    ("rmqtool/commands/a.py", DOC + "import os\ncolour = 'NO_COLOR' in os.environ\nprint(colour)\n"),
    ("tests/a.py", DOC + "def handle(offset):\n    print(offset)\n"),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_holds(rule: Callable[[Source], Iterator[str]]) -> None:
    broken = [line for found in project_sources() for line in rule(found)]
    assert not broken, f"{rule.__doc__}\n" + "\n".join(broken)


@pytest.mark.parametrize(("rule", "path", "text"), BAD, ids=lambda value: getattr(value, "__name__", ""))
def test_rule_finds_a_bad_sample(rule: Callable[[Source], Iterator[str]], path: str, text: str) -> None:
    assert list(rule(source(path, text)))


@pytest.mark.parametrize(("path", "text"), GOOD, ids=lambda value: value if value.endswith(".py") else "")
def test_rules_pass_a_good_sample(path: str, text: str) -> None:
    assert [line for rule in RULES for line in rule(source(path, text))] == []


def test_every_rule_has_a_bad_sample() -> None:
    assert {rule for rule, _, _ in BAD} == set(RULES)


WITH_OWN_TESTS = ("formats", "answer")
"""Rooms each of whose files has a test of its own."""
TESTED_THROUGH_OTHERS = {
    "rmqtool/formats/dledger.py": "declares; tests/formats/test_layout.py reads every declared format",
    "rmqtool/formats/pop.py": "declares; tests/formats/test_text_formats.py reads it",
    "rmqtool/formats/replication.py": "declares; tests/formats/test_layout.py reads every declared format",
    "rmqtool/answer/beside_log.py": "reads side state: tests/commands/reading/test_forecast_effects.py",
    "rmqtool/answer/diff_answer.py": "needs a comparison: tests/commands/reading/test_diff_judgement.py",
    "rmqtool/answer/exit_codes.py": "declares; docs/exit-codes.md and every test of a command read it",
    "rmqtool/answer/info_answer.py": "needs a whole store: tests/commands/reading/test_info.py",
    "rmqtool/answer/plan_answer.py": "needs a plan: tests/commands/test_closing_advice.py",
    "rmqtool/answer/presence.py": "is about files and permissions: tests/commands/test_permissions.py",
}
OWN_TESTS_MIN = 230
"""Files of the package that have a test of their own; there may only be more, unless file and test go together."""


def own_test(path: str) -> str:
    """Where the test of a file of the package belongs: that of `rmqtool/a/b.py` is `tests/a/test_b.py`."""
    room, _, name = path.removeprefix("rmqtool/").rpartition("/")
    return "/".join(part for part in ("tests", room, f"test_{name}") if part)


def without_test(sources: Iterable[Source]) -> list[str]:
    """Files of the package that have no test of their own."""
    paths = {file.path for file in sources}
    modules = [path for path in paths if path.startswith("rmqtool/") and not path.endswith("/__init__.py")]
    return sorted(path for path in modules if own_test(path) not in paths)


def test_files_of_small_rooms_have_tests_of_their_own() -> None:
    missing = {path for path in without_test(project_sources()) if path.split("/")[1] in WITH_OWN_TESTS}
    assert missing == TESTED_THROUGH_OTHERS.keys()


def test_no_file_loses_its_own_test() -> None:
    modules = [file for file in project_sources() if file.in_package and not file.path.endswith("/__init__.py")]
    assert len(modules) - len(without_test(project_sources())) >= OWN_TESTS_MIN


def test_a_file_without_a_test_is_found() -> None:
    files = ("rmqtool/a.py", "tests/test_a.py", "rmqtool/scan/b.py", "tests/scan/test_b.py", "rmqtool/scan/c.py")
    assert without_test(source(path, DOC) for path in files) == ["rmqtool/scan/c.py"]


def test_the_rules_look_at_files() -> None:
    assert sum(found.in_package for found in project_sources()) > 10
