"""Plain English in all that people read: pages, help texts, and the strings of the package.

A word is retired because the field has a better one; `RETIRED` says which. Docstrings and comments have to do without
`IN_CODE_TOO`. Tables of findings in docs that report runs of the past are not looked at.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
REPORTS = {"campaigns.md", "fuzz.md", "judge.md", "test-full.md"}
"""Pages that tell of runs on certain days."""

RETIRED: dict[str, tuple[str, str]] = {
    r"anew": ("again, rebuild", "The index is built anew"),
    r"mend(s|ed|ing)?": ("repair", "what mends it"),
    r"(take|takes|taken) back|takes? (it|the repair) back": ("roll back", "it can be taken back"),
    r"held against": ("compared with", "two stores held against each other"),
    r"made whole": ("complete", "it is made whole"),
    r"nobody was asked": ("confirmation required", "nobody was asked"),
    r"so many": ("number of", "So many messages"),
    r"what becomes of": ("how ... is handled", "What becomes of damage"),
    r"(is|are) told by": ("see, run", "what it costs is told by"),
    r"in the place of": ("replaces", "stands in the place of it"),
    r"answers [a-z]+\.[a-z-]+": ("fix", "answers consumequeue.zero-file"),
    r"(?<!lag )(?<!lags )behind": ("after, past the end of", "records behind the end"),
    r"in front of": ("before", "units in front of the log"),
    r"heads?(?!: )": ("header", "the record's head"),
    r"(the|its|[a-z]+'s) begin": ("start", "from the file's begin on"),
    r"donors?": ("replica", "a donor's bytes"),
    r"for ever": ("forever", "waits for ever"),
    r"throws? away|thrown away": ("discard", "messages that a broker throws away"),
    r"(plan|that|messages) (gives? up|given up)": ("discard", "a plan that gives up messages"),
    r"(?<!the )(?<!one )(pass|passes|passed) over": ("skip", "consumers pass over it"),
    r"goes on|go on": ("continue", "the dump goes on"),
    r"(lies|lie) (in|at|there|behind|inside|outside)": ("is in", "where it lies in the log"),
    r"stands? (in|at|there|beside)": ("is in", "it stands in the queue"),
    r"nothing tells|tells of": ("nothing shows", "nothing tells the size"),
    r"leads? (out of|over)": ("points outside, reaches past the end of", "it leads out of the store"),
    r"(?<!there )is no [a-z]+": ("is not a", "it is no size"),
    r"sound (store|record|log)s?": ("intact", "a sound store"),
    r"(?<!not )looked at": ("checked, read", "what was looked at"),
    r"neighbours?|recognis(e|ed|es)|behaviour|colours?|catalogues?": ("American spelling", "its neighbour"),
    r"kept in RocksDB": ("in RocksDB", "queues are kept in RocksDB"),
    r"commitlog(?![-./\w])": ("commit log in prose, `commitlog/` for the directory", "in the commitlog"),
    r"1 (messages|records|entries|units|files|changes|findings)": ("a plural that agrees", "1 entries twice"),
}
IN_CODE_TOO = [
    r"anew",
    r"mend(s|ed|ing)?",
    r"held against",
    r"what becomes of",
    r"in the place of",
    r"in front of",
    r"heads?(?!: )",
    r"(the|its|[a-z]+'s) begin",
    r"donors?",
    r"for ever",
    r"(?<!the )(?<!one )(pass|passes|passed) over",
    r"goes on|go on",
    r"neighbours?|recognis(e|ed|es)|behaviour|colours?|catalogues?",
]
"""The words that docstrings and comments do not use either."""
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def retired_in(text: str, patterns: Iterable[str] = RETIRED) -> list[str]:
    """Retired words with what is said instead."""
    return [
        f"{match.group()!r}: {RETIRED[pattern][0]}"
        for pattern in patterns
        for match in re.finditer(rf"(?<![-\w/.{{])(?:{pattern})(?![-\w])", text, re.IGNORECASE)
    ]


def prose(page: Path) -> str:
    """A page without its code."""
    return CODE.sub("`code`", page.read_text("utf-8"))


def shown_strings(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module that may reach a person, without docstrings and what follows an assertion."""
    tree = ast.parse(path.read_text("utf-8"))
    unseen: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            unseen.add(id(node.value))
        if isinstance(node, ast.Assert) and node.msg is not None:
            unseen.update(map(id, ast.walk(node.msg)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in unseen and " " in str(node.value).strip():
            yield node.lineno, str(node.value)


def command_docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings that `--help` shows: those with an example."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and "\nExample: rmqtool" in (text := ast.get_docstring(node) or ""):
            yield node.lineno, text


def code_prose(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a module, with their lines."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").glob("*.md") if page.name not in REPORTS)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_no_retired_words(page: Path) -> None:
    assert retired_in(prose(page)) == []


def test_what_the_package_says_has_no_retired_words() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {words}"
        for path in sorted((ROOT / "rmqtool").rglob("*.py"))
        for number, text in shown_strings(path)
        if (words := retired_in(CODE.sub("`code`", text)))
    ]
    assert not wrong, "\n".join(wrong)


def test_docstrings_and_comments_have_none_of_the_worst() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {words}"
        for path in sorted((ROOT / "rmqtool").rglob("*.py"))
        for number, text in code_prose(path)
        if (words := retired_in(CODE.sub("`code`", text), IN_CODE_TOO))
    ]
    assert not wrong, "\n".join(wrong)


def test_help_has_no_retired_words() -> None:
    texts = [
        (path, text)
        for path in sorted((ROOT / "rmqtool" / "commands").rglob("*.py"))
        for _, text in command_docstrings(path)
    ]
    assert len(texts) > 10
    assert [f"{path.name}: {words}" for path, text in texts if (words := retired_in(CODE.sub("`code`", text)))] == []


@pytest.mark.parametrize("pattern", RETIRED)
def test_a_retired_word_is_found(pattern: str) -> None:
    _, sample = RETIRED[pattern]
    assert retired_in(sample)


@pytest.mark.parametrize(
    "text",
    [
        "consumequeue.behind-log",
        "--commitlog DIR",
        "STORE/commitlog/0",
        "1 entry",
        "header",
        "begins",
        "no number",
        "{head}",
    ],
)
def test_other_words_pass(text: str) -> None:
    assert retired_in(text) == []
