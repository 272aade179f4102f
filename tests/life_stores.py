"""The stores of a life: healthy stores to which people did what people do, and what a broker serves of each.

What the fields mean is said in tests/golden/life/README.md; `golden_stores.unpack` unpacks one. Like that module, this
one uses nothing of rmqtool.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.golden_stores import LIFE_FOLDER

FOUND = "FOUND"

Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


@dataclass(frozen=True)
class LifeStore:
    """What the broker of version `asked` serves of a store, started with `config`."""

    name: str
    asked: str
    config: Mapping[str, Any]
    load: bool
    bounds: Mapping[tuple[str, int], tuple[int, int]]
    """Smallest and largest offset of each queue."""
    served: Mapping[Place, int]
    """Physical offset of each message that a consumer gets."""


def names() -> list[str]:
    """All of them."""
    return sorted(path.stem for path in LIFE_FOLDER.glob("*.json"))


@cache
def life_store(name: str) -> LifeStore:
    """What is known of one; shared, so not to be changed."""
    raw = json.loads((LIFE_FOLDER / f"{name}.json").read_text("utf-8"))
    bounds: dict[tuple[str, int], tuple[int, int]] = {}
    served: dict[Place, int] = {}
    for queue, answer in raw["queues"].items():
        topic, _, queue_id = queue.rpartition("/")
        bounds[topic, int(queue_id)] = answer["min"], answer["max"]
        for queue_offset, physical_offset, status in answer["messages"]:
            if status == FOUND:
                served[topic, int(queue_id), queue_offset] = physical_offset
    return LifeStore(raw["name"], raw["asked"], raw["config"], raw["load"], bounds, served)
