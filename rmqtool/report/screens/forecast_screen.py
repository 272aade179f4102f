"""Screen of `forecast`: the verdict in a sentence, what is read and lost, and versions side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from rmqtool.findings.finding import VERDICT_STYLES, StoreVerdict
from rmqtool.report.json_schemas import JsonObject
from rmqtool.report.text import counted, escaped, headline, labelled, padded, size_text

LISTED_MAX: Final = 8
_COLUMNS: Final = ("Version", "Starts", "Lost", "Repeats", "Damage", "Unindexed", "Deletes", "Log end")


def forecast_lines(
    forecast: JsonObject, ending: JsonObject, width: int, *, color: bool = False, all_rows: bool = False
) -> Iterator[str]:
    """The screen for one version, of its object in `forecast --format json`; the verdict and the next step are from the
    same JSON. All queues and files where asked for.
    """
    width = max(width, 60)
    rows_max = None if all_rows else LISTED_MAX
    if ending["verdict"] in (StoreVerdict.LOG_MISSING, StoreVerdict.NOT_READABLE) or ending["in_use"]:
        style, text = "bad", escaped(ending["headline"])
    elif VERDICT_STYLES.get(ending["verdict"]) == "open":  # what was not looked at is not called good
        style, text = "open", escaped(ending["headline"])
    else:
        style, text = _start_sentence(forecast, is_timer_right=not ending.get("timer"))
        text = f"{StoreVerdict(ending['verdict']).words}: {text}"
    yield from headline(text, style, width, color=color)
    yield ""
    yield from _next(ending, width)
    start = "as after a crash" if forecast["mode"] == "abnormal" else "as after a clean stop"
    if forecast["log_end_offset"] is not None:
        stop = forecast["stops_at"]
        why = "" if stop is None or stop["finding"] is None else f", where it finds {stop['finding']}"
        start += f": reads the log from {forecast['scan_start_offset']} to {forecast['log_end_offset']}{why}"
    yield from labelled("Start", start, width)
    if forecast["why_not"] is not None:
        yield from labelled("Why not", str(forecast["why_not"]), width)
    for label, key in (("Unlinks", "deleted_files"), ("Drops index", "dropped_index_files")):
        yield from labelled(label, _listed(forecast[key], rows_max), width)
    lost = forecast["lost"]
    if lost["messages"]:
        topics = [f"{topic} {count}" for topic, count in sorted(lost["by_topic"].items(), key=lambda item: -item[1])]
        yield from labelled("Lost", f"{counted(lost['messages'], 'message')}, {size_text(lost['bytes'])}", width)
        yield from labelled("  by topic", _listed(topics, rows_max), width)
    if deleted := forecast["deleted_topics"]:
        names = _listed([f"{topic} {count}" for topic, count in sorted(deleted.items())], rows_max)
        yield from labelled("Deleted topics", f"their messages wait for their files to expire: {names}", width)
    if forecast["misplaces_new_messages"]:
        text = f"stored at {forecast['log_end_offset']}, after zeros, and lost at the start after this one"
        yield from labelled("New messages", text, width)
    damage = [
        f"{one['finding']} at {one['physical_offset']} ({one['length']} bytes)" for one in forecast["unnoticed_damage"]
    ]
    unlisted = forecast["unnoticed_damage_count"] - len(damage)
    rest = f" and {unlisted} more" if damage and unlisted > 0 else ""
    yield from labelled("Corrupt, served", _listed(damage, rows_max) + rest, width)
    index = []
    if forecast["unindexed_messages"]:
        index.append(f"{counted(forecast['unindexed_messages'], 'message')} cannot be found by key")
    if count := forecast["duplicate_index_entries"]:
        index.append(f"{count} duplicate {'entry' if count == 1 else 'entries'}")
    yield from labelled("Index", "; ".join(index), width)
    if forecast["filler_units"]:
        yield from labelled("Filler units", f"{forecast['filler_units']}, before the first message of a queue", width)
    repeats = [
        f"{queue['topic']}/{queue['queue_id']} continues at {queue['next_queue_offset']}"
        for queue in forecast["queues"]
        if queue["offsets_repeat"]
    ]
    yield from labelled("Reused offsets", _listed(repeats, rows_max), width)
    for label, key in (("Timer", "timer"), ("Compacted", "compaction")):
        for effect in ending.get(key, ()):
            text = f"{effect['brokers']} ({effect['id']}: {effect['message']})"
            yield from labelled(label, escaped(text), width)
    for effect in ending.get("delays", ()):
        yield from labelled("Delays", escaped(f"{effect['message']}: {effect['brokers']}"), width)
    if forecast["counted_from"]:
        yield from labelled("Counted from", f"physical offset {forecast['counted_from']}", width)
    yield from labelled("Not simulated", "; ".join(forecast["not_simulated"]), width)
    yield from labelled("Assumes", "; ".join(forecast["assumptions"]), width)


def comparison_lines(
    forecasts: Sequence[JsonObject], ending: JsonObject, width: int, *, crops: bool = True
) -> Iterator[str]:
    """Versions side by side, a line each; below, why one does not start. `crops` leaves out columns without room."""
    yield from _wrapped(escaped(ending["headline"]), max(width, 60))
    yield ""
    yield from _next(ending, max(width, 60))
    if forecasts:
        yield from _side_by_side(forecasts, width, crops=crops)
    if "preflight" in ending:
        yield ""
        yield from _preflight_lines(ending["preflight"], ending["changes"], max(width, 60))


def _side_by_side(forecasts: Sequence[JsonObject], width: int, *, crops: bool) -> Iterator[str]:
    """A line for each version, and its notes beside it."""
    rows = [_COLUMNS, *(_row(forecast) for forecast in forecasts)]
    widths = [max(len(row[number]) for row in rows) for number in range(len(_COLUMNS))]
    while crops and sum(widths) + 2 * (len(widths) - 1) > max(width, 60):
        widths.pop()
    for row in rows:
        yield "  ".join(padded(row[at], column_width, right=at > 1) for at, column_width in enumerate(widths)).rstrip()
    reasons: dict[str, list[str]] = {}
    for forecast in forecasts:
        if forecast["why_not"] is not None:
            reasons.setdefault(str(forecast["why_not"]), []).append(forecast["broker_version"])
    if reasons:
        yield ""
    for reason, versions in reasons.items():
        yield from _wrapped(f"{', '.join(versions)}: does not start: {escaped(reason)}", max(width, 60))
    for text in forecasts[0]["assumptions"]:
        yield from _wrapped(f"Assumes: {text}", max(width, 60))
    misled = [forecast["broker_version"] for forecast in forecasts if forecast["misplaces_new_messages"]]
    if misled:
        text = f"{', '.join(misled)}: would store new messages where the next start loses them"
        yield from _wrapped(text, max(width, 60))


def _preflight_lines(preflight: JsonObject, changes: Sequence[JsonObject], width: int) -> Iterator[str]:
    """Reasons why the later version differs, each with the way around."""
    pair = f"from {preflight['from']} to {preflight['to']}"
    yield f"What changes {pair}:" if changes else f"Nothing in this store is treated in another way {pair}."
    for reason in changes:
        yield ""
        yield f"{reason['id']}{_cost(reason)}"
        amount, first = reason["amount"] or "", reason["first"]
        if amount and first is not None:
            at = "" if first["physical_offset"] is None else f" at {first['physical_offset']}"
            amount += f", the first{at} in {first['file']}"
        yield from labelled("  Store", amount, width)
        yield from labelled("  Why", str(reason["why"]), width)
        yield from labelled("  Do", str(reason["way_around"]), width)
        if reason["command"] is not None:
            yield f"{'':<16}{escaped(reason['command'])}"


def _cost(reason: JsonObject) -> str:
    parts = []
    if reason["prevents_start"]:
        parts.append("prevents the start")
    if reason["lost_messages"]:
        parts.append(f"loses {counted(reason['lost_messages'], 'message')}")
    if reason["unindexed_messages"]:
        parts.append(f"{counted(reason['unindexed_messages'], 'message')} not found by key")
    if reason["harm"] != "none":
        parts.append(reason["harm"])
    return f" ({', '.join(parts)})" if parts else ""


def _next(ending: JsonObject, width: int) -> Iterator[str]:
    step = ending["next_step"]
    if step["command"] is not None:
        yield f"{'Next':<16}{escaped(step['command'])}"
    elif ending["needs_decision"]:
        yield from labelled("Next", step["reason"], width)


def _start_sentence(forecast: JsonObject, *, is_timer_right: bool) -> tuple[str, str]:
    version = f"A broker {forecast['broker_version']}"
    if not forecast["starts"]:
        return "bad", f"{version} would not start."
    parts = []
    if forecast["lost"]["messages"]:
        parts.append(f"lose {counted(forecast['lost']['messages'], 'message')}")
    if forecast["messages_without_log"]:
        count = counted(forecast["messages_without_log"], "message")
        parts.append(f"not have {count} whose commit log files are missing or too short")
    if forecast["unnoticed_damage_count"]:
        parts.append(f"serve {counted(forecast['unnoticed_damage_count'], 'corrupt record')}")
    if forecast["misplaces_new_messages"]:
        parts.append("store new messages where the next start loses them")
    if not is_timer_right:
        parts.append("not deliver all timers once")
    if parts:
        return "bad", f"{version} would start and {' and '.join(parts)}."
    return "good", f"{version} would start, lose no messages and serve no corrupt records."


def _row(forecast: JsonObject) -> tuple[str, ...]:
    end = forecast["log_end_offset"]
    return (
        forecast["broker_version"],
        "yes" if forecast["starts"] else "NO",
        *(
            str(count) if forecast["starts"] else "-"
            for count in (
                forecast["lost"]["messages"] + forecast["messages_without_log"],
                sum(queue["offsets_repeat"] for queue in forecast["queues"]),
                forecast["unnoticed_damage_count"],
                forecast["unindexed_messages"],
            )
        ),
        str(len(forecast["deleted_files"]) + len(forecast["dropped_index_files"])),
        "-" if end is None else str(end),
    )


def _listed(texts: Sequence[str], rows_max: int | None) -> str:
    shown = texts if rows_max is None else texts[:rows_max]
    rest = len(texts) - len(shown)
    return ", ".join(shown) + (f" and {rest} more (--verbose shows all)" if rest else "")


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)
