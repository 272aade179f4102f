"""What a salvage kept and gave up, as JSON and as files for a person to look into."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from rmqtool.errors import WriteError
from rmqtool.repair.salvage.damaged_ranges import DamagedRange
from rmqtool.repair.salvage.lost_records import LostRecord
from rmqtool.repair.salvage.result import SalvageResult
from rmqtool.store.directory import Store
from rmqtool.store.source import read_salvaging, reason

LOST_FOUND: Final = "lost+found"
_BLOCK: Final = 4 << 20


def outcome_json(outcome: SalvageResult) -> dict[str, Any]:
    """The part of a plan's JSON that only `salvage` has. Lost messages next to each other in a queue are one entry."""
    return {
        "lost_for_good": {
            "messages": outcome.lost_messages,
            "by_topic": dict(sorted(_by_topic(outcome.lost).items())),
            "queues": list(_runs(outcome.lost)),
        },
        "mended": {how.value: count for how, count in outcome.mended.items()},
        "mendable": {how.value: count for how, count in outcome.mendable.items()},
        "donated_bytes": outcome.donated_bytes,
        "unknown_bytes": outcome.unknown_bytes,
    }


def write_lost_found(store: Store, outcome: SalvageResult, directory: Path) -> None:
    """Save each damaged range as it is, with what is known of the messages in it, below a directory.

    Args:
        store: before anything is changed.

    Raises:
        UnreadableError, WriteError: a file cannot be read or made.
    """
    for damaged in outcome.ranges:
        if damaged.is_missing:
            continue
        place = directory / LOST_FOUND / f"{damaged.start:020d}-{damaged.end:020d}"
        known = [_described(each) for each in outcome.lost if _lies_in(each, damaged)]
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            missing = _copy(store, damaged, place.with_name(place.name + ".bin"))
            document = {"file": damaged.path, "file_position": damaged.start - damaged.file_start, "records": known}
            if missing:
                document["unreadable"] = [{"position": start, "length": end - start} for start, end in missing]
            place.with_name(place.name + ".json").write_text(json.dumps(document, indent=2) + "\n", "utf-8")
        except OSError as error:
            raise WriteError(f"{place}: {reason(error)}") from error


def _copy(store: Store, damaged: DamagedRange, place: Path) -> list[tuple[int, int]]:
    """Copy the bytes; ranges of the copy, in its own positions, that the disk did not give and that are zero."""
    missing: list[tuple[int, int]] = []
    with closing(store.view.open(damaged.path)) as source, place.open("wb") as file:
        for at in range(damaged.start, damaged.end, _BLOCK):
            buffer = bytearray(min(_BLOCK, damaged.end - at))
            position = at - damaged.file_start
            gaps = read_salvaging(source, position, memoryview(buffer))
            base = damaged.start - damaged.file_start
            missing += [(start - base, end - base) for start, end in gaps]
            file.write(buffer)
    return missing


def _lies_in(record: LostRecord, damaged: DamagedRange) -> bool:
    return record.physical_offset is not None and damaged.start <= record.physical_offset < damaged.end


def _described(record: LostRecord) -> dict[str, Any]:
    description: dict[str, Any] = {
        "topic": record.topic_name,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "physical_offset": record.physical_offset,
        "size": record.size,
    }
    if record.head is not None:
        description |= {
            "store_timestamp_ms": record.head.store_timestamp_ms,
            "born_host": record.head.born_host,
            "body_length": record.head.body_length,
            "properties": dict(record.head.properties),
        }
    return description


def _by_topic(lost: Iterable[LostRecord]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for record in lost:
        counts[record.topic_name] += record.messages
    return counts


def _runs(lost: Iterable[LostRecord]) -> Iterator[dict[str, Any]]:
    run: dict[str, Any] | None = None
    for record in sorted(lost, key=lambda each: (each.topic, each.queue_id, each.queue_offset)):
        queue = {"topic": record.topic_name, "queue_id": record.queue_id}
        if (
            run is not None
            and queue.items() <= run.items()
            and run["queue_offset"] + run["count"] == record.queue_offset
        ):
            run["count"] += record.messages
            continue
        if run is not None:
            yield run
        run = {
            **queue,
            "queue_offset": record.queue_offset,
            "count": record.messages,
            "physical_offset": record.physical_offset,
        }
    if run is not None:
        yield run
