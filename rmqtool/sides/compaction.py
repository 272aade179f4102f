"""Compacted topics: which messages a broker puts into their own log and queue and how, and what is wrong with those.

Each file has what one run of the compaction kept, so files of a queue need not follow each other, and end where they
like. Broker: `CompactionLog#asyncPutMessage`, `CompactionLog.CompactionAppendMessageCallback`,
`SparseConsumeQueue#putEndPositionInfo`, `CompactionStore#load`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnreadableError
from rmqtool.findings.account import Account
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import finding
from rmqtool.formats.commitlog import BLANK_SIZE_MIN, MAGIC_BLANK, PHYSICAL_OFFSET_AT
from rmqtool.formats.consumequeue import BATCH_UNIT, BATCH_UNIT_SIZE
from rmqtool.formats.queue_name import QueueName, topic_bytes, unsafe_name
from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.log import ScanOptions, carries_record_crc, plan_segments, scan_log
from rmqtool.scan.row_columns import message_rows
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.store.config.config_json import TOPICS, compacted_topics, topics
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Segment, Settings, Store
from rmqtool.store.file_kinds import FileKind, segment_name
from rmqtool.store.sizes import infer_file_size
from rmqtool.store.source import read_range
from rmqtool.store.view import Entry

LOG_DIRECTORY: Final = "compaction/compactionLog"
QUEUE_DIRECTORY: Final = "compaction/compactionCq"
_UNIT: Final = Struct(BATCH_UNIT.struct_code)
_END_UNIT: Final = _UNIT.pack(-1, 0, 0, 0, 0, 0, -1, 0)
_BLANK: Final = Struct(">ii")
FILES_MIN: Final = 5
"""Queue files that a log file is as long as, at least."""
_COLUMNS: Final = ("queue_offset", "size", "body_length", "tags_code", "store_timestamp_ms")
_LOG_SETTING: Final = 100 << 20
_QUEUE_SETTING: Final = 10 << 20


class CompactedMessage(NamedTuple):
    """A message as a compacted topic's log has it; `raw` is its record."""

    queue_offset: int
    size: int
    key: bytes
    has_body: bool
    tags_code: int
    store_timestamp_ms: int
    raw: bytes


class FileSizes(NamedTuple):
    """Bytes of the files of all compacted topics."""

    log: int
    queue: int


def configured_sizes(settings: Settings) -> FileSizes | None:
    """Sizes by `compactionMappedFileSize` and `compactionCqMappedFileSize`; None where neither is given."""
    if not (settings.compaction_log_file_size or settings.compaction_queue_file_size):
        return None
    return broker_sizes(settings)


def broker_sizes(settings: Settings = Settings()) -> FileSizes:  # noqa: B008 - it is frozen
    """What a broker with these settings writes; its default for what they do not name."""
    queue = (settings.compaction_queue_file_size or _QUEUE_SETTING) // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE
    count, rest = divmod(settings.compaction_log_file_size or _LOG_SETTING, max(queue, 1))
    if count < FILES_MIN:
        return FileSizes(FILES_MIN * queue, queue)
    return FileSizes((count if 0 < rest < queue // 2 else count + 1) * queue, queue)


def keyed_messages(
    store: Store, names: AbstractSet[str], *, with_raw: bool, compacted: Segment | None = None
) -> Iterator[tuple[QueueName, CompactedMessage]]:
    """Good messages of topics that have keys, in the order of the log.

    Args:
        with_raw: whether the records are needed.
        compacted: read this file of a compacted log; None: the commit log.
    """
    chosen = {topic_bytes(name): name for name in names}
    with closing(plan_segments(store.view.open, store.commitlog if compacted is None else [compacted])) as plan:
        # A record's own CRC does not hold where a compacted log has given it another place.
        record_crc = compacted is None and carries_record_crc(plan.splits)
        for batch in scan_log(plan, ScanOptions(record_crc=record_crc)):
            numbers = [number for number, raw in enumerate(batch.topics) if raw in chosen]
            if not numbers or not len(batch.rows):
                continue
            rows = message_rows(batch.as_array())
            rows = rows[np.isin(rows["topic_number"], numbers) & (rows["keys_length"] > 0)]
            places = rows["physical_offset"].tolist()
            keys = batch.read_many(places, rows["keys_position"].tolist(), rows["keys_length"].tolist())
            raws = batch.read_many(places, [0] * len(rows), rows["size"].tolist()) if with_raw else [b""] * len(rows)
            for row, key, raw in zip(rows, keys, raws, strict=True):
                if key.strip():
                    yield _named(row, chosen[batch.topics[row["topic_number"]]]), _message(row, key, raw)


def _named(row: Any, topic: str) -> QueueName:
    return topic, int(row["queue_id"])


def _message(row: Any, key: bytes, raw: bytes) -> CompactedMessage:
    queue_offset, size, body_length, tags_code, store_timestamp_ms = (int(row[name]) for name in _COLUMNS)
    return CompactedMessage(queue_offset, size, key, body_length > 0, tags_code, store_timestamp_ms, raw)


class CompactionWriter:
    """Writes log and queue of a compacted topic's queue as a broker's dispatch does, file after file."""

    def __init__(self, folder: Path, name: QueueName, sizes: FileSizes) -> None:
        self._folders = [folder / root / name[0] / str(name[1]) for root in (LOG_DIRECTORY, QUEUE_DIRECTORY)]
        self._sizes = sizes
        self._files: list[BinaryIO] = []
        self._start = -sizes.log

    def append(self, message: CompactedMessage) -> bool:
        """Append a message; False where no file has room for it."""
        size = len(message.raw)
        if size + BLANK_SIZE_MIN > self._sizes.log:
            return False
        if not self._files or not self._has_room(size):
            self._roll()
        log, queue = self._files
        place = self._start + log.tell()
        log.write(message.raw[:PHYSICAL_OFFSET_AT] + place.to_bytes(8) + message.raw[PHYSICAL_OFFSET_AT + 8 :])
        queue.write(
            _UNIT.pack(place, size, message.tags_code, message.store_timestamp_ms, message.queue_offset, 1, -1, 0)
        )
        return True

    def close(self) -> None:
        """Give the last files their full lengths."""
        for file, size in zip(self._files, self._sizes, strict=False):
            file.truncate(size)
            file.close()
        self._files = []

    def _has_room(self, size: int) -> bool:
        log, queue = self._files
        return (
            queue.tell() + BATCH_UNIT_SIZE < self._sizes.queue and log.tell() + size + BLANK_SIZE_MIN <= self._sizes.log
        )

    def _roll(self) -> None:
        if self._files:
            log, queue = self._files
            log.write(_BLANK.pack(self._sizes.log - log.tell(), MAGIC_BLANK))
            queue.write(_END_UNIT)
            self.close()
        self._start += self._sizes.log
        for folder in self._folders:
            folder.mkdir(parents=True, exist_ok=True)
            self._files.append((folder / segment_name(self._start)).open("wb"))


_FIELDS: Final = tuple(field.name for field in BATCH_UNIT.fields)
_QueueName = tuple[str, str]


def compaction_findings(store: Store, rules: BrokerRules, account: Account) -> Iterator[Finding]:
    """All findings about compacted topics, in no order."""
    if not rules.compaction:
        return
    logs, queues = (_by_queue(store, kind) for kind in (FileKind.COMPACTION_LOG, FileKind.COMPACTION_QUEUE))
    all_logs = [segment for segments in logs.values() for segment in segments.values()]
    all_queues = [segment for segments in queues.values() for segment in segments.values()]
    for segment in (*all_logs, *all_queues):
        account.file(segment.path, segment.size).checked += segment.size
    sizes = configured_sizes(store.settings)
    yield from _lengths(all_logs, sizes and sizes.log)
    yield from _lengths(all_queues, sizes and sizes.queue)
    served: defaultdict[_QueueName, set[int]] = defaultdict(set)
    for name in sorted({*logs, *queues}):
        yield from _names(name, logs.get(name, {}), queues.get(name, {}))
        for start, segment in logs.get(name, {}).items():
            unit_segment = queues.get(name, {}).get(start)
            try:
                yield from _file(store, segment, unit_segment, served[name])
            except UnreadableError as error:
                yield finding("store.unreadable", segment.path, str(error))
    try:
        yield from _missing(store, served, infer_file_size(all_logs) if sizes is None else sizes.log)
    except UnreadableError as error:
        yield finding("store.unreadable", LOG_DIRECTORY, str(error))


def _by_queue(store: Store, kind: FileKind) -> dict[_QueueName, dict[int, Segment]]:
    segments: defaultdict[_QueueName, dict[int, Segment]] = defaultdict(dict)
    for entry in sorted(store.files.get(kind, ()), key=lambda entry: int(entry.name)):
        segments[_queue_name(entry)][int(entry.name)] = Segment(entry, int(entry.name))
    return dict(segments)


def _queue_name(entry: Entry) -> _QueueName:
    _, _, topic, queue_id, _ = entry.path.split("/")
    return topic, queue_id


def _lengths(segments: list[Segment], configured: int | None) -> Iterator[Finding]:
    size = configured or infer_file_size(segments)
    for segment in segments:
        if segment.size != size:
            text = f"{segment.size} bytes long, {'a broker reads' if configured else 'the others'} {size}"
            yield finding(
                "compaction.wrong-file-size", segment.path, text, length=segment.size,
                expected=str(size), found=str(segment.size),
            )  # fmt: skip


def _names(name: _QueueName, logs: dict[int, Segment], queues: dict[int, Segment]) -> Iterator[Finding]:
    """Each queue file has a file of the log with the same name; where the log alone is left, a load makes the queue."""
    for start in sorted({*queues} - {*logs}):
        text = f"no file of this name in {LOG_DIRECTORY}/{'/'.join(name)}"
        yield finding("compaction.unpaired-file", queues[start].path, text)


def _missing(store: Store, served: dict[_QueueName, set[int]], log_file_size: int) -> Iterator[Finding]:
    """Messages of the commit log that are newer than all of their compacted queue, or the last one of their key."""
    newer: Counter[_QueueName] = Counter()
    last_of_key: defaultdict[_QueueName, dict[int, bool]] = defaultdict(dict)
    names = {
        topic for topic in compacted_topics(topics(read_config(store.view, TOPICS))) if not unsafe_name(topic)
    }  # these have findings of their own
    for (topic, queue_id), message in keyed_messages(store, names, with_raw=False) if names else ():
        name, offset = (topic, str(queue_id)), message.queue_offset
        if queue_id < 0 or (log_file_size and message.size + BLANK_SIZE_MIN > log_file_size):
            continue
        is_newer = offset > max(served[name], default=-1)
        newer[name] += is_newer
        last_of_key[name][hash(message.key)] = message.has_body and not is_newer and offset not in served[name]
    for name, of_keys in last_of_key.items():
        count = newer[name] + sum(of_keys.values())
        if count:
            text = f"{count} messages of the commit log, {newer[name]} of them newer than all that is here, are missing"
            yield finding(
                "compaction.missing-message", f"{LOG_DIRECTORY}/{'/'.join(name)}", text, topic=name[0],
                queue_id=int(name[1]), count=count,
            )  # fmt: skip


def _file(store: Store, segment: Segment, unit_segment: Segment | None, served: set[int]) -> Iterator[Finding]:
    """The records of a file, and the units that lead to them.

    Args:
        served: gets the queue offsets of the messages that a broker finds.
    """
    rows: list[NDArray[Any]] = []
    with closing(plan_segments(store.view.open, [segment])) as plan:
        for batch in scan_log(plan, ScanOptions()):
            every = batch.as_array()
            bad = (every["verdict"] != Verdict.GOOD) & (every["verdict"] != Verdict.STALE)
            for row in every[bad]:
                position = int(row["physical_offset"]) - segment.start
                text = FINDING_IDS[Verdict(int(row["verdict"]))].partition(".")[2].replace("-", " ")
                length = int(row["size"])
                yield finding("compaction.bad-record", segment.path, text, file_position=position, length=length)
            rows.append(message_rows(every)[["physical_offset", "size", "queue_offset"]].copy())
    records = {place: (size, offset) for part in rows for place, size, offset in part.tolist()}
    reached = set()
    for position, unit in _units(store, unit_segment) if unit_segment is not None else ():
        assert unit_segment is not None
        place = unit["physical_offset"]
        expected = (unit["record_size"], unit["base_queue_offset"])
        reached.add(place)
        if records.get(place) == expected:
            served.add(unit["base_queue_offset"])
        elif place >= 0:  # else the unit that ends a file
            text = f"leads to {place}, where no record of {expected[0]} bytes with queue offset {expected[1]} is"
            yield finding(
                "compaction.wrong-unit", unit_segment.path, text, file_position=position, length=BATCH_UNIT_SIZE,
                physical_offset=place,
            )  # fmt: skip
    missing = np.array(sorted(records.keys() - reached), "i8")
    if len(missing):
        text = f"{len(missing)} records that no unit leads to"
        yield finding(
            "compaction.missing-unit", segment.path, text, file_position=int(missing[0]) - segment.start,
            count=len(missing),
        )  # fmt: skip


def _units(store: Store, segment: Segment) -> Iterator[tuple[int, dict[str, int]]]:
    """The units of a file with their positions, up to the last byte that is not zero."""
    with closing(store.view.open(segment.path)) as source:
        end = last_data_end(source, 0, source.size)
        raw = read_range(source, 0, min(-(-end // BATCH_UNIT_SIZE) * BATCH_UNIT_SIZE, source.size))
    whole = raw[: len(raw) // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE]
    for number, values in enumerate(_UNIT.iter_unpack(whole)):
        yield number * BATCH_UNIT_SIZE, dict(zip(_FIELDS, values, strict=True))
