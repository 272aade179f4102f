"""Screen of `replay`: how many messages were sent, to which topics, and what was not sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rmqtool.report.json_schemas import JsonObject
from rmqtool.report.text import counted, escaped, headline, labelled

TOPICS_MAX: Final = 20
_REASONS: Final = {
    "bad-range": "ranges of the commit log that cannot be read",
    "tombstone": "tombstones of lost messages",
    "transaction-record": "half messages and other records of transactions",
    "delivered-delayed": "delayed messages that were delivered (their delivered copies are sent)",
    "broker-topic": "messages of the broker's own topics",
    "retry-or-dead-letter": "messages of retry and dead-letter topics (send them with --topic)",
    "inner-batch": "batches in one record",
    "no-body": "messages without a body, which brokers take from no client",
    "refused": "messages that the broker refused",
}


def replay_lines(result: JsonObject, width: int, *, color: bool = False) -> Iterator[str]:
    """The lines of the screen, of the object of `replay --format json`."""
    total = sum(result["sent"].values())
    done = "Would send" if result["dry_run"] else "Sent"
    style = "good" if result["complete"] else "bad"
    yield from headline(f"{done} {counted(total, 'message')} to {escaped(result['to'])}.", style, width, color=color)
    yield ""
    topics = sorted(result["sent"].items())
    for topic, count in topics[:TOPICS_MAX]:
        target = result["topics"][topic]
        there = "" if target in result["routes"] else " (no route: create this topic first)"
        name = escaped(topic) if target == topic else f"{escaped(topic)} as {escaped(target)}"
        yield from labelled("Topic", f"{name}: {count:,}{there}", width)
    if len(topics) > TOPICS_MAX:
        yield from labelled("", f"{counted(len(topics) - TOPICS_MAX, 'more topic')}", width)
    if result["found"]:
        yield from labelled("Found", f"{result['found']:,} of them were there from an earlier run", width)
    for reason, count in sorted(result["not_sent"].items()):
        yield from labelled("Not sent", f"{count:,} {_REASONS[reason]}", width)
    for refusal in result["refusals"]:
        place = f"{escaped(refusal['topic'])} at {refusal['physical_offset']}"
        yield from labelled("Refused", f"{place}: {escaped(refusal['reason'])}", width)
