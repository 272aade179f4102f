"""Checks log and queues of compacted topics (`compaction/`): names, lengths, records, and units against records.

Each file has what one run of the compaction kept, so files of a queue need not follow each other, and end where they
like. Broker: `CompactionStore#load`, `CompactionLog`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from struct import Struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.dispatch.compaction import configured_sizes, keyed_messages
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnreadableError
from rmqtool.formats.commitlog import BLANK_SIZE_MIN
from rmqtool.formats.consumequeue import BATCH_UNIT, BATCH_UNIT_SIZE
from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.log import ScanOptions, plan_segments, scan_log
from rmqtool.scan.row_columns import message_rows
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.store.config.config_json import TOPICS, compacted_topics, topics
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Segment, Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.sizes import infer_file_size
from rmqtool.store.source import read_range
from rmqtool.store.view import Entry
from rmqtool.verify.catalog.finding import Finding
from rmqtool.verify.catalog.registry import finding
from rmqtool.verify.survey.context import unsafe_name
from rmqtool.verify.survey.result import Account

COMPACTION_KINDS: Final = frozenset({FileKind.COMPACTION_LOG, FileKind.COMPACTION_QUEUE})
"""Kinds of files that are looked at here."""
_LOG: Final = "compaction/compactionLog"
_UNIT: Final = Struct(BATCH_UNIT.struct_code)
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
        yield finding("store.unreadable", _LOG, str(error))


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
        text = f"no file of this name in {_LOG}/{'/'.join(name)}"
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
                "compaction.missing-message", f"{_LOG}/{'/'.join(name)}", text, topic=name[0], queue_id=int(name[1]),
                count=count,
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
