"""Screen of every repair before anything is changed: each step, the losses, the forecast for brokers."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Final

from rmqtool.findings.finding import StoreVerdict
from rmqtool.report.hexview import hex_field, hex_lines
from rmqtool.report.json_schemas import JsonObject
from rmqtool.report.text import counted, escaped, headline, labelled, size_text

TOPICS_MAX: Final = 8
RUNS_MAX: Final = 20
REMAINING_MAX: Final = 20
_MENDED: Final = {
    "frame": "size or magic corrected, as the rest of the record proves",
    "own-offset": "its own physical offset corrected",
    "head": "a header field corrected that its queue contradicts",
    "flipped-bit": "one flipped bit corrected, proven by the CRC",
    "as-is": "a damaged body kept after an intact header",
}
_CONSENT: Final = {"flipped-bit": "--fix-bits", "as-is": "--as-is"}
_VERBS: Final = ({"start": "starts", "lose": "loses", "do": "does"}, {"start": "start", "lose": "lose", "do": "do"})
"""Of one version, and of several."""


def plan_lines(
    plan: JsonObject, store: str, chosen: str, width: int, *, color: bool = False, all_rows: bool = False
) -> Iterator[str]:
    """The lines of the screen, of the plan's JSON with `damage` beside it; `chosen` says why the broker's rules are
    those. All files, queues and topics where asked for.
    """
    width = max(width, 60)
    style, text = plan_verdict(plan)
    yield from headline(text, style, width, color=color)
    yield ""
    yield from labelled("Store", store, width)
    yield from labelled("Broker rules", f"{plan['broker_version']}, {chosen}", width)
    for finding in plan["damage"]:
        place = finding["physical_offset"]
        where = finding["file"] if place is None else f"{finding['file']}, physical offset {place}"
        yield from labelled("Damage", f"{finding['id']}: {finding['message']} ({where})", width)
    if plan["needs_decision"]:
        yield from labelled("Decide", plan["next_step"]["reason"], width)
        if plan["next_step"]["command"] is not None:
            yield escaped(plan["next_step"]["command"])  # never broken by us: it is there to be copied
    yield from _steps(plan, width)
    if "patch" in plan and plan["steps"]:
        patch = plan["patch"]
        for name in ("before", "after"):
            yield f"{name.capitalize()} ({patch['structure']} at {patch['file_position']}):"
            fields = [hex_field(row["name"], row["position"], row[name]) for row in patch["fields"]]
            yield from hex_lines(fields, width, patch["file_position"])
        yield ""
    if (loss := plan["loss"])["messages"]:
        text = counted(loss["messages"], "message")
        if loss["by_topic"]:
            text += f", {size_text(loss['bytes'])}: {_topics(loss['by_topic'], all_rows=all_rows)}"
        else:
            text += " that only the index has"
        yield from labelled("Discards", text, width)
    yield from _floor(plan, width, all_rows=all_rows)
    yield from _salvaged(plan, width, all_rows=all_rows)
    if plan["kept_beyond_broker"]["messages"]:
        kept = plan["kept_beyond_broker"]
        text = f"{counted(kept['messages'], 'message')} that the broker's own start would lose"
        yield from labelled("Keeps", f"{text}: {_topics(kept['by_topic'], all_rows=all_rows)}", width)
    for note in plan["notes"]:
        yield from labelled("Note", note, width)
    if plan["copied_files"]:
        shown = plan["copied_files"] if all_rows else plan["copied_files"][:TOPICS_MAX]
        rest = len(plan["copied_files"]) - len(shown)
        names = ", ".join(shown) + (f" and {rest} more" if rest else "")
        text = f"{names}: replaced by a copy; hard links keep the old content"
        yield from labelled("Hard links", text, width)
    if plan["abort_stays"] is not None:
        yield from labelled("abort stays", plan["abort_stays"], width)
    remaining = plan["remaining"] if all_rows else plan["remaining"][:REMAINING_MAX]
    for left in remaining:
        where = left["file"] if left["physical_offset"] is None else f"physical offset {left['physical_offset']}"
        if left["topic"] is not None and left["queue_id"] is not None:
            where = f"{left['topic']}/{left['queue_id']}, {where}"
        # The repair is named if a person has to choose it by an option.
        command = f": {left['repair']}" if " --" in (left["repair"] or "") else ""
        text = f"{left['id']}: {left['message']} ({where}): {left['why']}{command}"
        yield from labelled("Left", text, width)
    if unlisted := len(plan["remaining"]) - len(remaining):
        text = f"and {counted(unlisted, 'more finding')}; --format json lists them all"
        yield from labelled("Left", text, width)
    # What a start does is that, whatever it loses of the files that are there.
    if plan["verdict"] == StoreVerdict.LOG_MISSING:
        yield from labelled("Start now", plan["headline"], width)
    else:
        yield from labelled("After repair" if plan["steps"] else "Start now", plan_afterwards(plan), width)
    if plan["steps"]:
        yield from labelled("Disk needed", f"at most {size_text(plan['disk_needed_bytes'])}", width)


def plan_verdict(plan: JsonObject) -> tuple[str, str]:
    """Style and sentence: how many changes there are, or why there is none."""
    if plan["damage"] and all(finding["id"] == "commitlog.missing-file" for finding in plan["damage"]):
        return "bad", "The commit log has no files, so nothing can be rebuilt. Nothing is changed."
    if plan["damage"] and all(finding["id"] == "commitlog.not-readable-by-version" for finding in plan["damage"]):
        return "bad", f"Nothing is changed: the commit log has records that a {plan['broker_version']} does not read."
    if plan["damage"] and plan["needs_decision"]:
        return "bad", "Nothing is changed: a person must decide about a file in commitlog/."
    if plan["damage"]:
        return "bad", (
            "There is damage inside the commit log, so nothing is changed. rmqtool salvage keeps the messages after "
            "it; recover --cut-at-damage discards them."
        )
    if not plan["steps"] and plan["remaining"]:
        left = counted(len(plan["remaining"]), "finding")
        return "bad", f"Nothing is repaired; {left} cannot be repaired, see the reasons below."
    if not plan["steps"]:
        return ("good", "Nothing to do.") if plan["verdict"] == StoreVerdict.OK else ("open", plan["headline"])
    text = f"{counted(len(plan['steps']), 'change')} planned."
    if gone := plan.get("lost_for_good", {}).get("messages"):
        return "bad", f"{text} {counted(gone, 'unreadable message')} will be lost, all others are kept."
    if lost := plan["loss"]["messages"]:
        return "bad", f"{text} {counted(lost, 'message')} will be lost."
    now, after = plan["forecast_now"], plan["forecast_after"].get(plan["broker_version"])
    if now is not None and after is not None and now["starts"] and not after["starts"]:
        return "bad", f"{text} A broker {plan['broker_version']} would no longer start."
    starts = {name: plan["forecast_after"][name] for name in plan["possible_versions"]}
    if unable := [name for name, start in starts.items() if not start["starts"]]:
        return "bad", f"{text} A broker {unable[0]} would not start."
    floor = plan["floor"]
    if floor is not None and (count := floor["taken_away"] + floor["moved"]):
        return "bad", f"{text} Consumers would no longer get {counted(count, 'message')} where they get them today."
    for name, start in starts.items():
        if lost := start["lost"] + start["messages_without_log"]:
            return "bad", f"{text} A broker {name} would still lose {counted(lost, 'message')}."
    if missing := sum(left["id"] == "commitlog.missing-file" for left in plan["remaining"]):
        return "bad", f"{text} The messages of {counted(missing, 'missing commit log file')} stay lost."
    if floor is None:
        return "open", f"{text} What consumers get was not compared."
    return "good", f"{text} No messages will be lost."


def _steps(plan: JsonObject, width: int) -> Iterator[str]:
    """Each step, and below those with the same reason that reason once."""
    if not plan["steps"]:
        return
    yield ""
    why = None
    for step in plan["steps"]:
        if step["why"] != why:
            why = step["why"]
            yield from textwrap.wrap(f"{escaped(why)}:", width, subsequent_indent="  ", break_on_hyphens=False)
        part = f" at {step['file_position']}" if step["action"] == "write" else ""
        text = f"  {step['action']:<8}{escaped(step['file'])}{part} ({size_text(step['length'])})"
        yield from textwrap.wrap(text, width, subsequent_indent=" " * 10, break_on_hyphens=False)
    yield ""


def _salvaged(plan: JsonObject, width: int, *, all_rows: bool) -> Iterator[str]:
    """Details of `salvage` only: each run of lost messages, and how the other damage was handled."""
    lost = plan.get("lost_for_good")
    if lost is None:
        return
    shown = lost["queues"] if all_rows else lost["queues"][:RUNS_MAX]
    for run in shown:
        last = run["queue_offset"] + run["count"] - 1
        offsets = f"queue offset {run['queue_offset']}" if run["count"] == 1 else f"{run['queue_offset']} to {last}"
        yield from labelled("Lost for good", f"{run['topic']}/{run['queue_id']} {offsets}", width)
    if len(lost["queues"]) > len(shown):
        text = f"and {len(lost['queues']) - len(shown)} more ranges; --format json lists them all"
        yield from labelled("Lost for good", text, width)
    if plan["unknown_bytes"]:
        yield from labelled("Lost for good", f"{size_text(plan['unknown_bytes'])} with unknown content", width)
    if plan["donated_bytes"]:
        yield from labelled("From replicas", size_text(plan["donated_bytes"]), width)
    for how, count in plan["mended"].items():
        yield from labelled("Repaired", f"{counted(count, 'record')}: {_MENDED[how]}", width)
    for how, count in plan["mendable"].items():
        yield from labelled("Could be kept", f"{counted(count, 'record')}: {_MENDED[how]} ({_CONSENT[how]})", width)


def _floor(plan: JsonObject, width: int, *, all_rows: bool) -> Iterator[str]:
    """Messages that consumers get before and after, and those that they would lose."""
    floor = plan["floor"]
    if floor is None or not plan["steps"]:
        return
    text = f"kept {floor['kept']}, added {floor['added']}, taken away {floor['taken_away']}, moved {floor['moved']}"
    yield from labelled("Consumers get", f"{text} (messages, with broker {plan['broker_version']})", width)
    runs = floor["runs"] if all_rows else floor["runs"][:RUNS_MAX]
    for run in runs:
        last = run["queue_offset"] + run["count"] - 1
        offsets = f"queue offset {run['queue_offset']}" if run["count"] == 1 else f"{run['queue_offset']} to {last}"
        what = "taken away" if run["moved_to"] is None else f"moved to {run['moved_to']}"
        yield from labelled("No longer there", f"{run['topic']}/{run['queue_id']} {offsets}: {what}", width)
    if len(floor["runs"]) > len(runs):
        text = f"and {len(floor['runs']) - len(runs)} more ranges; --format json lists them"
        yield from labelled("No longer there", text, width)
    yield from labelled("Brings back", ", ".join(floor["restored_topics"]), width)


def _topics(by_topic: Mapping[str, int], *, all_rows: bool) -> str:
    """The topics with the most messages, and their number."""
    topics = sorted(by_topic.items(), key=lambda item: -item[1])
    shown = topics if all_rows else topics[:TOPICS_MAX]
    named = ", ".join(f"{topic} {count}" for topic, count in shown)
    rest = f" and {len(topics) - len(shown)} more topics" if len(topics) > len(shown) else ""
    return f"{named}{rest}"


def plan_afterwards(plan: JsonObject) -> str:
    """Versions that end alike together."""
    endings: dict[str, list[str]] = {}
    for version, after in plan["forecast_after"].items():
        endings.setdefault(_ending(after, plan), []).append(version)
    return "; ".join(
        f"{', '.join(sorted(versions))}: {ending.format(**_VERBS[len(versions) > 1])}"
        for ending, versions in endings.items()
    )


def _ending(after: JsonObject, plan: JsonObject) -> str:
    if not after["starts"]:
        return "{do} not start"
    if lost := after["lost"] + after["messages_without_log"]:
        return f"{{lose}} {counted(lost, 'message')}"
    if plan["loss"]["messages"]:
        return f"{{start}}, and {{lose}} no more than the {counted(plan['loss']['messages'], 'message')} of this plan"
    return "{start}, and {lose} nothing of what was checked" if plan["not_looked_at"] else "{start} and {lose} nothing"
