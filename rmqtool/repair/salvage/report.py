"""Result of salvage: what is lost, what was kept and how; as JSON and as files for a person."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from rmqtool.errors import WriteError
from rmqtool.formats.queue_name import QueueName
from rmqtool.repair.salvage.damaged_ranges import DamagedRange
from rmqtool.repair.salvage.lost_records import LostRecord
from rmqtool.repair.salvage.record_repair import RepairedRecord
from rmqtool.store.directory import Store
from rmqtool.store.source import read_salvaging, reason


@dataclass
class SalvageResult:
    """Result of a salvage.

    Attributes:
        lost: records that are given up for good.
        repaired: how many records were kept, by how.
        repairable: how many of the lost ones could be kept if a person agreed to it.
        replica_bytes: bytes that came from replicas.
        unknown_bytes: damaged bytes of which nobody knows what they held.
        ranges: the damage, as it was found.
        queues: those that lost a message, which are built again in any case.
        left: physical offsets of records whose headers are wrong, and stay as they are.
        notes: sentences for a person.
    """

    lost: list[LostRecord] = field(default_factory=list)
    repaired: Counter[RepairedRecord] = field(default_factory=Counter)
    repairable: Counter[RepairedRecord] = field(default_factory=Counter)
    replica_bytes: int = 0
    unknown_bytes: int = 0
    ranges: tuple[DamagedRange, ...] = ()
    queues: list[QueueName] = field(default_factory=list)
    left: list[int | None] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __add__(self, other: SalvageResult) -> SalvageResult:
        return SalvageResult(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    @property
    def lost_messages(self) -> int:
        """Messages that are lost for good, as far as anything tells of them."""
        return sum(record.messages for record in self.lost)

    @property
    def why(self) -> str:
        """Reason for the change of the log, for a plan."""
        parts = []
        if self.lost:
            parts.append("replace unreadable records with tombstones")
        if self.replica_bytes:
            parts.append("copy records from replicas")
        if self.repaired:
            parts.append("correct damaged records")
        if self.unknown_bytes or not parts:
            parts.append("bridge damage in the commit log")
        return ", ".join(parts)


LOST_FOUND: Final = "lost+found"
_BLOCK: Final = 4 << 20


def outcome_json(outcome: SalvageResult) -> dict[str, Any]:
    """The part of a plan's JSON that only `salvage` has. Lost messages next to each other in a queue are one entry."""
    counts: Counter[str] = Counter()
    for record in outcome.lost:
        counts[record.topic_name] += record.messages
    return {
        "lost_for_good": {
            "messages": outcome.lost_messages,
            "by_topic": dict(sorted(counts.items())),
            "queues": list(_runs(outcome.lost)),
        },
        "mended": {how.value: count for how, count in outcome.repaired.items()},
        "mendable": {how.value: count for how, count in outcome.repairable.items()},
        "donated_bytes": outcome.replica_bytes,
        "unknown_bytes": outcome.unknown_bytes,
    }


def write_lost_found(store: Store, outcome: SalvageResult, directory: Path) -> None:
    """Save each damaged range as it is, with the known facts about its messages, below a directory.

    Args:
        store: before anything is changed.
    """
    for damaged in outcome.ranges:
        if damaged.is_missing:
            continue
        place = directory / LOST_FOUND / f"{damaged.start:020d}-{damaged.end:020d}"
        known = [
            _described(record)
            for record in outcome.lost
            if record.physical_offset is not None and damaged.start <= record.physical_offset < damaged.end
        ]
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
    """Copy the bytes; return ranges of the copy, in its own positions, that could not be read and are zero."""
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


def _runs(lost: Iterable[LostRecord]) -> Iterator[dict[str, Any]]:
    run: dict[str, Any] | None = None
    for record in sorted(lost, key=lambda one: (one.topic, one.queue_id, one.queue_offset)):
        queue = {"topic": record.topic_name, "queue_id": record.queue_id}
        is_next = run is not None and run["queue_offset"] + run["count"] == record.queue_offset
        if run is not None and is_next and queue.items() <= run.items():
            run["count"] += record.messages
            continue
        if run is not None:
            yield run
        row = {"queue_offset": record.queue_offset, "count": record.messages}
        run = {**queue, **row, "physical_offset": record.physical_offset}
    if run is not None:
        yield run
