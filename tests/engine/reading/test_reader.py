"""The reader gives every answer that real brokers gave, over every store that their load left as it was."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import Unpacked
from tests.engine.reading.golden_answers import differences, open_golden
from tests.golden_effects import load_effects
from tests.golden_stores import manifest, names

UNCOMPARED = Path(__file__).with_name("uncompared.json")
"""Per store and reader why its answers say nothing about the packed files: what its load changed."""
LEAST = {
    "queues": 3500,
    "edges": 21000,
    "pulls": 5000,
    "messages": 57000,
    "extensions": 600,
    "batches": 50,
    "times": 23000,
    "times without doubt": 23000,
    "keys": 56000,
}
"""What must have been compared in all, so that nothing falls out unnoticed."""

_compared: Counter[str] = Counter()
_uncompared: dict[str, dict[str, str]] = {}


@pytest.mark.parametrize("name", names())
def test_every_answer_is_the_brokers(golden: Unpacked, name: str) -> None:
    path = golden(name)
    wrong: list[str] = []
    for version, read in manifest(name).reads.items():
        effects = load_effects(name, version, path)
        if effects:
            _uncompared.setdefault(name, {})[version] = reason(effects)
        if any(not effect.startswith("index/") for effect in effects):
            continue
        assert read.served is not None
        with open_golden(path, name, version) as reader:
            wrong += [
                f"{version}: {difference}"
                for difference in differences(reader, read.served, _compared, keys=not effects)
            ]
    assert wrong == []


def test_enough_was_compared_and_the_rest_is_listed(request: pytest.FixtureRequest) -> None:
    if len([item for item in request.session.items if item.name.startswith("test_every_answer")]) < len(names()):
        pytest.skip("only some stores were compared in this run")
    assert {kind: count for kind, count in LEAST.items() if _compared[kind] < count} == {}, _compared
    if request.config.getoption("--rewrite"):
        UNCOMPARED.write_text(json.dumps(_uncompared, indent=1) + "\n", "utf-8")
    assert _uncompared == json.loads(UNCOMPARED.read_text("utf-8"))


def reason(effects: list[str]) -> str:
    """The first effect that hinders most; the names of index files are times, and only lookups by key need them."""
    effects = sorted(effects, key=lambda effect: effect.startswith("index/"))
    first = effects[0]
    if first.startswith("index/"):
        return "index files are removed, added or changed, so queries by key are left out"
    return first if len(effects) == 1 else f"{first} (and {len(effects) - 1} more)"
