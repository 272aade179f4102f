"""The judge reads the golden stores as they were read when they were made: same verdict, same messages, same keys."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker import Judge
from tests.broker.versions import ROUTINE
from tests.golden_stores import Queue, Served, config_and_topics, manifest, names

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
    return judge_of(version).examine(directory, *config_and_topics(name))


@pytest.mark.parametrize(("name", "version"), FEW)
def test_golden_store_is_read_the_same(judge_of: JudgeOf, golden_copy: Unpacked, name: str, version: str) -> None:
    report = examined(judge_of, golden_copy(name), name, version)
    assert list(differences(name, version, report)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "version"), list(every_read()))
def test_every_golden_store_is_read_the_same(judge_of: JudgeOf, golden_copy: Unpacked, name: str, version: str) -> None:
    report = examined(judge_of, golden_copy(name), name, version)
    assert list(differences(name, version, report)) == []


def test_difference_is_noticed(judge_of: JudgeOf, golden_copy: Unpacked) -> None:
    report = examined(judge_of, golden_copy("5.5.0-clean-single"), "5.5.0-clean-single", "5.5.0")
    assert len(list(differences("5.5.0-clean-basic", "5.5.0", report))) > 5


def differences(name: str, version: str, ours: Mapping[str, Any]) -> Iterator[str]:
    golden = manifest(name).reads[version]
    if golden.load != ours["load"]:
        yield f"load: {golden.load}, here {ours['load']}"
    if set(golden.after_load.removed) != set(ours["files"]["removed"]):
        yield f"removed by load: {golden.after_load.removed}, here {ours['files']['removed']}"
    if golden.served is None or "served" not in ours:
        if (golden.served is None) == ("served" in ours):
            yield f"served: {golden.served is not None}, here {'served' in ours}"
        return
    if index_count(golden.after_visit.added) != index_count(ours["filesAfter"]["added"]):
        # The broker names an index file by the millisecond. Small ones that it makes within one share name and content.
        ours = {**ours, "served": {**ours["served"], "keys": []}}
        golden_served = replace(golden.served, keys=[])
    else:
        golden_served = golden.served
    fields = {record.at: record.physical_offset for record in manifest(name).records}
    yield from served_differences(golden_served, ours["served"], fields)


def index_count(paths: Iterable[str]) -> int:
    return sum(path.startswith("index/") for path in paths)


def served_differences(golden: Served, ours: Mapping[str, Any], fields: Mapping[int, int]) -> Iterator[str]:
    for name in ("min", "max", "confirm"):
        if golden.offsets[name] != ours["offsets"][name]:
            yield f"{name} offset: {golden.offsets[name]}, here {ours['offsets'][name]}"
    if plain(golden.commitlog) != plain(ours["commitLog"]):
        ours_log = plain(ours["commitLog"])
        yield f"walk of the log: {[row for row in plain(golden.commitlog) if row not in ours_log]}, here " + str(
            [row for row in ours_log if row not in plain(golden.commitlog)]
        )
    queues = {(queue["topic"], queue["queueId"]): queue for queue in ours["queues"]}
    for queue in golden.queues:
        found = queues.pop((queue.topic, queue.queue_id), None)
        if found is None:
            yield f"queue {queue.topic}/{queue.queue_id} is missing"
        else:
            yield from queue_differences(queue, found)
    yield from (f"queue {topic}/{queue_id} was not there" for topic, queue_id in queues)
    keys = {key_of(row): row for row in ours["keys"]}
    for row in golden.keys:
        if key_of(row) not in keys:
            yield f"key {key_of(row)} was not asked for"
        elif (wanted := key_result(row)) is not None and wanted != (found := key_result(keys[key_of(row)], fields)):
            yield f"key {key_of(row)}: {wanted}, here {found}"


def queue_differences(golden: Queue, ours: Mapping[str, Any]) -> Iterator[str]:
    queue = f"queue {golden.topic}/{golden.queue_id}"
    for name in ("known", "min", "max", "edges"):
        if getattr(golden, name) != ours[name]:
            yield f"{queue} {name}: {getattr(golden, name)}, here {ours[name]}"
    if golden.pulls and golden.pulls != ours["pulls"]:
        yield f"{queue}: pulls"
    rows = {row[0]: row for row in plain(resolved(ours["messages"]))}
    for row in plain(resolved(golden.messages)):
        if rows.get(row[0]) != row:
            yield f"{queue} message: {row}, here {rows.get(row[0])}"


def plain(rows: list[list[Any]]) -> list[list[Any]]:
    """Without what a row may say further."""
    return [[cell for cell in row if not isinstance(cell, dict)] for row in rows]


def resolved(rows: list[list[Any]]) -> list[list[Any]]:
    """With the tags code of the extension unit in place of its address: some reads had the one, some the other."""
    return [
        [*row[:3], [*row[3][:2], row[4]["ext"]["tagsCode"]]] if len(row) > 4 and "ext" in row[4] else row
        for row in rows
    ]


def further(row: list[Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = row[3] if len(row) > 3 else {}
    return found


def key_of(row: list[Any]) -> tuple[str, str, str | None]:
    return row[0], row[1], further(row).get("type")


def key_result(row: list[Any], fields: Mapping[int, int] | None = None) -> object:
    """What a lookup found: of a tag what the index says, of a key what was served, by the records' own offset fields.

    None where the maker of the manifest failed to decode what the broker served: nothing to compare with.
    """
    error = further(row).get("error")
    if error is not None:
        return "endless" if error == "never ends" or error.startswith("timed out") else None
    if further(row).get("type"):
        return sorted(further(row).get("indexed", row[2]))
    return [(fields or {}).get(place, place) for place in row[2]]
