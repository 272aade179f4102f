"""The Chinese pages keep up with the English ones: the same code blocks, commands, options and sections.

`pytest --rewrite` copies the code blocks of the English pages.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs" / "zh").glob("*.md"))
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def english(page: Path) -> Path:
    """The page of which one is the translation."""
    return ROOT / page.name if page.name == "README.md" else ROOT / "docs" / page.name


def code_spans(text: str) -> set[str]:
    """What stands in code font in the middle of sentences."""
    return set(re.findall(r"`([^`\n]+)`", BLOCK.sub("", text)))


def names(text: str) -> set[str]:
    """Commands and options in code font."""
    return {span for span in code_spans(text) if re.match(r"--[a-z]|rmqtool ", span)}


def headings(text: str) -> list[str]:
    """How deep each heading is, in order."""
    return re.findall(r"^#+(?= )", BLOCK.sub("", text), re.MULTILINE)


def with_blocks(text: str, blocks: list[str]) -> str:
    """A page with these code blocks in the places of its own."""
    following = iter(blocks)
    return BLOCK.sub(lambda match: next(following, match.group()), text)


def test_the_pages_of_an_outage_are_translated() -> None:
    names_of_pages = {page.name for page in PAGES}
    assert {
        "README.md",
        "quickstart.md",
        "runbook.md",
        "faq.md",
        "exit-codes.md",
        "install-offline.md",
    } <= names_of_pages
    assert {"forecast.md", "verify.md", "recover.md", "salvage.md"} <= names_of_pages


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_are_those_of_the_english_page(page: Path, pytestconfig: pytest.Config) -> None:
    blocks = BLOCK.findall(english(page).read_text("utf-8"))
    text = page.read_text("utf-8")
    if pytestconfig.getoption("--rewrite"):
        text = with_blocks(text, blocks)
        page.write_text(text, "utf-8")
    assert BLOCK.findall(text) == blocks


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_are_those_of_the_english_page(page: Path) -> None:
    ours, theirs = page.read_text("utf-8"), english(page).read_text("utf-8")
    assert names(ours) == names(theirs)
    assert code_spans(ours) <= code_spans(theirs)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sections_are_those_of_the_english_page(page: Path) -> None:
    assert headings(page.read_text("utf-8")) == headings(english(page).read_text("utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_lead_to_each_other_and_to_translations(page: Path) -> None:
    text = page.read_text("utf-8")
    links = set(re.findall(r"\]\(\.\./([a-z-]+\.md)\)", text))  # a section may be in the English page only
    assert not links & {other.name for other in PAGES}
    assert f"[中文]({page.relative_to(english(page).parent)})" in english(page).read_text("utf-8")


def test_a_translation_that_lags_behind_is_found() -> None:
    old, new = "# a\n`rmqtool info STORE`\n```sh\nls\n```\n", "# a\n`rmqtool info STORE --full`\n```sh\nls -l\n```\n"
    assert names(old) != names(new)
    assert BLOCK.findall(old) != BLOCK.findall(new)
    assert with_blocks(old, BLOCK.findall(new)).endswith("```sh\nls -l\n```\n")
    assert headings(old) != headings(new + "## b\n")
