"""What a broker has lost on a damaged store, told by what it served of the healthy one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmqtool.fixtures.damages.damage import Damage, Harm, damage_store
from rmqtool.fixtures.recipe import Recipe, make_store
from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.writing import judge_topics

Answer = Mapping[str, Any]
SEED = 3


class HealthyStores:
    """Stores made from recipes, each with what a broker serves of a copy of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[tuple[str, str], tuple[Path, dict[str, Any]]] = {}

    def of(self, recipe: Recipe, judge: Judge) -> tuple[Path, dict[str, Any]]:
        """The store, never opened by a broker, and the broker's report on a copy."""
        name = (recipe.name, judge.version)
        if name not in self._made:
            path = self._folder / f"{recipe.name}-{judge.version}"
            make_store(recipe, path, judge.version, SEED)
            self._made[name] = path, examined(recipe, copy_store(path, path.with_suffix(".read")), judge)
        return self._made[name]


def examined(recipe: Recipe, directory: Path, judge: Judge) -> dict[str, Any]:
    return judge.examine(directory, recipe.settings, judge_topics(recipe), times=0)


def damaged(damage: Damage, recipe: Recipe, healthy: Path, directory: Path, judge: Judge) -> dict[str, Any]:
    """The broker's report on a damaged copy."""
    copy_store(healthy, directory)
    assert damage_store(damage, directory, SEED, recipe.conf.settings())
    return examined(recipe, directory, judge)


def harm_seen(healthy: Answer, found: Answer) -> Harm:
    """The harm that a broker's two reports tell of."""
    if "served" not in found:
        return Harm.NO_LOAD
    if not messages(healthy["served"]).items() <= messages(found["served"]).items():
        return Harm.MESSAGES
    if not keys(healthy["served"]) <= keys(found["served"]):
        return Harm.KEYS
    return Harm.NOTHING


def messages(served: Answer) -> dict[tuple[str, int, int], Any]:
    """What is served as it was put: queue and queue offset to the place, the record's fields and the unit."""
    bad = {row[0] for row in served["commitLog"] if len(row) > 2}
    records = {row[0]: row[1:] for row in served["records"]}
    return {
        (queue["topic"], queue["queueId"], row[0]): (row[2], records.get(row[2]), *row[3:])
        for queue in served["queues"]
        for row in queue.get("messages", ())  # a queue at which the broker throws serves none
        if row[1] == "FOUND" and row[2] not in bad
    }


def keys(served: Answer) -> set[tuple[str, str, int]]:
    """(topic, key, place) of every message that is found by a key."""
    return {(row[0], row[1], place) for row in served["keys"] if not _is_tag(row) for place in row[2]}


def _is_tag(row: list[Any]) -> bool:
    return len(row) > 3 and bool(row[3].get("type"))
