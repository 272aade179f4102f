"""The golden stores: which there are, their manifests with everything spelt out, and how to unpack one.

What the fields mean is said in tests/golden/README.md. Nothing here uses rmqtool, so that the two can be compared.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "golden"
LIFE_FOLDER = FOLDER / "life"
SUFFIX = ".tar.xz"

Row = list[Any]


@dataclass(frozen=True)
class Settings:
    """The sizes a store was written with: bytes of a commitlog and a queue file, slots and entries of an index file."""

    commitlog_file_size: int
    consumequeue_file_size: int
    index_slot_count: int
    index_entry_count: int


@dataclass(frozen=True)
class Record:
    """A commitlog record as a broker decoded it."""

    at: int
    size: int
    magic: int
    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    msg_id: str
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    store_timestamp_ms: int
    born_host: str
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    properties: Mapping[str, str]
    body_length: int
    body_crc32: int
    """CRC-32 of the stored body, all 32 bits."""
    body_crc_field: int
    """What the record says, which is without the top bit even where it is right."""
    body_crc_bad: bool
    record_crc32: int
    """CRC-32 of all bytes of the record."""
    tags_code: int


@dataclass(frozen=True)
class Queue:
    """What one reader answers about one queue; the rows are those of the README. An empty queue has edges only."""

    topic: str
    queue_id: int
    known: bool
    min: int
    max: int
    edges: Mapping[str, Row]
    pulls: list[Row]
    messages: list[Row]
    by_time: list[Mapping[str, int]]


@dataclass(frozen=True)
class Served:
    """What one reader answers once it runs."""

    offsets: Mapping[str, int]
    commitlog: list[Row]
    queues: list[Queue]
    keys: list[Row]

    def queue(self, topic: str, queue_id: int) -> Queue:
        """The answers about one queue."""
        (found,) = (queue for queue in self.queues if (queue.topic, queue.queue_id) == (topic, queue_id))
        return found


@dataclass(frozen=True)
class FileChanges:
    """Files by path: their lengths before (removed) or after (added, changed)."""

    removed: Mapping[str, int | None]
    added: Mapping[str, int | None]
    changed: Mapping[str, int | None]

    def paths(self) -> list[str]:
        return sorted({*self.removed, *self.added, *self.changed})


@dataclass(frozen=True)
class Read:
    """One reader's visit. `raw` has what is not named here; `served` is None where the store did not load."""

    version: str
    load: bool
    crashed: bool
    after_load: FileChanges
    after_visit: FileChanges
    served: Served | None
    raw: Mapping[str, Any]


@dataclass(frozen=True)
class Manifest:
    """All that is known of a store that was written through the store library."""

    name: str
    writer: str
    about: str
    config: Mapping[str, Any]
    base: str | None
    damage: list[Mapping[str, Any]]
    files: Mapping[str, int | None]
    records: list[Record]
    """All records, in order of the log; of a damaged store those of its base, replaced where readers found another."""
    differing_records: list[Record]
    """Of a damaged store: those that are not in its base."""
    reads: Mapping[str, Read]
    raw: Mapping[str, Any]


def config_and_topics(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a broker is started with on this store: its settings, and the topics by their names."""
    config = dict(broker_manifest(name)["config"] if name.startswith("broker-") else manifest(name).config)
    return config, config.pop("topics", {})


def names() -> list[str]:
    """Stores written through the store library."""
    return [name for name in _archives() if not name.startswith("broker-")]


def broker_names() -> list[str]:
    """Stores written by a whole broker."""
    return [name for name in _archives() if name.startswith("broker-")]


def healthy_names() -> list[str]:
    """Undamaged stores that were stopped cleanly."""
    return _where(lambda found: not found.damage and not _crashed(found))


def crashed_names() -> list[str]:
    """Undamaged stores whose broker was killed."""
    return _where(lambda found: not found.damage and _crashed(found))


def damaged_names() -> list[str]:
    """Stores that were edited after they were written."""
    return _where(lambda found: bool(found.damage))


@cache
def manifest(name: str) -> Manifest:
    """The manifest of a store of `names()`; shared, so not to be changed."""
    raw = _read_json(name)
    base = manifest(raw["base"]) if raw.get("base") else None
    differing = [_record(found, raw["recordDefaults"]) for found in raw["records"]]
    by_place = {record.at: record for record in base.records} if base else {}
    by_place.update((record.at, record) for record in differing)
    reads: dict[str, Read] = {}
    for version, visit in raw["reads"].items():
        reads[version] = _read(version, visit, reads, base.reads.get(version) if base else None)
    return Manifest(
        name=raw["name"],
        writer=raw["writer"],
        about=raw["about"],
        config=raw["config"],
        base=raw.get("base"),
        damage=raw.get("damage", []),
        files=raw["files"],
        records=[by_place[at] for at in sorted(by_place)],
        differing_records=differing,
        reads=reads,
        raw=raw,
    )


@cache
def broker_manifest(name: str) -> Mapping[str, Any]:
    """The manifest of a store of `broker_names()`, as it is in the file; shared, so not to be changed."""
    found: Mapping[str, Any] = _read_json(name)
    return found


def settings(name: str) -> Settings:
    """The sizes of any store; what its manifest does not name has the broker's default."""
    config = broker_manifest(name)["config"] if name.startswith("broker-") else manifest(name).config
    return Settings(
        commitlog_file_size=config.get("mappedFileSizeCommitLog", 1 << 30),
        consumequeue_file_size=config.get("mappedFileSizeConsumeQueue", 300_000 * 20),
        index_slot_count=config.get("maxHashSlotNum", 5_000_000),
        index_entry_count=config.get("maxIndexNum", 5_000_000 * 4),
    )


def more_verdicts(name: str) -> Mapping[str, Any]:
    """Short verdicts by version of readers that the manifest leaves out."""
    found: Mapping[str, Any] = _more_verdicts().get(name, {})
    return found


def unpack(name: str, folder: Path) -> Path:
    """Unpack a store, one of a life too, into `folder`, holes and modification times kept; the store's path."""
    archives = FOLDER if name in _archives() else LIFE_FOLDER
    with tarfile.open(archives / f"{name}{SUFFIX}") as archive:
        # The first patch releases of Python 3.11 have no filters; the argument of extractall would be an error there.
        archive.extraction_filter = getattr(tarfile, "tar_filter", None)
        archive.extractall(folder)  # noqa: S202 - our own archives, and filtered
    return folder / name


@cache
def _archives() -> tuple[str, ...]:
    return tuple(sorted(path.name.removesuffix(SUFFIX) for path in FOLDER.glob(f"*{SUFFIX}")))


@cache
def _more_verdicts() -> dict[str, Any]:
    found: dict[str, Any] = _read_json("more-verdicts")
    return found


def _read_json(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text("utf-8"))


def _where(wanted: Callable[[Manifest], bool]) -> list[str]:
    return [name for name in names() if wanted(manifest(name))]


def _crashed(found: Manifest) -> bool:
    return any(read.crashed for read in found.reads.values())


def _record(found: Mapping[str, Any], defaults: Mapping[str, Any]) -> Record:
    whole = {"physicalOffset": found["at"], **defaults, **found}
    by_rule = whole["bodyCrc32"] & 0x7FFFFFFF if whole["bodyLength"] else 0
    return Record(
        at=whole.pop("at"),
        size=whole.pop("size"),
        magic=int.from_bytes(bytes.fromhex(whole.pop("magic")), "big", signed=True),
        physical_offset=whole.pop("physicalOffset"),
        topic=whole.pop("topic"),
        queue_id=whole.pop("queueId"),
        queue_offset=whole.pop("queueOffset"),
        msg_id=whole.pop("msgId"),
        flag=whole.pop("flag"),
        sys_flag=whole.pop("sysFlag"),
        born_timestamp_ms=whole.pop("bornTimestamp"),
        store_timestamp_ms=whole.pop("storeTimestamp"),
        born_host=whole.pop("bornHost"),
        store_host=whole.pop("storeHost"),
        reconsume_times=whole.pop("reconsumeTimes"),
        prepared_transaction_offset=whole.pop("preparedTransactionOffset"),
        properties=whole.pop("properties") or {},
        body_length=whole.pop("bodyLength"),
        body_crc32=whole.pop("bodyCrc32"),
        body_crc_field=whole.pop("bodyCrcField", by_rule),
        body_crc_bad=whole.pop("badCrc", False),
        record_crc32=whole.pop("recordCrc32"),
        tags_code=whole.pop("tagsCode"),
        **whole,  # a field that is not known here is an error, not to be passed over
    )


def _read(version: str, raw: Mapping[str, Any], earlier: Mapping[str, Read], base: Read | None) -> Read:
    return Read(
        version=version,
        load=raw["load"],
        crashed=raw["lastExit"] == "abnormal",
        after_load=FileChanges(**raw["afterLoad"]["files"]),
        after_visit=FileChanges(**raw["filesAfter"]),
        served=_served(raw["served"], earlier, base) if "served" in raw else None,
        raw=raw,
    )


def _served(raw: Mapping[str, Any], earlier: Mapping[str, Read], base: Read | None) -> Served:
    def named(text: str) -> Served:
        source = base if text == "as base" else earlier[text.removeprefix("as ")]
        assert source is not None
        assert source.served is not None
        return source.served

    def queue(found: Mapping[str, Any]) -> Queue:
        def part(key: str, attribute: str, empty: Any) -> Any:
            value = found.get(key, empty)
            if isinstance(value, str):
                return getattr(named(value).queue(found["topic"], found["queueId"]), attribute)
            return value

        return Queue(
            found["topic"],
            found["queueId"],
            found["known"],
            found["min"],
            found["max"],
            edges=part("edges", "edges", {}),
            pulls=part("pulls", "pulls", []),
            messages=part("messages", "messages", []),
            by_time=part("byTime", "by_time", []),
        )

    return Served(
        offsets=raw["offsets"],
        commitlog=_rows(raw["commitLog"], lambda text: named(text).commitlog, lambda row: row[0]),
        queues=[queue(found) for found in raw["queues"]],
        keys=_rows(raw["keys"], lambda text: named(text).keys, _key_identity),
    )


def _rows(
    found: str | Row | Mapping[str, Any], named: Callable[[str], list[Row]], identity: Callable[[Row], Any]
) -> list[Row]:
    """A list that is given in full, by the name of another, or by the name of another with its differences."""
    if isinstance(found, str):
        return named(found)
    if isinstance(found, list):
        return found
    ((text, difference),) = found.items()
    gone = {_gone_identity(row) for row in difference["gone"]}
    changed = {identity(row): row for row in difference["changed"]}
    kept = [changed.pop(identity(row), row) for row in named(text.removesuffix(" except")) if identity(row) not in gone]
    return kept + list(changed.values())


def _key_identity(row: Row) -> tuple[str, str, str | None]:
    return row[0], row[1], row[3].get("type") if len(row) > 3 else None


def _gone_identity(row: Iterable[Any]) -> Any:
    parts = tuple(row)
    return parts[0] if len(parts) == 1 else parts
