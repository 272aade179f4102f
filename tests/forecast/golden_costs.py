"""What a real broker's start cost, out of its answers: messages lost, keys gone, index entries repeated.

Nothing of rmqtool takes part in finding out which messages were intact: a manifest knows the CRC of all their bytes.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rmqtool.engine.reading.reader import Reader
from rmqtool.forecast.result import Forecast
from tests.golden_stores import Read, Record, Row, Served, manifest

TRANSACTION = 0xC
WITHOUT_QUEUE = (0x4, 0xC)
ROLLBACK = 0xC
LOOKUP_MAX = 64
FILLER_SIZE = 0x7FFFFFFF


def found_intact(path: Path, name: str) -> list[Record]:
    """The records of a store's log all of whose bytes are as a broker wrote them, each where it says it lies."""
    described = manifest(name)
    directories = described.config.get("storePathCommitLog", "commitlog").split(",")
    files = sorted((file for folder in directories for file in (path / folder).glob("[0-9]*")), key=lambda f: f.name)
    contents = {int(file.name): file.read_bytes() for file in files if file.is_file() and file.name.isdigit()}
    base = manifest(described.base) if described.base else described
    intact = []
    for record in base.records:
        start = max((start for start in contents if start <= record.at), default=None)
        if start is None or record.physical_offset != record.at:
            continue
        raw = contents[start][record.at - start : record.at - start + record.size]
        if len(raw) == record.size and zlib.crc32(raw) == record.record_crc32 & 0xFFFFFFFF:
            intact.append(record)
    return intact


def cost_differences(
    forecast: Forecast, read: Read, intact: Sequence[Record], before: Reader, compared: Counter[str]
) -> Iterator[str]:
    """Where a forecast's losses are not those of a reader; `before` reads the store as it is packed."""
    assert read.served is not None
    places, cut = _served_places(read.served)
    queued = [record for record in intact if record.sys_flag & TRANSACTION not in WITHOUT_QUEUE]
    lost = [found for found in queued if found.at not in places or cut.get(found.at, found.size) < found.size]
    by_topic = Counter(record.topic for record in lost)
    compared["lost"] += len(lost)
    if (forecast.lost.messages, forecast.lost.by_topic) != (len(lost), dict(by_topic)):
        yield f"lost {forecast.lost.by_topic}, not {dict(by_topic)}"
    elif forecast.lost.bytes != sum(record.size for record in lost):
        yield f"lost {forecast.lost.bytes} bytes, not {sum(record.size for record in lost)}"
    yield from _index_differences(forecast, read.served, intact, before, compared)


def _index_differences(
    forecast: Forecast, served: Served, intact: Sequence[Record], before: Reader, compared: Counter[str]
) -> Iterator[str]:
    if any(len(row) > 3 and "error" in row[3] for row in served.keys):
        return  # a lookup that never ends says nothing about the index
    by_place = {record.at: record for record in intact}
    indexed: set[int] = set()
    repeated = 0
    for row in served.keys:
        offsets = Counter(_indexed(row))
        if offsets.total() >= LOOKUP_MAX or (len(row) > 3 and "type" in row[3]):
            continue  # the answer is cut off; lookups by tag were not made for all tags
        indexed.update(offsets)
        found = before.query_message(row[0], row[1], LOOKUP_MAX)
        known = Counter(found.indexed_physical_offsets)
        for at, count in offsets.items():
            natural = _keys(by_place[at]).count(row[1]) if at in by_place else 1
            repeated += max(0, count - max(natural, known[at]))
    end = forecast.log_end_offset or 0
    keyed = [record for record in intact if record.at + record.size <= end and _keys(record)]
    missing = sum(record.at not in indexed for record in keyed)
    compared["keys missing"] += missing
    compared["keys repeated"] += repeated
    if forecast.unindexed_messages != missing:
        yield f"{forecast.unindexed_messages} messages without index entry, not {missing}"
    if not before.rules.index_tags and forecast.duplicate_index_entries != repeated:
        yield f"{forecast.duplicate_index_entries} index entries repeated, not {repeated}"


def _indexed(row: Row) -> list[int]:
    further = row[3] if len(row) > 3 else {}
    found: list[int] = further.get("indexed", row[2])
    return found


def _keys(record: Record) -> list[str]:
    if record.sys_flag & TRANSACTION == ROLLBACK:
        return []
    found = [record.properties.get("UNIQ_KEY", ""), *record.properties.get("KEYS", "").split(" ")]
    return [key for key in found if key]


def _served_places(served: Served) -> tuple[set[int], dict[int, int]]:
    """The places that are handed out, and how many bytes of each: nobody can decode what a unit gives in part only."""
    places: set[int] = set()
    sizes: dict[int, int] = {}
    for queue in served.queues:
        for _, _, place, unit, *_ in queue.messages:
            # A unit of physical offset 0 is answered with the log's first bytes, though its own record has expired.
            if place is not None and not (place > 0 and unit is not None and unit[0] == 0 and unit[1] < FILLER_SIZE):
                places.add(place)
            if unit is not None and unit[0] == place:
                sizes[place] = max(sizes.get(place, 0), unit[1])
    return places, sizes
