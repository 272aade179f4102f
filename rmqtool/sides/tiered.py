"""Checks a tiered store in files: segments against the metadata, each record, and units against records.

Broker: `FlatAppendFile#recover`, `FlatCommitLogFile`, `FlatConsumeQueueFile`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from struct import Struct
from typing import Final

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnreadableError
from rmqtool.findings.account import Account
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import finding
from rmqtool.formats.consumequeue import UNIT, UNIT_SIZE
from rmqtool.scan.log import LogFile, RecordTable
from rmqtool.scan.row_columns import message_rows
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.sides.unread import UnreadFiles
from rmqtool.store.config.tiered import INDEX, METADATA, TieredSegment, is_coda, read_tiered
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.source import read_range

_UNIT: Final = Struct(UNIT.struct_code)
_BLOCK: Final = 4096 * UNIT_SIZE


def tiered_findings(store: Store, rules: BrokerRules, account: Account) -> Iterator[Finding]:
    """All findings about the tiered store, in no order."""
    del rules  # a version without one has no metadata
    for entry in store.files.get(FileKind.TIERED, ()):
        if entry.path.startswith(METADATA):
            account.file(entry.path, entry.size).checked += entry.size
    tiered = read_tiered(store.view)
    if tiered.is_used and tiered.config.value is None:
        text = "; ".join(tiered.config.problems) or "it is empty"
        yield finding("tiered.metadata-broken", METADATA, text)
    if tiered.root is None:
        return
    by_owner: defaultdict[str, list[TieredSegment]] = defaultdict(list)
    for segment in sorted(tiered.segments, key=lambda segment: segment.start):
        by_owner[segment.owner].append(segment)
    for segments in by_owner.values():
        records: dict[int, tuple[int, int]] = {}
        """Size and queue offset, by place in the log."""
        walked: list[tuple[int, int]] = []
        for segment in segments:
            length = -1 if segment.entry is None else segment.entry.size
            if length < segment.size and (segment.size or segment.entry is not None):
                kind = "tiered.missing-segment" if segment.entry is None else "tiered.short-segment"
                state = "is missing" if length < 0 else f"has {length}"
                text = f"the metadata counts {segment.size} bytes, the file {state}"
                yield finding(kind, segment.path, text, physical_offset=segment.start)
            if segment.entry is not None and segment.kind == "COMMIT_LOG":
                walked.append((segment.start, segment.start + segment.entry.size))
                yield from _record_findings(store, segment, records)
        for segment in segments:
            if segment.entry is not None and segment.kind == "CONSUME_QUEUE":
                yield from _unit_findings(store, segment, records, walked)


def _record_findings(store: Store, segment: TieredSegment, records: dict[int, tuple[int, int]]) -> Iterator[Finding]:
    """Findings about a segment with records; the good ones are added to `records`."""
    try:
        file = LogFile(partial(store.view.open, segment.path), segment.start)
        with RecordTable.of([file]) as table:
            for batch in table.batches():
                rows = batch.as_array()
                for row in rows[rows["verdict"] != Verdict.GOOD]:
                    at, size = int(row["physical_offset"]) - segment.start, int(row["size"])
                    if is_coda(size, bytes(batch.window.bytes_at(at, 8))):
                        continue
                    text = f"no good record: {FINDING_IDS[Verdict(int(row['verdict']))].partition('.')[2]}"
                    yield finding(
                        "tiered.bad-record", segment.path, text, file_position=at, length=size,
                        physical_offset=int(row["physical_offset"]),
                    )  # fmt: skip
                good = message_rows(rows)[["physical_offset", "size", "queue_offset"]]
                records.update({place: (size, queue_offset) for place, size, queue_offset in good.tolist()})
    except UnreadableError as error:
        yield finding("store.unreadable", segment.path, str(error))


def _unit_findings(
    store: Store, segment: TieredSegment, records: Mapping[int, tuple[int, int]], walked: list[tuple[int, int]]
) -> Iterator[Finding]:
    """Units that do not lead to a record, in the rest of the log."""
    try:
        with closing(store.view.open(segment.path)) as source:
            end = source.size // UNIT_SIZE * UNIT_SIZE
            for start in range(0, end, _BLOCK):
                raw = read_range(source, start, min(_BLOCK, end - start))
                for number, (place, size, _) in enumerate(_UNIT.iter_unpack(raw[: len(raw) // UNIT_SIZE * UNIT_SIZE])):
                    at = start + number * UNIT_SIZE
                    queue_offset = (segment.start + at) // UNIT_SIZE
                    is_there = any(low <= place < high for low, high in walked)
                    if records.get(place) == (size, queue_offset) or (size and not is_there):
                        continue  # a segment that is missing or deleted has no records
                    text = f"leads to {place}, where no record of {size} bytes with queue offset {queue_offset} is"
                    yield finding(
                        "tiered.wrong-unit", segment.path, text, file_position=at, length=UNIT_SIZE,
                        physical_offset=place, queue_offset=queue_offset,
                    )  # fmt: skip
    except UnreadableError as error:
        yield finding("store.unreadable", segment.path, str(error))


def undecoded_tiered(store: Store) -> Iterator[UnreadFiles]:
    """Parts of a tiered store that are not checked here."""
    tiered = read_tiered(store.view)
    kind = FileKind.TIERED.value
    if tiered.segments and tiered.root is None:
        yield UnreadFiles(METADATA, kind, "the segments of the tiered store are not in the store's directory")
    has_index = any(segment.kind == "INDEX" for segment in tiered.segments)
    if has_index or any(entry.path.startswith(f"{INDEX}/") for entry in store.files.get(FileKind.TIERED, ())):
        yield UnreadFiles(INDEX, kind, "the index of the tiered store is not decoded")
