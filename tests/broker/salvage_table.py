"""The table of docs/salvage.md: what each broker loses of a damaged log by itself, case by case."""

from __future__ import annotations

from pathlib import Path

from tests.broker.versions import ROUTINE

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "salvage.md"
HEAD = f"| Damage | {' | '.join(ROUTINE)} |"


def check(case: str, version: str, cells: list[str], *, rewrite: bool) -> None:
    """Compare what was seen with the page, or write it there."""
    lines = PAGE.read_text("utf-8").splitlines()
    start = lines.index(HEAD) + 2
    end = next(number for number in range(start, len(lines)) if not lines[number].startswith("|"))
    table = {row[0]: row[1:] for line in lines[start:end] if (row := [cell.strip() for cell in line[1:-1].split("|")])}
    text, column = ", ".join(cells), ROUTINE.index(version)
    if rewrite:
        table.setdefault(case, [""] * len(ROUTINE))[column] = text
        lines[start:end] = [f"| {name} | {' | '.join(row)} |" for name, row in table.items()]
        PAGE.write_text("\n".join(lines) + "\n", "utf-8")
    assert table[case][column] == text
