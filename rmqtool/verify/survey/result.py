"""Result of the check of one split of the log: small, picklable, and merged in any grouping."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rmqtool.engine.dispatch.placed_messages import PlacedMessages
from rmqtool.findings.finding import Finding
from rmqtool.formats.queue_name import TypedQueueKey
from rmqtool.sides.unread import UnreadFiles


class Missing(NamedTuple):
    """Messages without a unit that follow each other in their queue.

    Attributes:
        queue_offset, physical_offset: of the first one.
        last_physical_offset: of the last one.
        byte_count: of their records.
        is_first, is_last: whether there is no other message of the queue before the first, and after the last one, in
            the chunk of the log that was compared.
    """

    topic: bytes
    queue_id: int
    is_batch: bool
    queue_offset: int
    message_count: int
    physical_offset: int
    last_physical_offset: int
    byte_count: int
    is_first: bool
    is_last: bool

    @property
    def queue(self) -> TypedQueueKey:
        return self[:3]


MissingKeys = tuple[int, int, int, bool, bool]
"""Index entries that are missing, one after the other: first and last physical offset, number, and whether the first
is the first of its chunk and the last the last of it."""


@dataclass
class SplitResult:
    """Findings, counts, and data that only all splits together can judge.

    Attributes:
        begin, end: physical offsets of the first record, and after the last record or bad range; records of an older
            log, which lie after the end, are before `scanned_end`.
        last_record: physical offset and store time of the last good record; None without one.
        first_timestamp_ms: store time of the first good record; 0 without one.
        missing_in_second: messages without a unit in the database of a store that has its queues in files too.
        last_unseen: physical offset of the last good record of which no unit tells; -1 without one.
        placed: the messages, as far as each has its unit.
    """

    physical_offset: int = 0
    path: str = ""
    begin: int = 0
    end: int = 0
    last_record: tuple[int, int] | None = None
    first_timestamp_ms: int = 0
    last_unseen: int = -1
    newest_ms: int = 0
    scanned_end: int = 0
    findings: list[Finding] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    missing_in_second: list[Missing] = field(default_factory=list)
    missing_keys: list[MissingKeys] = field(default_factory=list)
    record_count: int = 0
    keyed_count: int = 0
    file_size: int = 0
    checked_bytes: int = 0
    tail_bytes: int = 0
    reported_bytes: int = 0
    left_out_bytes: int = 0
    placed: PlacedMessages = field(default_factory=PlacedMessages)


def merge(results: Iterable[SplitResult]) -> SplitResult:
    """All results as one, in the order of the log."""
    merged = SplitResult()
    ordered = sorted(results, key=lambda result: result.physical_offset)
    last_runs: dict[TypedQueueKey, int] = {}
    last_in_second: dict[TypedQueueKey, int] = {}
    for result in ordered:
        merged.findings += result.findings
        for run in result.missing:
            _append(merged.missing, run, last_runs)
        for run in result.missing_in_second:
            _append(merged.missing_in_second, run, last_in_second)
        for keys in result.missing_keys:
            append_keys(merged.missing_keys, keys)
        merged.record_count += result.record_count
        merged.keyed_count += result.keyed_count
        merged.first_timestamp_ms = merged.first_timestamp_ms or result.first_timestamp_ms
        merged.last_record = result.last_record or merged.last_record
        merged.last_unseen = max(merged.last_unseen, result.last_unseen)
        merged.newest_ms = max(merged.newest_ms, result.newest_ms)
        merged.end = max(merged.end, result.end)
        merged.scanned_end = max(merged.scanned_end, result.scanned_end)
        merged.file_size += result.file_size
        merged.checked_bytes += result.checked_bytes
        merged.tail_bytes += result.tail_bytes
        merged.reported_bytes += result.reported_bytes
        merged.left_out_bytes += result.left_out_bytes
        merged.placed.add(result.placed)
    if ordered:
        merged.physical_offset, merged.begin = ordered[0].physical_offset, ordered[0].begin
    return merged


def _append(runs: list[Missing], run: Missing, last_runs: dict[TypedQueueKey, int]) -> None:
    """Add a run, or lengthen the queue's last one, of another chunk: neither has another message in between."""
    number = last_runs.get(run.queue)
    last = runs[number] if number is not None else None
    is_next = last is not None and last.queue_offset + last.message_count == run.queue_offset
    if number is not None and last is not None and is_next and last.is_last and run.is_first:
        runs[number] = last._replace(
            message_count=last.message_count + run.message_count,
            last_physical_offset=run.last_physical_offset,
            byte_count=last.byte_count + run.byte_count,
            is_last=run.is_last,
        )
    else:
        last_runs[run.queue] = len(runs)
        runs.append(run)


def append_keys(runs: list[MissingKeys], run: MissingKeys) -> None:
    """Add a run of missing entries; one that continues where the chunk before ended is no other."""
    if runs and runs[-1][4] and run[3]:
        first, _, count, from_begin, _ = runs[-1]
        runs[-1] = (first, run[1], count + run[2], from_begin, run[4])
    else:
        runs.append(run)


@dataclass
class Summary:
    """Counts of a run.

    Attributes:
        findings: by id; a finding that stands for many things counts once.
        complete: False where options, a budget or a running broker left a part out, or something is not decoded.
        not_looked_at: what a broker uses and this run did not look at; empty where `complete` is true.
        splits_done, splits: of the log.
        removed_before: physical offsets before which messages of topics were removed, by topic.
        checked_bytes: of all files that were looked at; `left_out_bytes` are those that were not.
    """

    findings: Counter[str] = field(default_factory=Counter)
    severities: Counter[str] = field(default_factory=Counter)
    record_count: int = 0
    unit_count: int = 0
    entry_count: int = 0
    checked_bytes: int = 0
    left_out_bytes: int = 0
    splits: int = 0
    splits_done: int = 0
    complete: bool = True
    seconds: float = 0.0
    log_begin: int | None = None
    log_end: int | None = None
    not_looked_at: tuple[UnreadFiles, ...] = ()
    removed_before: Mapping[str, int] = field(default_factory=dict)

    def add(self, new_finding: Finding) -> None:
        self.findings[new_finding.id] += 1
        self.severities[new_finding.severity.value] += 1

    def as_json(self) -> dict[str, Any]:
        """The summary with JSON's types, in the words that scripts rely on."""
        return {
            "findings": dict(sorted(self.findings.items())),
            "checked": {
                "records": self.record_count,
                "bytes": self.checked_bytes,
                "units": self.unit_count,
                "entries": self.entry_count,
            },
            "left_out_bytes": self.left_out_bytes,
            "complete": self.complete,
            "not_looked_at": [files.as_json() for files in self.not_looked_at],
        }
