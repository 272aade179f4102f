"""Compacted topics: the messages that a broker puts into their own log and queue, and the checks of those.

Each file has what one run of the compaction kept, so files of a queue need not follow each other, and end where they
like. Broker: `CompactionLog#asyncPutMessage`, `CompactionLog.CompactionAppendMessageCallback`,
`SparseConsumeQueue#putEndPositionInfo`, `CompactionStore#load`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
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
from rmqtool.scan.log import open_log
from rmqtool.scan.row_columns import message_rows
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.store.config.config_json import compacted_topics, topics
from rmqtool.store.config.config_kinds import TOPICS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Segment, Settings, Store
from rmqtool.store.file_kinds import FileKind, segment_name
from rmqtool.store.sizes import infer_file_size
from rmqtool.store.source import read_range

LOG_DIRECTORY: Final = "compaction/compactionLog"
QUEUE_DIRECTORY: Final = "compaction/compactionCq"
_UNIT: Final = Struct(BATCH_UNIT.struct_code)
_FIELDS: Final = tuple(field.name for field in BATCH_UNIT.fields)
_END_UNIT: Final = _UNIT.pack(-1, 0, 0, 0, 0, 0, -1, 0)
_BLANK: Final = Struct(">ii")
FILES_MIN: Final = 5
"""Queue files that a log file is as long as, at least."""
_COLUMNS: Final = ("queue_offset", "size", "body_length", "tags_code", "store_timestamp_ms")
_LOG_SETTING: Final = 100 << 20
_QUEUE_SETTING: Final = 10 << 20


_QueueName = tuple[str, str]
"""Topic and queue id, as their directories have them."""


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
    """Sizes of a broker with these settings; its default for those without a setting."""
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
    # A record's own CRC does not hold where a compacted log has given it another place.
    segments = store.commitlog if compacted is None else [compacted]
    with open_log(store.view.open, segments, finds_crc=compacted is None) as table:
        for batch in table.batches():
            numbers = [number for number, raw in enumerate(batch.topics) if raw in chosen]
            if not numbers or not len(batch.rows):
                continue
            rows = message_rows(batch.as_array())
            rows = rows[np.isin(rows["topic_number"], numbers) & (rows["keys_length"] > 0)]
            places = rows["physical_offset"].tolist()
            keys = batch.read_many(places, rows["keys_position"].tolist(), rows["keys_length"].tolist())
            raws = batch.read_many(places, [0] * len(rows), rows["size"].tolist()) if with_raw else [b""] * len(rows)
            for row, key, raw in zip(rows, keys, raws, strict=True):
                if not key.strip():
                    continue
                name = chosen[batch.topics[row["topic_number"]]], int(row["queue_id"])
                queue_offset, size, body_length, tags_code, time_ms = (int(row[column]) for column in _COLUMNS)
                yield name, CompactedMessage(queue_offset, size, key, body_length > 0, tags_code, time_ms, raw)


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
        if self._files:
            log, queue = self._files
            has_unit_left = queue.tell() + BATCH_UNIT_SIZE < self._sizes.queue
            if not has_unit_left or log.tell() + size + BLANK_SIZE_MIN > self._sizes.log:
                log.write(_BLANK.pack(self._sizes.log - log.tell(), MAGIC_BLANK))
                queue.write(_END_UNIT)
                self.close()
        if not self._files:
            self._start += self._sizes.log
            for folder in self._folders:
                folder.mkdir(parents=True, exist_ok=True)
                self._files.append((folder / segment_name(self._start)).open("wb"))
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


def compaction_findings(store: Store, rules: BrokerRules, account: Account) -> Iterator[Finding]:
    """All findings about compacted topics, in no order."""
    if not rules.compaction:
        return
    sizes = configured_sizes(store.settings)
    of_kinds: list[dict[_QueueName, dict[int, Segment]]] = []
    for kind, configured in (
        (FileKind.COMPACTION_LOG, sizes and sizes.log),
        (FileKind.COMPACTION_QUEUE, sizes and sizes.queue),
    ):
        of_queues: dict[_QueueName, dict[int, Segment]] = {}
        for entry in sorted(store.files.get(kind, ()), key=lambda entry: int(entry.name)):
            _, _, topic, queue_id, _ = entry.path.split("/")
            of_queues.setdefault((topic, queue_id), {})[int(entry.name)] = Segment(entry, int(entry.name))
        of_kinds.append(of_queues)
        segments = [segment for of_queue in of_queues.values() for segment in of_queue.values()]
        size = configured or infer_file_size(segments)
        for segment in segments:
            account.file(segment.path, segment.size).checked += segment.size
            if segment.size != size:
                text = f"{segment.size} bytes long, {'a broker reads' if configured else 'the others'} {size}"
                yield finding(
                    "compaction.wrong-file-size", segment.path, text, length=segment.size,
                    expected=str(size), found=str(segment.size),
                )  # fmt: skip
    logs, queues = of_kinds
    served: dict[_QueueName, set[int]] = {}
    for name in sorted({*logs, *queues}):
        log, queue = logs.get(name, {}), queues.get(name, {})
        # Where the log alone is left, a load makes the queue.
        for start in sorted(queue.keys() - log.keys()):
            text = f"no file of this name in {LOG_DIRECTORY}/{'/'.join(name)}"
            yield finding("compaction.unpaired-file", queue[start].path, text)
        served[name] = set()
        for start, segment in log.items():
            try:
                yield from _file_findings(store, segment, queue.get(start), served[name])
            except UnreadableError as error:
                yield finding("store.unreadable", segment.path, str(error))
    all_logs = [segment for of_queue in logs.values() for segment in of_queue.values()]
    try:
        yield from _missing(store, served, infer_file_size(all_logs) if sizes is None else sizes.log)
    except UnreadableError as error:
        yield finding("store.unreadable", LOG_DIRECTORY, str(error))


def _file_findings(store: Store, segment: Segment, unit_segment: Segment | None, served: set[int]) -> Iterator[Finding]:
    """Findings about the records of a file, and the units that lead to them.

    Args:
        served: gets the queue offsets of the messages that a broker finds.
    """
    rows: list[NDArray[Any]] = []
    with open_log(store.view.open, [segment]) as table:
        for batch in table.batches():
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
    if unit_segment is not None:
        with closing(store.view.open(unit_segment.path)) as source:
            end = last_data_end(source, 0, source.size)
            raw = read_range(source, 0, min(-(-end // BATCH_UNIT_SIZE) * BATCH_UNIT_SIZE, source.size))
        for number, values in enumerate(_UNIT.iter_unpack(raw[: len(raw) // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE])):
            unit = dict(zip(_FIELDS, values, strict=True))
            place, expected = unit["physical_offset"], (unit["record_size"], unit["base_queue_offset"])
            reached.add(place)
            if records.get(place) == expected:
                served.add(unit["base_queue_offset"])
            elif place >= 0:  # else the unit that ends a file
                text = f"leads to {place}, where no record of {expected[0]} bytes with queue offset {expected[1]} is"
                yield finding(
                    "compaction.wrong-unit", unit_segment.path, text, file_position=number * BATCH_UNIT_SIZE,
                    length=BATCH_UNIT_SIZE, physical_offset=place,
                )  # fmt: skip
    missing = records.keys() - reached
    if missing:
        text = f"{len(missing)} records that no unit leads to"
        yield finding(
            "compaction.missing-unit", segment.path, text, file_position=min(missing) - segment.start,
            count=len(missing),
        )  # fmt: skip


def _missing(store: Store, served: Mapping[_QueueName, set[int]], log_file_size: int) -> Iterator[Finding]:
    """Messages of the commit log that are newer than all of their compacted queue, or the last one of their key."""
    newest = {name: max(offsets, default=-1) for name, offsets in served.items()}
    newer: Counter[_QueueName] = Counter()
    last_of_key: defaultdict[_QueueName, dict[int, bool]] = defaultdict(dict)
    # Names that lead elsewhere have findings of their own.
    names = {topic for topic in compacted_topics(topics(read_config(store.view, TOPICS))) if not unsafe_name(topic)}
    for (topic, queue_id), message in keyed_messages(store, names, with_raw=False) if names else ():
        name, offset = (topic, str(queue_id)), message.queue_offset
        if queue_id < 0 or (log_file_size and message.size + BLANK_SIZE_MIN > log_file_size):
            continue
        is_newer = offset > newest.get(name, -1)
        newer[name] += is_newer
        is_lost = message.has_body and not is_newer and offset not in served.get(name, ())
        last_of_key[name][hash(message.key)] = is_lost
    for name, of_keys in last_of_key.items():
        count = newer[name] + sum(of_keys.values())
        if count:
            text = f"{count} messages of the commit log, {newer[name]} of them newer than all that is here, are missing"
            yield finding(
                "compaction.missing-message", f"{LOG_DIRECTORY}/{'/'.join(name)}", text, topic=name[0],
                queue_id=int(name[1]), count=count,
            )  # fmt: skip
