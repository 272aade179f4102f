"""Screen of `extract` and `merge`: the content of the new store, and what was left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rmqtool.report.json_schemas import JsonObject
from rmqtool.report.text import counted, escaped, headline, labelled

QUEUES_MAX: Final = 20
_REASONS: Final = {
    "bad-range": "ranges of a commit log that cannot be read; run rmqtool salvage first to keep their place",
    "waiting": "delayed messages that still wait; rmqtool replay sends them",
    "transaction-record": "half messages and other records of transactions",
    "tombstone": "tombstones of lost messages",
}


def new_store_lines(result: JsonObject, width: int, *, color: bool = False) -> Iterator[str]:
    """The lines of the screen, of the object of `extract --format json`."""
    style = "good" if result["complete"] else "bad"
    count = counted(result["messages"], "message")
    done = f"Would write {count} to" if result["dry_run"] else f"Wrote {count} to"
    yield from headline(f"{done} {escaped(result['output'])}.", style, width, color=color)
    yield ""
    queues = result["queues"]
    for queue in queues[:QUEUES_MAX]:
        name = f"{escaped(queue['topic'])}/{queue['queue_id']}"
        text = f"{name}: {counted(queue['messages'], 'message')}, queue offsets {queue['min_queue_offset']} to "
        yield from labelled("Queue", text + str(queue["max_queue_offset"] - 1), width)
    if len(queues) > QUEUES_MAX:
        yield from labelled("", counted(len(queues) - QUEUES_MAX, "more queue"), width)
    for reason, number in result["left_out"].items():
        yield from labelled("Left out", f"{number:,} {_REASONS[reason]}", width)
    for problem in result["problems"]:
        yield from labelled("Not read", escaped(problem), width)
    for note in result["notes"]:
        yield from labelled("Note", escaped(note), width)
    if not result["dry_run"]:
        yield from labelled("Next", f"rmqtool verify {escaped(result['output'])}", width)
