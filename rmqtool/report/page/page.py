"""Writes a report on a store as one HTML page, which loads nothing and runs nothing.

Everything that comes out of a store is escaped twice over: what is not printable by us, what HTML would take for markup
by the template engine; a content security policy forbids the page to load or run what were to slip through.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from rmqtool.findings.finding import VERDICT_STYLES
from rmqtool.report.json_schemas import JsonObject
from rmqtool.report.page.finding_kinds import FindingKinds
from rmqtool.report.page.log_picture import LogPicture
from rmqtool.report.page.queue_bars import QueueBar, QueueBars
from rmqtool.report.page.strip import Lane
from rmqtool.report.page.timeline import IndexRange, Times, time_axis, time_lanes
from rmqtool.report.screens.repair_screen import plan_afterwards, plan_verdict
from rmqtool.report.screens.verify_screen import checked
from rmqtool.report.text import ELLIPSIS, counted, escaped, size_text
from rmqtool.times import time_text

if TYPE_CHECKING:
    from jinja2 import Environment

TEXT_MAX: Final = 800
"""Bytes of one text on the page; a damaged name or a list of files may be as long as a file."""
NAME_MAX: Final = 260
"""Limit of one name's length; longer than a file's or a topic's name is in any alphabet that needs no escapes."""
KINDS_MAX: Final = 40
"""Kinds of findings up to which all examples are listed, else two of each."""
_MARKUP: Final = {"&": 5, "<": 4, ">": 4, "'": 5, '"': 5}
"""Bytes of characters that the template engine replaces."""
ROWS_MAX: Final = 40


@dataclass(frozen=True)
class PageFacts:
    """Results of the engines, and their time.

    Attributes:
        judgements: command and what it said of the store in one sentence; the first one counts.
        verdict: of the first one.
        next_step: command and reason.
        info: as `info --format json` writes it.
        verify: the summary of `verify --format json`; or why there is none.
        forecasts: as `forecast --format json` writes them; lists of queues are not used.
        forecast_error: why there are none.
        plans: each as `--dry-run --format json` writes it, with the `flags` of the command; or why there is none.
    """

    version: str
    made_ms: int
    judgements: Sequence[tuple[str, str]]
    verdict: str
    next_step: JsonObject
    info: JsonObject
    log: LogPicture
    queues: QueueBars
    times: Times
    kinds: FindingKinds
    verify: JsonObject | str
    forecasts: Sequence[JsonObject]
    forecast_error: str | None
    plans: Sequence[JsonObject | str]
    not_looked_at: Sequence[JsonObject]


def page_text(facts: PageFacts) -> str:
    """The page."""
    style = _resource("page.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    environment = _environment()
    losses: Counter[str] = Counter()
    for forecast in facts.forecasts:
        losses |= Counter(forecast["lost"]["by_topic"])  # the most that any version loses
    topics, topics_rest = facts.queues.figures(losses)
    last_plan = next((plan for plan in reversed(facts.plans) if not isinstance(plan, str)), None)
    return environment.get_template("page.html.j2").render(
        facts=facts,
        info=facts.info,
        style=style,
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        banner=VERDICT_STYLES.get(facts.verdict, "bad"),
        made=time_text(facts.made_ms),
        first=_time(facts.info["commitlog"]["first_store_timestamp_ms"]),
        last=_time(facts.info["commitlog"]["last_store_timestamp_ms"]),
        log_size=size_text(sum(file.size for file in facts.log.files)),
        checked=checked(facts.verify) if not isinstance(facts.verify, str) else facts.verify,
        severities=", ".join(counted(count, name) for name, count in facts.kinds.counts().items() if count) or "none",
        kinds=facts.kinds.ordered(KINDS_MAX),
        forecasts=_forecast_rows(facts.forecasts),
        plans=[plan if isinstance(plan, str) else plan_section(plan) for plan in facts.plans],
        left_out=facts.not_looked_at[:ROWS_MAX],
        left_out_rest=max(0, len(facts.not_looked_at) - ROWS_MAX),
        topics=topics,
        topics_rest=topics_rest,
        losses=losses,
        unlisted=max((forecast["messages_without_log"] for forecast in facts.forecasts), default=0),
        kept=None if last_plan is None else last_plan["kept_beyond_broker"]["by_topic"],
        **_pictures(facts),
    )


def _pictures(facts: PageFacts) -> dict[str, Any]:
    """The lanes of all pictures, and the rows of the log's files."""
    log, times = facts.log, facts.times
    rows, hidden_after = log.rows()
    index_count = facts.info["index"]["file_count"] or 0
    lanes, queue_lanes = [], []
    if log.files:
        end = "not checked to its end" if log.end is None else f"records end at {log.end}"
        text = f"{log.axis.start} to {log.axis.end}, {counted(len(log.files), 'file')}; {end}"
        lanes = [Lane("Commit log", log.bars, text), *start_lanes(log, facts.forecasts)]
        lanes += index_lanes(log, times.index, index_count)
        lanes += checkpoint_lanes(log, times.checkpoint)
        queue_lanes = list(lanes_of_queues(log, facts.queues))
    axis = time_axis(times)
    return {
        "log_lanes": lanes,
        "queue_lanes": queue_lanes,
        "queues_left": facts.queues.rows()[1],
        "file_rows": rows,
        "files_hidden_after": hidden_after,
        "file_times": {path: time_text(moment) for path, moment in times.of_files.items()},
        "time_axis": None if axis is None else (time_text(axis.start), time_text(axis.end - 1)),
        "time_lanes": [] if axis is None else list(time_lanes(times, axis)),
    }


def _forecast_rows(forecasts: Sequence[JsonObject]) -> list[dict[str, Any]]:
    """Versions in words and numbers; those that do the same have one row."""
    rows: list[dict[str, Any]] = []
    for forecast in forecasts:
        lost = forecast["lost"]
        deleted = [*forecast["deleted_files"], *forecast["dropped_index_files"]]
        row = {
            "versions": forecast["broker_version"],
            "starts": forecast["starts"],
            "why_not": forecast["why_not"],
            "lost": lost["messages"] + forecast["messages_without_log"],
            "lost_size": size_text(lost["bytes"]),
            "topics": topics_text(lost["by_topic"]),
            "repeats": forecast["repeat_count"],
            "damage": forecast["unnoticed_damage_count"],
            "unindexed": forecast["unindexed_messages"],
            "deletes": len(deleted),
            "deleted": ", ".join(deleted[:3]) + (f" and {len(deleted) - 3} more" if len(deleted) > 3 else ""),
            "stop": forecast["stops_at"],
            "end": forecast["log_end_offset"],
        }
        same = next((other for other in rows if {**other, "versions": None} == {**row, "versions": None}), None)
        if same is None:
            rows.append(row)
        else:
            same["versions"] += f", {row['versions']}"
    return rows


def _time(timestamp_ms: int | None) -> str:
    return "unknown" if timestamp_ms is None else time_text(timestamp_ms)


def _shown(value: Any, size_max: int = TEXT_MAX) -> Any:
    """A value for a template: text without control characters, and of limited length."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    size = 0
    text = escaped(value[:size_max])
    for number, character in enumerate(text):
        size += _MARKUP.get(character) or len(character.encode())
        if size > size_max:
            return text[:number] + ELLIPSIS
    return text if len(value) <= size_max else text + ELLIPSIS


@cache
def _environment() -> Environment:
    from jinja2 import DictLoader, Environment, StrictUndefined

    environment = Environment(
        loader=DictLoader({"page.html.j2": _resource("page.html.j2")}),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["size"] = size_text
    environment.filters["counted"] = counted
    environment.filters["name"] = lambda name: _shown(name, NAME_MAX)
    return environment


@cache
def _resource(name: str) -> str:
    return files("rmqtool.report.page").joinpath(name).read_text("utf-8")


# The parts of a store as lanes over the physical offsets of its log.


def start_lanes(log: LogPicture, forecasts: Sequence[JsonObject]) -> Iterator[Lane]:
    """Ranges of the log that a start keeps, reads and discards; versions that do the same share a lane."""
    alike: dict[tuple[Any, ...], list[str]] = {}
    for forecast in forecasts:
        key = (forecast["starts"], forecast["scan_start_offset"], forecast["log_end_offset"])
        alike.setdefault(key, []).append(forecast["broker_version"])
    data_end = log.axis.end if log.end is None else log.end
    for (starts, scanned, end), versions in alike.items():
        label = f"Start of {', '.join(versions)}"
        if not starts or end is None:
            yield Lane(label, [], "no broker starts" if not starts else "does not read the log")
            continue
        read_from = min(end, end if scanned is None else scanned)
        ranges = [(log.axis.start, read_from, "kept"), (read_from, end, "read"), (end, data_end, "lost")]
        text = f"reads {read_from} to {end}"
        if end < data_end:
            text += f", discards {end} to {data_end}"
        yield Lane(label, log.axis.bars(ranges), text)


def index_lanes(log: LogPicture, index: Sequence[IndexRange], file_count: int) -> Iterator[Lane]:
    """The records that the index files span; nothing without an index."""
    filled = [file for file in index if 0 <= file.begin <= file.end and file.end]
    if filled:
        ranges = [(file.begin, file.end + 1, "index") for file in filled]
        text = f"{min(file.begin for file in filled)} to {max(file.end for file in filled)}"
        left_out = f", {len(index)} of {counted(file_count, 'file')} drawn" if len(index) < file_count else ""
        yield Lane("Index", log.axis.bars(ranges), f"{text}{left_out}")


def checkpoint_lanes(log: LogPicture, checkpoint: JsonObject | None) -> Iterator[Lane]:
    """The physical offsets of the checkpoint, as far as a broker wrote any."""
    names = {
        "consumequeue_physical_offset": "Checkpoint: queues",
        "confirm_physical_offset": "Checkpoint: confirmed",
        "master_flushed_offset": "Checkpoint: master",
    }
    width = max(1, (log.axis.end - log.axis.start) // 400)
    for name, label in names.items():
        value = (checkpoint or {}).get(name) or 0
        if value > 0:
            is_inside = log.axis.start <= value <= log.axis.end
            bars = log.axis.bars([(value, value + width, "mark")])
            yield Lane(label, bars, str(value) + ("" if is_inside else ", outside the log"))


def lanes_of_queues(log: LogPicture, queues: QueueBars) -> Iterator[Lane]:
    """Queues, or topics where there are too many."""
    log_end = log.axis.end if log.end is None else log.end
    for bar in queues.rows()[0]:
        label = bar.topic if bar.queue_id is None else f"{bar.topic}/{bar.queue_id}"
        bars = []
        if bar.begin is not None and bar.end is not None:
            ranges = [(bar.begin, min(bar.end, log_end), "queue"), (max(bar.begin, log_end), bar.end, "lost")]
            bars = log.axis.bars(ranges)
        yield Lane(label, bars, _text(log, bar))


def _text(log: LogPicture, bar: QueueBar) -> str:
    if bar.unreadable and bar.queues == bar.unreadable:
        return "cannot be read"
    text = counted(bar.messages, "message")
    if bar.queue_id is None:
        text += f" in {counted(bar.queues, 'queue')}"
    if bar.begin is None or bar.end is None:
        return text
    text += f", {bar.begin} to {bar.end}"
    if log.end is not None and bar.end > log.end:
        text += ", past the end of the log"
    return f"{text}, {bar.unreadable} not readable" if bar.unreadable else text


# The plan of a repair as rows: its steps summed by reason, and what is lost and kept by it.


REASONS_MAX: Final = 40
FILES_MAX: Final = 3
PLAN_ROWS_MAX: Final = 10


@dataclass
class StepGroup:
    """Steps that have one reason and do the same."""

    why: str
    action: str
    count: int = 0
    size: int = 0
    files: list[str] = field(default_factory=list)


def plan_section(plan: JsonObject) -> dict[str, Any]:
    """Section of the page for a plan as `recover --dry-run --format json` writes it."""
    style, text = plan_verdict(plan)
    loss = plan["loss"]
    lost = f"{counted(loss['messages'], 'message')}, {size_text(loss['bytes'])}" if loss["messages"] else "no messages"
    groups: dict[tuple[str, str], StepGroup] = {}
    for step in plan["steps"]:
        key = (step["why"], step["action"])
        group = groups.setdefault(key, StepGroup(*key))
        group.count += 1
        group.size += step["length"]
        if len(group.files) < FILES_MAX:
            group.files.append(step["file"])
    left = [f"{one['id']}: {one['message']} ({one['file']}): {one['why']}" for one in plan["remaining"][:PLAN_ROWS_MAX]]
    damage = [f"{one['id']}: {one['message']} ({one['file']})" for one in plan["damage"][:PLAN_ROWS_MAX]]
    return {
        "style": style,
        "text": text,
        "command": f"rmqtool {plan['command']} {plan['flags']}".rstrip() + " --dry-run",
        "version": plan["broker_version"],
        "groups": list(islice(groups.values(), REASONS_MAX)),
        "groups_left": max(0, len(groups) - REASONS_MAX),
        "loss": lost,
        "loss_topics": topics_text(loss["by_topic"]),
        "unreadable": _unreadable(plan.get("lost_for_good")),
        "kept": counted(plan["kept_beyond_broker"]["messages"], "message"),
        "kept_topics": topics_text(plan["kept_beyond_broker"]["by_topic"]),
        "afterwards": plan_afterwards(plan) or "not forecast",
        "abort_stays": plan["abort_stays"],
        "notes": plan["notes"][:PLAN_ROWS_MAX],
        "damage": damage,
        "damage_left": len(plan["damage"]) - len(damage),
        "left": left,
        "left_left": len(plan["remaining"]) - len(left),
        "disk": size_text(plan["disk_needed_bytes"]),
        "next": plan["next_step"],
    }


def _unreadable(lost: JsonObject | None) -> str:
    """Queue offsets of messages that `salvage` cannot keep, because they cannot be read at all."""
    if lost is None or not lost["messages"]:
        return ""
    runs = [
        f"{run['topic']}/{run['queue_id']} from queue offset {run['queue_offset']} ({run['count']})"
        for run in lost["queues"][:PLAN_ROWS_MAX]
    ]
    rest = len(lost["queues"]) - len(runs)
    text = f"{counted(lost['messages'], 'message')}: {', '.join(runs)}"
    return text + (f" and {counted(rest, 'more range')}" if rest > 0 else "")


def topics_text(by_topic: Mapping[str, int]) -> str:
    """The topics with the most messages, and how many."""
    topics: Sequence[tuple[str, int]] = sorted(by_topic.items(), key=lambda item: (-item[1], item[0]))
    named = ", ".join(f"{topic} {count}" for topic, count in topics[:PLAN_ROWS_MAX])
    rest = len(topics) - PLAN_ROWS_MAX
    return named + (f" and {counted(rest, 'more topic')}" if rest > 0 else "")
