"""The list of generated stores as text: recipes with the versions that they fit, and damages with what they cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rmqtool.report.text import field_lines

Row = Mapping[str, Any]


def list_lines(
    recipes: Sequence[Row], damages: Sequence[Row], known: Sequence[str], width: int | None
) -> Iterator[str]:
    """The lines of `fixture list`.

    Args:
        recipes: rows with `name`, `about` and `versions`.
        damages: rows with `name`, `about`, `recipes`, `findings` and `harm`.
        known: all broker versions, in order.
        width: of the terminal; None where there is none.
    """
    names = max(len(row["name"]) for row in (*recipes, *damages))
    yield "Recipes: rmqtool fixture make NAME DIR --set version=X.Y.Z"
    for row in recipes:
        text = f"{row['about']}; broker {', '.join(_ranges(row['versions'], known))}"
        yield from field_lines(f"  {row['name']:<{names}}", text, names + 2, width)
    yield ""
    yield "Damages: rmqtool fixture damage NAME DIR"
    for row in damages:
        findings = ", ".join(row["findings"]) or "nothing that verify reports"
        text = f"{row['about']}; in {', '.join(row['recipes'])}; causes {findings}; harm: {row['harm']}"
        yield from field_lines(f"  {row['name']:<{names}}", text, names + 2, width)


def _ranges(versions: Sequence[str], known: Sequence[str]) -> list[str]:
    """Versions that follow each other as `first to last`."""
    ranges: list[list[str]] = []
    for version in versions:
        follows = ranges and known.index(version) == known.index(ranges[-1][-1]) + 1
        if follows:
            ranges[-1].append(version)
        else:
            ranges.append([version])
    return [run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in ranges]
