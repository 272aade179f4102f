"""The judge reads the golden stores as they were read when they were made: same verdict, same messages, same keys."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker import Judge
from tests.broker.versions import ROUTINE
from tests.golden_stores import Queue, Read, Served, manifest, names

JudgeOf = Callable[[str], Judge]
Unpacked = Callable[[str], Path]

FEW = (
    ("5.5.0-crashed", "5.5.0"),
    ("5.5.0-cq-ext", "5.5.0"),
    ("5.5.0-inner-batch", "5.5.0"),
    ("5.5.0-damage-base", "4.9.7"),
    ("4.9.7-multi-path-crashed", "4.9.7"),
    ("4.9.7-transaction", "5.3.3"),
)


def every_read() -> Iterator[tuple[str, str]]:
    for name in names():
        for version in manifest(name).reads:
            if version in ROUTINE and (name, version) not in FEW:
                yield name, version


def examined(judge_of: JudgeOf, directory: Path, name: str, version: str) -> dict[str, Any]:
    config = dict(manifest(name).config)
    topics = config.pop("topics", {})
    return judge_of(version).examine(directory, config, topics)


@pytest.mark.parametrize(("name", "version"), FEW)
def test_golden_store_is_read_the_same(judge_of: JudgeOf, golden_copy: Unpacked, name: str, version: str) -> None:
    report = examined(judge_of, golden_copy(name), name, version)
    assert list(differences(manifest(name).reads[version], report)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "version"), list(every_read()))
def test_every_golden_store_is_read_the_same(judge_of: JudgeOf, golden_copy: Unpacked, name: str, version: str) -> None:
    report = examined(judge_of, golden_copy(name), name, version)
    assert list(differences(manifest(name).reads[version], report)) == []


def test_difference_is_noticed(judge_of: JudgeOf, golden_copy: Unpacked) -> None:
    report = examined(judge_of, golden_copy("5.5.0-clean-single"), "5.5.0-clean-single", "5.5.0")
    golden = manifest("5.5.0-clean-basic").reads["5.5.0"]
    assert len(list(differences(golden, report))) > 5


def differences(golden: Read, ours: Mapping[str, Any]) -> Iterator[str]:
    if golden.load != ours["load"]:
        yield f"load: {golden.load}, here {ours['load']}"
    if set(golden.after_load.removed) != set(ours["files"]["removed"]):
        yield f"removed by load: {golden.after_load.removed}, here {ours['files']['removed']}"
    if golden.served is None or "served" not in ours:
        if (golden.served is None) == ("served" in ours):
            yield f"served: {golden.served is not None}, here {'served' in ours}"
        return
    yield from served_differences(golden.served, ours["served"])


def served_differences(golden: Served, ours: Mapping[str, Any]) -> Iterator[str]:
    for name in ("min", "max", "confirm"):
        if golden.offsets[name] != ours["offsets"][name]:
            yield f"{name} offset: {golden.offsets[name]}, here {ours['offsets'][name]}"
    if plain(golden.commitlog) != plain(ours["commitLog"]):
        yield "walk of the log"
    queues = {(queue["topic"], queue["queueId"]): queue for queue in ours["queues"]}
    for queue in golden.queues:
        found = queues.pop((queue.topic, queue.queue_id), None)
        if found is None:
            yield f"queue {queue.topic}/{queue.queue_id} is missing"
        else:
            yield from queue_differences(queue, found)
    yield from (f"queue {topic}/{queue_id} was not there" for topic, queue_id in queues)
    keys = {key_of(row): key_result(row) for row in ours["keys"]}
    for row in golden.keys:
        if keys.get(key_of(row)) != key_result(row):
            yield f"key {key_of(row)}: {key_result(row)}, here {keys.get(key_of(row))}"


def queue_differences(golden: Queue, ours: Mapping[str, Any]) -> Iterator[str]:
    queue = f"queue {golden.topic}/{golden.queue_id}"
    for name in ("known", "min", "max", "edges"):
        if getattr(golden, name) != ours[name]:
            yield f"{queue} {name}: {getattr(golden, name)}, here {ours[name]}"
    if golden.pulls and golden.pulls != ours["pulls"]:
        yield f"{queue}: pulls"
    rows = {row[0]: row for row in plain(ours["messages"])}
    for row in plain(golden.messages):
        if rows.get(row[0]) != row:
            yield f"{queue} message: {row}, here {rows.get(row[0])}"


def plain(rows: list[list[Any]]) -> list[list[Any]]:
    """Without what a row may say further."""
    return [[cell for cell in row if not isinstance(cell, dict)] for row in rows]


def further(row: list[Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = row[3] if len(row) > 3 else {}
    return found


def key_of(row: list[Any]) -> tuple[str, str, str | None]:
    return row[0], row[1], further(row).get("type")


def key_result(row: list[Any]) -> object:
    """Of a tag the manifests hold what the index says; of a key what was served."""
    if "error" in further(row):
        return "error"
    return sorted(further(row).get("indexed", row[2]) if further(row).get("type") else row[2])
