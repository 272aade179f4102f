"""Screen of `verify`: the verdict in one sentence, the findings file by file, then the next command."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final

from rmqtool.findings.finding import StoreVerdict
from rmqtool.report.json_schemas import JsonObject
from rmqtool.report.text import escaped, size_text, styled

PER_FILE_MAX: Final = 20
"""Findings of one file that are shown; the rest is counted."""
NOTES_MAX: Final = 1
"""Notes of one kind about one file that are shown: nothing has to be done about them."""
MORE: Final = "more"
"""Type of an object that stands for findings of its file that are left out."""
_SIGNS: Final = {"error": "E", "warning": "W", "note": "n"}
_STYLES: Final = {"error": "bad", "warning": "open", "note": "", None: "good"}
_INDENT: Final = "    "


def findings_lines(
    findings: Iterable[JsonObject],
    summary: JsonObject,
    width: int,
    *,
    color: bool,
    all_rows: bool,
    counts: Mapping[str, int] | None = None,
) -> Iterator[str]:
    """The lines of the screen, of the objects of `verify --format json` in order, all where asked for; one of type
    `more` represents several. The counts by severity are given where the findings can be read only once.
    """
    counts = Counter(finding["severity"] for finding in findings) if counts is None else counts
    width = max(width, 60)
    worst = next((name for name in ("error", "warning") if counts.get(name)), None)
    worst = worst or (None if summary["verdict"] == StoreVerdict.OK else "warning")
    yield from _wrapped(styled(verdict(counts, summary), _STYLES[worst], color=color), width, "")
    for file, of_file in groupby(findings, key=lambda finding: finding["file"]):
        yield ""
        yield escaped(file)
        shown = left_out = 0
        notes: Counter[str] = Counter()
        for finding in of_file:
            if finding.get("type") == MORE:
                left_out += finding["count"]
                continue
            notes[finding["id"]] += finding["severity"] == "note"
            if not all_rows and notes[finding["id"]] > NOTES_MAX:
                continue
            if all_rows or shown < PER_FILE_MAX:
                yield from _finding(finding, width, color=color)
            else:
                left_out += 1
            shown += 1
        for kind, count in notes.items():
            if count > NOTES_MAX and not all_rows:
                yield f"  n {kind}: {count - NOTES_MAX} more (--verbose shows all)"
        if left_out:
            yield f"  ... and {left_out} more (--verbose shows all)"
    step = summary["next_step"]
    if step["command"] is not None:
        yield ""
        yield "Next:"
        yield f"  {escaped(step['command'])}"
    elif summary["needs_decision"]:
        yield ""
        yield from _wrapped(f"Next: {escaped(step['reason'])}", width, "")
    yield ""
    yield from _wrapped(checked(summary), width, "")


def verdict(counts: Mapping[str, int], summary: JsonObject) -> str:
    """The state of the store in one sentence."""
    parts = [
        f"{counts[name]} {name}{'s' if counts[name] > 1 else ''}" for name in ("error", "warning") if counts.get(name)
    ]
    tail = f" ({', '.join(parts)})" if parts else ""
    is_said = summary["complete"] or summary["verdict"] == StoreVerdict.NOT_FULLY_CHECKED
    return escaped(summary["headline"]) + tail + ("" if is_said else "; not all of the store was checked")


def checked(summary: JsonObject) -> str:
    """Extent of the check, as a sentence."""
    amounts = summary["checked"]
    text = (
        f"Checked {amounts['records']} records, {amounts['units']} queue units and {amounts['entries']} index entries, "
        f"{size_text(amounts['bytes'])} in all"
    )
    left_out = summary["left_out_bytes"]
    return text + (f"; {size_text(left_out)} were left out." if left_out else ".")


def _finding(finding: JsonObject, width: int, *, color: bool) -> Iterator[str]:
    sign = styled(_SIGNS[finding["severity"]], _STYLES[finding["severity"]], color=color)
    place = finding["physical_offset"] if finding["physical_offset"] is not None else finding["file_position"]
    where = f" at {place}" if place is not None else ""
    yield f"  {sign} {finding['id']}{where}"
    yield from _wrapped(escaped(finding["message"]), width, _INDENT)
    if finding.get("candidate"):
        yield from _wrapped(f"possibly {escaped(finding['candidate'])}", width, _INDENT)


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
