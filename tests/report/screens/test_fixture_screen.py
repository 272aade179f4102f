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


def test_recipes_and_damages_are_tables() -> None:
    assert list(list_lines(RECIPES, DAMAGES, KNOWN, 80)) == [
        "Recipes: rmqtool fixture make NAME DIR --set version=X.Y.Z",
        "  recipe  broker versions        what for",
        "  plain   4.4.0 to 5.5.1         two topics",
        "  odd     4.4.0, 5.0.0 to 5.5.0  what only some can hold",
        "",
        "Damages: rmqtool fixture damage NAME DIR",
        "  damage  harm  what it does, the findings that it causes, and in which recipes",
        "  cut     keys  a file is shorter",
        "      causes commitlog.torn-record; in plain",
    ]


def test_without_a_terminal_each_is_a_line() -> None:
    lines = list(list_lines(RECIPES, DAMAGES, KNOWN, None))
    assert "  odd     4.4.0, 5.0.0 to 5.5.0  what only some can hold" in lines
    assert "  cut     keys  a file is shorter; causes commitlog.torn-record; in plain" in lines


def test_a_narrow_terminal_loses_no_word() -> None:
    lines = list(list_lines(RECIPES, DAMAGES, KNOWN, 50))
    assert max(map(len, lines[1:])) <= 50
    whole = " ".join(" ".join(list_lines(RECIPES, DAMAGES, KNOWN, None)).split()).replace(";", "")
    assert " ".join(" ".join(lines).split()).replace(";", "") == whole
