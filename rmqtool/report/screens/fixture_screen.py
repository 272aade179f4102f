"""The list of generated stores as text: recipes with the versions that they fit, and damages with their effects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rmqtool.report.json_schemas import JsonObject
from rmqtool.report.text import field_lines

_ROOM: Final = 32
"""Columns that a text needs beside others; with fewer it stands below them."""
_INDENT: Final = 4


def list_lines(
    recipes: Sequence[JsonObject], damages: Sequence[JsonObject], known: Sequence[str], width: int | None
) -> Iterator[str]:
    """The lines of `fixture list`: rows of recipes and damages, and all broker versions in order."""
    ranges = [", ".join(_ranges(row["versions"], known)) for row in recipes]
    yield "Recipes: rmqtool fixture make NAME DIR --set version=X.Y.Z"
    columns = [[row["name"], versions] for row, versions in zip(recipes, ranges, strict=True)]
    yield from _table(["recipe", "broker versions"], columns, "what for", [[row["about"]] for row in recipes], width)
    yield ""
    yield "Damages: rmqtool fixture damage NAME DIR"
    columns = [[row["name"], row["harm"]] for row in damages]
    causes = [", ".join(row["findings"]) or "nothing that verify reports" for row in damages]
    places = [f"causes {cause}; in {', '.join(row['recipes'])}" for row, cause in zip(damages, causes, strict=True)]
    texts = [[row["about"], place] for row, place in zip(damages, places, strict=True)]
    yield from _table(
        ["damage", "harm"], columns, "what it does, the findings that it causes, and in which recipes", texts, width
    )


def _table(
    titles: list[str], rows: Sequence[list[str]], last: str, texts: Sequence[list[str]], width: int | None
) -> Iterator[str]:
    """Short columns, then a wide one, which is wrapped below itself, and further texts; without a terminal one line."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for cells, parts in ((titles, [last]), *zip(rows, texts, strict=True)):
        begin = "  " + "  ".join(f"{cell:<{size}}" for cell, size in zip(cells, widths, strict=True))
        if width is None:
            yield f"{begin}  {'; '.join(parts)}"
            continue
        first, *further = parts
        if width - len(begin) >= _ROOM:
            yield from field_lines(begin, first, len(begin), width)
        else:
            yield begin.rstrip()
            yield from field_lines("", first, _INDENT, width)
        for text in further:
            yield from field_lines("", text, _INDENT, width)


def _ranges(versions: Sequence[str], known: Sequence[str]) -> list[str]:
    """Ranges of known versions, each as `first to last`."""
    ranges: list[list[str]] = []
    for version in versions:
        follows = ranges and known.index(version) == known.index(ranges[-1][-1]) + 1
        if follows:
            ranges[-1].append(version)
        else:
            ranges.append([version])
    return [run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in ranges]
