"""Screen of `diff`: the verdict in a sentence, the relation of the logs, then the differences."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rmqtool.findings.finding import StoreVerdict
from rmqtool.report.json_schemas import JsonObject
from rmqtool.report.text import columns_of, counted, cropped, escaped, headline, labelled, padded, size_text

TOPICS_MAX: Final = 20
RANGES_MAX: Final = 5
_COLUMNS: Final = ("Topic", "A", "B", "Only A", "Only B", "Changed", "Moved", "Reordered")
_KINDS: Final = ("only_a", "only_b", "changed", "moved", "reordered")
_HEADINGS: Final = {
    "only-a": "Only in A",
    "only-b": "Only in B",
    "changed": "In both, with other content",
    "moved": "In both, at another queue offset or in another queue",
    "reordered": "In both, in another order",
}
_REASONS: Final = {"expired": "expired there", "beyond-end": "after the end there", "inside": ""}
_RELATIONS: Final = {
    "equal": "equal from {begin} to {end}",
    "a-is-prefix": "equal from {begin} to {end}, where A ends; B continues for {rest}",
    "b-is-prefix": "equal from {begin} to {end}, where B ends; A continues for {rest}",
    "apart": "no physical offset is in both",
}


def diff_lines(
    comparison: JsonObject, width: int, *, color: bool = False, all_rows: bool = False, crops: bool = True
) -> Iterator[str]:
    """The lines of the screen, of the object of `diff --format json`; all topics and ranges where asked for, and names
    of a table cut to the width (`crops`), but in a pipe.
    """
    width = max(width, 60)
    if not comparison["equal"]:
        style, text = "bad", f"DIFFERENT: {difference_text(comparison)}."
    elif comparison["verdict"] == StoreVerdict.OK:
        style, text = "good", _equal(comparison)
    else:
        word = StoreVerdict.NOT_FULLY_CHECKED.words
        style, text = "open", f"{word}: {_equal(comparison)} The rest was not compared, see below."
    yield from headline(text, style, width, color=color)
    yield ""
    step = comparison["next_step"]
    if not comparison["equal"] or comparison["verdict"] != StoreVerdict.OK:
        yield from labelled("Next", step["reason"], width)
        if step["command"] is not None:
            yield escaped(step["command"])
    for name in "ab":
        yield from labelled(name.upper(), _side(comparison[name]), width)
    yield from labelled("Log", _relation(comparison), width)
    begins = {name: comparison[name]["min_offset"] for name in "ab"}
    if None not in begins.values() and begins["a"] != begins["b"]:
        later = max(begins, key=lambda name: begins[name])
        expired = size_text(abs(begins["a"] - begins["b"]))
        yield from labelled(
            "Starts", f"{later.upper()} starts later, at {begins[later]}: {expired} expired there", width
        )
    if comparison["epochs_agree_until"] is not None:  # what a slave in controller mode would do with its log
        at = comparison["epochs_agree_until"]["physical_offset"]
        text = "no epoch starts at the same offset in both: neither can be a slave of the other"
        if at is not None:
            ends = {name.upper(): comparison[name]["max_offset"] or 0 for name in "ab"}
            losses = [f"{name} would lose {size_text(end - at)}" for name, end in ends.items() if end > at]
            text = f"a slave truncates its log at {at}" + "".join(f"; as a slave {loss}" for loss in losses)
        yield from labelled("Epochs", text, width)
    ranges = comparison["differing_ranges"]
    listed = ranges["listed"] if all_rows else ranges["listed"][:RANGES_MAX]
    shown = ", ".join(f"{begin}-{end}" for begin, end in listed)
    rest = ranges["count"] - len(listed)
    yield from labelled("Differing", shown + (f" and {rest} more" if rest else ""), width)
    if comparison["unresolved_blocks"]:
        blocks = counted(comparison["unresolved_blocks"], "block")
        text = f"which messages differ in {blocks}: the manifest has no digests of messages"
        yield from labelled("Not known", text, width)
    for sentence in comparison["not_compared"]:
        yield from labelled("Left out", sentence, width)
    yield from _topics(comparison["topics"], width if crops else sys.maxsize, all_rows=all_rows)
    yield from _messages(comparison, width)
    yield from _queues(comparison, width)
    yield from _config(comparison, width)


def _equal(comparison: JsonObject) -> str:
    if comparison["compared"] == "messages":
        return "EQUAL: both have the same messages at the same queue offsets."
    return "EQUAL: log, queues and settings."


def difference_text(comparison: JsonObject) -> str:
    """Differences, as a sentence without its end; empty where nothing differs."""
    if comparison["equal"]:
        return ""
    messages = comparison["messages"] or {}
    at = comparison["first_divergence"]
    parts = [] if at is None else [f"the logs differ from physical offset {at['physical_offset']} on"]
    parts += [
        text.format(counted(messages[kind], "message"))
        for kind, text in (
            ("only_a", "{} only in A"), ("only_b", "{} only in B"), ("changed", "{} changed"),
            ("moved", "{} at another queue offset"), ("reordered", "{} in another order"),
        )
        if messages.get(kind)
    ]  # fmt: skip
    for kind, noun in (("queue_difference_count", "queue"), ("config_difference_count", "setting")):
        if comparison[kind]:
            parts.append(f"{counted(comparison[kind], noun)} with other values")
    return ", ".join(parts) or _relation(comparison)


def _side(side: JsonObject) -> str:
    where = "no log" if side["max_offset"] is None else f"offsets {side['min_offset']} to {side['max_offset']}"
    text = (
        f"{side['kind']} {side['store']}: {where}, {counted(side['messages'], 'message')}, {size_text(side['bytes'])}"
    )
    if side["bad_ranges"]:
        text += f"; damaged: {counted(side['bad_ranges'], 'range')}, {size_text(side['bad_bytes'])}"
    if (tail := side["resurrected_tail"]) is not None:
        text += (
            f"; from physical offset {tail['physical_offset']} on {counted(tail['messages'], 'old message')} that came "
            "back after a truncation"
        )
    return text + (f"; torn record at its end: {size_text(side['tail_bytes'])}" if side["tail_bytes"] else "")


def _relation(comparison: JsonObject) -> str:
    ends = [comparison[name]["max_offset"] or 0 for name in "ab"]
    begin = max(comparison[name]["min_offset"] or 0 for name in "ab")
    at = comparison["first_divergence"]
    if at is None:
        text = _RELATIONS[comparison["relation"]]
        return text.format(begin=begin, end=min(ends), rest=size_text(abs(ends[0] - ends[1])))
    what = {"byte": "first differing byte", "record": "first differing record", "block": "first differing block"}
    text = f"{what[at['precision']]} at physical offset {at['physical_offset']}"
    return text + (f", in the record at {at['record_offset']}" if at["precision"] == "byte" else "")


def _topics(topics: Sequence[JsonObject], width: int, *, all_rows: bool) -> Iterator[str]:
    if not topics:
        return
    ordered = sorted(topics, key=lambda topic: not topic["differs"])
    shown = ordered if all_rows else ordered[:TOPICS_MAX]
    rows = [_COLUMNS]
    for topic in shown:
        counts = ("-" if topic[kind] is None else str(topic[kind]) for kind in _KINDS)
        rows.append((topic["topic"], str(topic["a"]), str(topic["b"]), *counts))
    widths = [max(len(row[number]) for row in rows) for number in range(1, len(_COLUMNS))]
    longest = max(columns_of(escaped(row[0])) for row in rows)
    gap = 2 if longest + sum(widths) + 2 * len(widths) <= width else 1
    room = width - sum(widths) - gap * len(widths)
    names = [cropped(escaped(row[0]), max(room, 12)) for row in rows]
    first = max(map(columns_of, names))
    yield ""
    for name, row in zip(names, rows, strict=True):
        cells = (padded(text, widths[at], right=True) for at, text in enumerate(row[1:]))
        yield (" " * gap).join([padded(name, first), *cells]).rstrip()
    if len(ordered) > len(shown):
        yield f"and {counted(len(ordered) - len(shown), 'topic')} more (--verbose shows all)"


def _messages(comparison: JsonObject, width: int) -> Iterator[str]:
    for kind, heading in _HEADINGS.items():
        rows = [row for row in comparison["differences"] if row["type"] == kind]
        if not rows:
            continue
        count = comparison["messages"][kind.replace("-", "_")]
        yield ""
        yield f"{heading}: {counted(count, 'message')}" + (f", the first {len(rows)}" if len(rows) < count else "")
        for row in rows:
            place = f"{row['topic']}/{row['queue_id']} at queue offset {row['queue_offset']}"
            text = f"  {place}, physical offset {row['physical_offset']}"
            if row["other_queue_offset"] is not None and kind != "changed":
                text += f"; in B {row['topic']}/{row['other_queue_id']} at {row['other_queue_offset']}"
            elif row["reason"] is not None and _REASONS[row["reason"]]:
                text += f"; {_REASONS[row['reason']]}"
            yield from textwrap.wrap(escaped(text), width, subsequent_indent="    ", break_on_hyphens=False)


def _queues(comparison: JsonObject, width: int) -> Iterator[str]:
    if not comparison["queue_difference_count"]:
        return
    yield ""
    yield f"Queues with another start or end: {comparison['queue_difference_count']}"
    for queue in comparison["queues"]:
        sides = []
        for name in "ab":
            low, high = queue[f"{name}_min"], queue[f"{name}_max"]
            sides.append(f"{name.upper()} {'none' if low is None and high is None else f'{low}-{high}'}")
        text = f"{queue['topic']}/{queue['queue_id']}: {', '.join(sides)}"
        yield from textwrap.wrap(escaped(text), width, subsequent_indent="    ", initial_indent="  ")
    yield from _rest(comparison["queue_difference_count"], comparison["queues"])


def _config(comparison: JsonObject, width: int) -> Iterator[str]:
    if not comparison["config_difference_count"]:
        return
    yield ""
    yield f"Settings with other values: {comparison['config_difference_count']}"
    for entry in comparison["config"]:
        name = f"{entry['file']} {entry['table']} {entry['entry']}".rstrip()
        values = {side: "none" if entry[side] is None else json.dumps(entry[side], ensure_ascii=False) for side in "ab"}
        sides = (f"{side.upper()} {value}" for side, value in values.items())
        yield from textwrap.wrap(
            escaped(f"{name}: {', '.join(sides)}"), width, subsequent_indent="    ", initial_indent="  "
        )
    yield from _rest(comparison["config_difference_count"], comparison["config"])


def _rest(count: int, listed: Sequence[Any]) -> Iterator[str]:
    if count > len(listed):
        yield f"  and {count - len(listed)} more (--limit lists more)"
