"""What a person asks of `get`."""

from __future__ import annotations

from dataclasses import dataclass

from rmqtool.engine.queues.unit import Boundary


@dataclass(frozen=True)
class Question:
    """What a person looks for; times in ms."""

    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    count: int | None
    tag: str | None
    message_id: str | None
    key: str | None
    from_ms: int | None
    to_ms: int | None
    at_ms: int | None
    boundary: Boundary
