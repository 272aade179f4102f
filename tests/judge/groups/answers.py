"""What a real broker serves of a store, message by message."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.broker.broker import Judge, OpenStore, served_places
from tests.broker.files import copy_store
from tests.broker.program import JudgeError

Place = tuple[str, int, int]
KEYS_ASKED = 24
CHANGED_BY_OFFSETS = ("messageId", "physicalOffset", "preparedTransactionOffset")
"""What of a message says where it, or its half message, lies in the log."""


@dataclass(frozen=True)
class Served:
    """All that is served, by topic, queue and queue offset.

    Attributes:
        offsets: physical offset of each message.
        contents: each message as a client decodes it.
        bounds: minimum and maximum of each queue.
        by_key: the messages that each of some keys of a topic leads to.
        removed: files that the start unlinked.
    """

    offsets: dict[Place, int]
    contents: dict[Place, dict[str, Any]]
    bounds: dict[tuple[str, int], tuple[int, int]]
    by_key: dict[tuple[str, str], set[int]]
    removed: frozenset[str]

    def by_place(self, physical_offset: int) -> Place | None:
        return next((place for place, at in self.offsets.items() if at == physical_offset), None)


def served_of(
    judge: Judge,
    store: Path,
    config: Mapping[str, object],
    topics: Mapping[str, Any],
    keys: Collection[tuple[str, str]] | None = None,
) -> Served | None:
    """Start on a copy, and ask once all is committed and dispatched; None where the broker does not start.

    Args:
        keys: to ask for; None: some of those that messages have.
    """
    copy = copy_store(store, store.parent / f"{store.name}-started-{time.monotonic_ns()}")
    try:
        opened = judge.open(copy, config, topics)
        if not opened.serving:
            opened.abandon()
            return None
        if opened.has_group:
            opened.wait_committed()
        served = _served(opened, keys)
        opened.abandon()
    except JudgeError:
        return None
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    return served


def _served(opened: OpenStore, asked: Collection[tuple[str, str]] | None) -> Served:
    read = opened.read(brief=True, contents=True)
    queues = [queue for queue in read["queues"] if "error" not in queue]
    offsets = served_places({"queues": queues})
    contents = {
        (queue["topic"], queue["queueId"], at): message
        for queue in queues
        for at, message in queue["contents"]
        if message is not None
    }
    if asked is None:
        keys = sorted({(message["topic"], key) for message in contents.values() for key in _keys(message)})
        asked = keys[:: max(1, len(keys) // KEYS_ASKED)]
    return Served(
        offsets,
        contents,
        {(queue["topic"], queue["queueId"]): (max(0, queue["min"]), queue["max"]) for queue in queues if queue["max"]},
        {key: set(opened.query(*key)["served"]) for key in asked},
        frozenset(opened.opened["files"]["removed"]),
    )


def _keys(message: Mapping[str, Any]) -> list[str]:
    properties = message["properties"]
    return [*properties.get("KEYS", "").split(), *([properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else [])]


def same_message(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether two messages differ only in what their place in the log decides."""
    names = (before.keys() | after.keys()) - set(CHANGED_BY_OFFSETS)
    return all(before.get(name) == after.get(name) for name in names)


def is_of(message: Mapping[str, Any], place: Place) -> bool:
    """Whether a message says itself that it is at this place."""
    return (message["topic"], message["queueId"], message["queueOffset"]) == place
