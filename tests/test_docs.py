"""Documentation keeps up: every command has help with an example and a page, and pages name only what exists."""

from __future__ import annotations

import fnmatch
import functools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
README = ROOT / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PLAIN = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "80", "PYTHONPATH": str(ROOT)}


def rmqtool(*arguments: str, folder: Path = ROOT, columns: int = 80) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rmqtool", *arguments],
        cwd=folder,
        env={**os.environ, **PLAIN, "COLUMNS": str(columns)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def without_frame(text: str) -> list[str]:
    """The lines of a help text without the boxes drawn around its tables."""
    return [line.strip(" │|╭╮╰╯─+-") if set(line) & set("│╭╰") else line.strip() for line in text.splitlines()]


@functools.cache
def help_text(command: str = "") -> str:
    ran = rmqtool(*command.split(), "--help", columns=200)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@functools.cache
def commands() -> tuple[str, ...]:
    """The commands that `rmqtool --help` lists."""
    _, _, listed = help_text().partition("Commands")
    return tuple(
        match.group(1) for line in without_frame(listed) if (match := re.match(r"([a-z][a-z-]*)(\s{2,}|$)", line))
    )


def options(command: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", help_text(command)))


def described(command: str) -> list[str]:
    """The paragraphs of a command's help between the usage line and its tables."""
    text = re.split(r"^.*(?:╭|Arguments:|Options:)", help_text(command), maxsplit=1, flags=re.MULTILINE)[0]
    paragraphs = re.split(r"\n\s*\n", text.partition("Usage:")[2])
    return [" ".join(paragraph.split()) for paragraph in paragraphs[1:] if paragraph.strip()]


def code_lines(page: Path) -> list[str]:
    """Lines of a page's code blocks, continued lines joined; of a transcript the commands, not what they say."""
    blocks = re.findall(r"^```(sh|console)\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    lines = [(kind, line) for kind, block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for kind, line in lines if kind == "sh" or line.startswith("$ ")]


def invocations(text: str) -> list[list[str]]:
    """The rmqtool command lines in a line of shell: what stands between pipes, semicolons and redirections."""
    found = []
    for part in re.split(r"[|;&>]", text):
        words = shlex.split(part.removeprefix("$").strip(), comments=True)
        if words and Path(words[0]).name == "rmqtool" and words[1:]:
            found.append(words[1:])
    return found


def unknown(words: list[str]) -> list[str]:
    """What a command line names that does not exist."""
    if words[0].startswith("-"):
        return sorted(set(words) - options(""))
    if words[0] not in commands():
        return [words[0]]
    known = options(words[0])
    if "Commands:" in help_text(words[0]) and words[1:] and not words[1].startswith("-"):
        known |= options(" ".join(words[:2]))
    return sorted({word.partition("=")[0] for word in words if word.startswith("--")} - known)


def documented_lines() -> list[tuple[str, str]]:
    """Every command line that a page shows, in a block or in the middle of a sentence."""
    lines = []
    for page in PAGES:
        inline = re.findall(r"`(rmqtool [^`]+)`", page.read_text("utf-8"))
        shown = [line for line in [*code_lines(page), *inline] if "<" not in line and "…" not in line]
        lines += [(page.name, shlex.join(words)) for line in shown for words in invocations(line)]
    return lines


def transcripts(page: Path) -> list[tuple[str, str]]:
    """Command and output of each `console` block of a page."""
    blocks = re.findall(r"^```console\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    steps = [step for block in blocks for step in re.split(r"^\$ ", block, flags=re.MULTILINE) if step.strip()]
    return [(command, output) for command, _, output in (step.partition("\n") for step in steps)]


def matches(expected: str, actual: str) -> bool:
    """Whether an output is what a page shows, where `...` stands for any text."""
    literal = re.sub(r"([\[*?])", r"[\1]", "\n".join(line.rstrip() for line in expected.strip().splitlines()))
    return fnmatch.fnmatchcase(
        "\n".join(line.rstrip() for line in actual.strip().splitlines()), re.sub(r"\.\.\.", "*", literal)
    )


def test_the_commands_are_found() -> None:
    assert {"info", "dump", "get", "formats"} <= set(commands())


def test_every_command_has_a_module() -> None:
    modules = {path.stem for path in (ROOT / "rmqtool/commands").rglob("*.py")}
    assert {command.replace("-", "_") for command in commands()} <= modules


def test_every_command_ends_its_help_in_an_example() -> None:
    lacking = []
    for command in commands():
        ending = described(command)[-2:]  # the word and the command may stand in one paragraph or in two
        if not (f"rmqtool {command}" in "".join(ending[-1:]) and re.search(r"(^| )Examples?\b", " ".join(ending))):
            lacking.append(f"{command}: {ending}")
    assert not lacking, "the last paragraph of a docstring is 'Example: rmqtool <command> ...'\n" + "\n".join(lacking)


def test_every_command_is_on_a_page() -> None:
    text = "\n".join(page.read_text("utf-8") for page in PAGES if page.name != "CHANGELOG.md")
    assert [command for command in commands() if f"rmqtool {command}" not in text] == []


def test_pages_name_only_commands_and_options_that_exist() -> None:
    lines = documented_lines()
    assert len(lines) > 10
    wrong = [f"{page}: {line}: {names}" for page, line in lines if (names := unknown(shlex.split(line)))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("line", ["rmqtool mend STORE", "rmqtool info STORE --colour", "rmqtool --mend"])
def test_a_wrong_command_line_is_found(line: str) -> None:
    assert [unknown(words) for words in invocations(line)] != [[]]


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken, "\n".join(broken)


def test_the_readme_shows_the_tool_at_work(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Its transcripts are what the commands print today, on the stores that they name."""
    shown = transcripts(README)
    assert any(command.startswith("rmqtool salvage") for command, _ in shown)
    for command, output in shown:
        (words,) = invocations(command)
        for packed in GOLDEN.glob("*.tar.xz"):
            name = packed.name.removesuffix(".tar.xz")
            if any(Path(word).parts[:1] == (name,) for word in words) and not (tmp_path / name).exists():
                subprocess.run(["tar", "-xJf", packed, "-C", tmp_path], check=True)
        ran = rmqtool(*words, folder=tmp_path)
        if pytestconfig.getoption("--rewrite") and not matches(output, ran.stdout):
            README.write_text(README.read_text("utf-8").replace(output, ran.stdout), "utf-8")
        else:
            assert matches(output, ran.stdout), f"$ {command}\n{ran.stdout}{ran.stderr}"


def test_a_transcript_that_is_out_of_date_is_found() -> None:
    assert matches("free  ... of ...\nlog [0]\n", "free  3 MB of 7 MB\nlog [0]")
    assert not matches("free  ... of ...\nlog [0]\n", "free  3 MB of 7 MB\nlog [1]")
