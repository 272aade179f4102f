"""The plan of a repair as rows: its steps summed by reason, and what is lost and kept by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from rmqtool.report.json_schemas import JsonObject
from rmqtool.report.screens.repair_screen import plan_afterwards, plan_verdict
from rmqtool.report.text import counted, size_text

REASONS_MAX: Final = 40
FILES_MAX: Final = 3
ROWS_MAX: Final = 10


@dataclass
class StepGroup:
    """Steps that have one reason and do the same."""

    why: str
    action: str
    count: int = 0
    size: int = 0
    files: list[str] = field(default_factory=list)


def plan_section(plan: JsonObject) -> dict[str, Any]:
    """What the page says of a plan.

    Args:
        plan: as `recover --dry-run --format json` writes it.
    """
    style, text = plan_verdict(plan)
    groups: dict[tuple[str, str], StepGroup] = {}
    for step in plan["steps"]:
        key = (step["why"], step["action"])
        group = groups.setdefault(key, StepGroup(*key))
        group.count += 1
        group.size += step["length"]
        if len(group.files) < FILES_MAX:
            group.files.append(step["file"])
    left = [f"{one['id']}: {one['message']} ({one['file']}): {one['why']}" for one in plan["remaining"][:ROWS_MAX]]
    damage = [f"{one['id']}: {one['message']} ({one['file']})" for one in plan["damage"][:ROWS_MAX]]
    return {
        "style": style,
        "text": text,
        "command": f"rmqtool {plan['command']} {plan['flags']}".rstrip() + " --dry-run",
        "version": plan["broker_version"],
        "groups": list(islice(groups.values(), REASONS_MAX)),
        "groups_left": max(0, len(groups) - REASONS_MAX),
        "loss": _amount(plan["loss"]),
        "loss_topics": topics_text(plan["loss"]["by_topic"]),
        "unreadable": _unreadable(plan.get("lost_for_good")),
        "kept": counted(plan["kept_beyond_broker"]["messages"], "message"),
        "kept_topics": topics_text(plan["kept_beyond_broker"]["by_topic"]),
        "afterwards": plan_afterwards(plan) or "not forecast",
        "abort_stays": plan["abort_stays"],
        "notes": plan["notes"][:ROWS_MAX],
        "damage": damage,
        "damage_left": len(plan["damage"]) - len(damage),
        "left": left,
        "left_left": len(plan["remaining"]) - len(left),
        "disk": size_text(plan["disk_needed_bytes"]),
        "next": plan["next_step"],
    }


def _unreadable(lost: JsonObject | None) -> str:
    """What `salvage` cannot keep, because nothing of it can be read: queue offsets."""
    if lost is None or not lost["messages"]:
        return ""
    runs = [
        f"{run['topic']}/{run['queue_id']} from queue offset {run['queue_offset']} ({run['count']})"
        for run in lost["queues"][:ROWS_MAX]
    ]
    rest = len(lost["queues"]) - len(runs)
    text = f"{counted(lost['messages'], 'message')}: {', '.join(runs)}"
    return text + (f" and {counted(rest, 'more range')}" if rest > 0 else "")


def topics_text(by_topic: Mapping[str, int]) -> str:
    """The topics with the most messages, and how many."""
    topics: Sequence[tuple[str, int]] = sorted(by_topic.items(), key=lambda item: (-item[1], item[0]))
    named = ", ".join(f"{topic} {count}" for topic, count in topics[:ROWS_MAX])
    rest = len(topics) - ROWS_MAX
    return named + (f" and {counted(rest, 'more topic')}" if rest > 0 else "")


def _amount(loss: JsonObject) -> str:
    if not loss["messages"]:
        return "no messages"
    return f"{counted(loss['messages'], 'message')}, {size_text(loss['bytes'])}"
