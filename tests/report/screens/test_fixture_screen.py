"""The list of fixtures: a line each where there is room, versions as ranges, nothing cut where there is not."""

from __future__ import annotations

from rmqtool.report.screens.fixture_screen import list_lines

KNOWN = ("4.4.0", "4.9.7", "5.0.0", "5.5.0", "5.5.1")
RECIPES = [
    {"name": "plain", "about": "two topics", "versions": list(KNOWN)},
    {"name": "odd", "about": "what only some can hold", "versions": ["4.4.0", "5.0.0", "5.5.0"]},
]
DAMAGES = [
    {
        "name": "cut",
        "about": "a file is shorter",
        "recipes": ["plain"],
        "findings": ["commitlog.torn-record"],
        "harm": "keys",
    }
]


def test_versions_that_follow_each_other_are_a_range() -> None:
    lines = list(list_lines(RECIPES, DAMAGES, KNOWN, None))
    assert "  plain  two topics; broker 4.4.0 to 5.5.1" in lines
    assert "  odd    what only some can hold; broker 4.4.0, 5.0.0 to 5.5.0" in lines
    assert "  cut    a file is shorter; in plain; causes commitlog.torn-record; harm: keys" in lines


def test_a_narrow_terminal_loses_no_word() -> None:
    lines = list(list_lines(RECIPES, DAMAGES, KNOWN, 40))
    assert max(map(len, lines[1:3])) <= 40
    assert " ".join(" ".join(lines).split()) == " ".join(" ".join(list_lines(RECIPES, DAMAGES, KNOWN, None)).split())
