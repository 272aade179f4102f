"""Checks splits of the log: every record, and the agreement of queues and index with the chunk.

One split after the other wherever a runner wants it, or several threads on one large file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final, TypeVar

import numpy as np

from rmqtool.engine.reading.resurrected_tail import resurrected_tail
from rmqtool.errors import UnreadableError
from rmqtool.findings.finding import Severity
from rmqtool.findings.registry import finding
from rmqtool.formats import system_flag
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.scan.judge import TopicTable
from rmqtool.scan.log import ScanOptions
from rmqtool.scan.row_columns import by_name
from rmqtool.scan.rules import Verdict
from rmqtool.scan.runner import ThreadRunner
from rmqtool.scan.split import Split, SplitOutcome, has_parts, merged_outcome, splits_of
from rmqtool.scan.walk import Walk
from rmqtool.verify.match.index_match import IndexMatch
from rmqtool.verify.match.log_chunk import LogChunk, RowsLookup
from rmqtool.verify.match.queue_match import QueueFindings, QueueMatch
from rmqtool.verify.match.row_findings import batch_offset_findings, joined_tails, row_findings, time_findings
from rmqtool.verify.survey.context import VerifyContext
from rmqtool.verify.survey.result import SplitResult, append_keys, merge

SECTOR_BYTES: Final = 512
"""The least that a disk writes as a whole."""
_REGRESS: Final = "commitlog.store-time-regress"


@dataclass
class PartResult:
    """Result of the check of one part of a file, with the data that shows if it fits its neighbors."""

    outcome: SplitOutcome
    result: SplitResult


def check_split(walk: Walk, context: VerifyContext, path: str) -> SplitResult:
    """Scan a split and compare it, chunk by chunk; the walk is of a whole file, whose path is relative to the store."""
    result = check_part(walk, context, path).result
    _settle(walk, context, result)
    return result


def check_part(walk: Walk, context: VerifyContext, path: str) -> PartResult:
    """Scan a part of a split and compare it, as `check_split` does; `merge_parts` makes a file's result of them."""
    split = walk.split
    result = SplitResult(split.physical_offset, path, split.physical_offset, split.physical_offset)
    result.file_size = split.source.size
    chunk, of_queues, of_second = LogChunk(context), QueueFindings(), QueueFindings()
    for batch in walk.batches():
        chunk.take(batch)
        if chunk.extractor.is_full:
            _compare_chunk(walk, context, chunk, result, of_queues, of_second)
    _compare_chunk(walk, context, chunk, result, of_queues, of_second)
    result.findings = joined_tails(result.findings) + of_queues.all
    if context.second is not None and context.store.second_database is not None:
        directory = context.store.second_database.directory  # what is wrong with records, the other queues say
        result.findings += [one for one in of_second.all if one.file == directory]
    result.left_out_bytes = chunk.left_out_bytes
    data_end = split.physical_offset + walk.outcome.data_end
    result.scanned_end = max(result.scanned_end, data_end)
    result.tail_bytes = walk.outcome.tail_bytes
    return PartResult(walk.outcome, result)


def merge_parts(parts: Sequence[PartResult], walk: Walk, context: VerifyContext) -> SplitResult | None:
    """The result of a file that was checked in parts, in order; the walk is of the whole file, and not begun.

    None where a part has met anything but good records that agree with queues and index, or the parts do not fit
    together: what a finding says may depend on what lies around, so the file is to be checked in one split.
    """
    times_ms = [0]
    for part in parts:
        if part.result.findings or part.result.reported_bytes:
            return None
        last = part.result.last_record
        if last is not None:
            times_ms += (part.result.first_timestamp_ms, last[1])
    if any(second < first for first, second in zip(times_ms[::2], times_ms[1::2], strict=False)):
        return None  # a time that falls from one part to the next
    outcome = merged_outcome(walk.split, [part.outcome for part in parts])
    if outcome is None:
        return None
    walk.outcome = outcome
    first = parts[0].result
    result = merge(part.result for part in parts)
    result.path, result.file_size = first.path, first.file_size
    result.tail_bytes = outcome.tail_bytes
    _settle(walk, context, result)
    return None if result.findings else result


def _settle(walk: Walk, context: VerifyContext, result: SplitResult) -> None:
    """Findings that need the end of a file: if its last record is whole, and untouched bytes after it."""
    if not walk.split.more_follows:
        _check_last(walk, context, result)
        _check_tail(walk, context, result)
    rest = result.file_size - result.checked_bytes - result.reported_bytes - result.tail_bytes
    if walk.outcome.tail_bytes == 0 and rest > 0 and not result.left_out_bytes:
        # Nothing but zeros, or a file that ends with its last record.
        result.tail_bytes = rest if not result.record_count and not result.reported_bytes else 0


def _compare_chunk(
    walk: Walk,
    context: VerifyContext,
    chunk: LogChunk,
    result: SplitResult,
    of_queues: QueueFindings,
    of_second: QueueFindings,
) -> None:
    """Compare a chunk with queues, database and index, add the result, and forget the chunk."""
    if not chunk.extractor.row_count:
        return
    lookup = chunk.lookup()
    lost: dict[int, list[str]] = {}
    odd_times = time_findings(context, lookup, result.last_record[1] if result.last_record else 0)
    result.findings += odd_times
    if context.crosses:
        queues = QueueMatch(context, lookup, of_queues)
        expected = None if _agrees(context, chunk, lookup) else chunk.queues()
        if expected is not None:
            result.findings += batch_offset_findings(context, lookup, expected.values())
            queues.run(expected)
            result.missing += queues.missing
            lost = queues.lost
        if context.options.cache is not None:
            if expected is not None and queues.agrees:
                for entries in expected.values():
                    result.placed.take(entries)
            else:
                result.placed.spoil()
        if context.second is not None and expected is not None and not _agrees(context.second, chunk, lookup):
            in_second = QueueMatch(context.second, lookup, of_second)
            in_second.run({key: entries for key, entries in expected.items() if not key[2]})
            result.missing_in_second += in_second.missing
        if context.index:
            index = IndexMatch(
                context, lookup, [*queues.doubtful, *(time_finding.physical_offset or 0 for time_finding in odd_times)]
            )
            index.run(chunk.index())
            result.findings += index.findings
            for run in index.missing:
                append_keys(result.missing_keys, run)
        else:
            result.keyed_count += len(chunk.index().key_hashes)
    result.findings += row_findings(context, walk, lookup, lost)
    _count(lookup, result)
    chunk.clear()


def _agrees(context: VerifyContext, chunk: LogChunk, lookup: RowsLookup) -> bool:
    """True if the units of all queues are those of the chunk, as far as that is seen without reading each queue."""
    messages = chunk.extractor.plain_messages() if context.order is not None and not context.batch_queues else None
    if context.order is None or messages is None:
        return False
    return context.order.agrees(lookup.begin, lookup.end, messages, lookup.topics)


def _count(lookup: RowsLookup, result: SplitResult) -> None:
    rows, good, messages = lookup.rows, lookup.good, lookup.messages
    column = by_name(rows)
    whole = int(column["size"].sum())
    reported = 0 if good.all() else int(column["size"][~good].sum())
    result.checked_bytes += whole - reported
    result.reported_bytes += reported
    result.record_count += len(messages)
    if len(messages):
        if result.last_record is None:
            result.first_timestamp_ms = int(column["store_timestamp_ms"][messages[0]])
        last = rows[messages[-1]]
        result.last_record = int(last["physical_offset"]), int(last["store_timestamp_ms"])
        result.newest_ms = max(result.newest_ms, int(column["store_timestamp_ms"][messages].max()))
        # A tombstone's unit is a dead one; a record of another type than none or commit has no unit.
        transaction = column["sys_flag"][messages] & system_flag.TRANSACTION_MASK
        has_unit = (transaction == 0) | (transaction == system_flag.TRANSACTION_COMMIT)
        unseen = messages[~has_unit | (column["prepared_transaction_offset"][messages] == TOMBSTONE)]
        if len(unseen):
            result.last_unseen = int(column["physical_offset"][unseen[-1]])
    # After the log's end nothing counts; a blank reaches to the file's.
    counted = np.flatnonzero(column["verdict"] != Verdict.STALE)
    if counted.size:
        behind = rows[counted[-1]]
        result.end = max(result.end, int(behind["physical_offset"] + behind["size"]))


def _check_last(walk: Walk, context: VerifyContext, result: SplitResult) -> None:
    """A last record that was cut inside its properties passes every check, with zeros in them (pitfall P20)."""
    if result.last_record is None or context.live_end is not None:
        return
    position = result.last_record[0] - walk.split.physical_offset
    try:
        row = walk.judge(position)
        length = row.properties_length
        block = bytes(walk.window.bytes_at(position + row.size - length, length)) if length > 0 else b""
    except UnreadableError:
        return
    # A single zero byte within them may as well be a value's.
    is_cut = block.endswith(b"\0") or bytes(SECTOR_BYTES) in block
    if row.verdict == Verdict.GOOD and is_cut and result.end == result.last_record[0] + row.size:
        zeros = block.index(b"\0")
        result.findings.append(
            finding(
                "commitlog.torn-record",
                result.path,
                "the last record's properties end in zeros: it never arrived whole",
                file_position=position,
                physical_offset=result.last_record[0],
                length=row.size,
                found=f"a zero byte after {zeros} of {length} bytes of properties",
                repair=None,  # brokers serve it: only a person may give it up
            )
        )


def _check_tail(walk: Walk, context: VerifyContext, result: SplitResult) -> None:
    """Report times that go back up to the end of the log as one finding: a clock was set back, or records came back."""
    if context.live_end is not None or not any(finding.id == _REGRESS for finding in result.findings):
        return
    again = replace(walk, cache=None, columns_only=False, at_hand=None)
    tail = resurrected_tail(lambda: replace(again, outcome=SplitOutcome(), topics=TopicTable()).batches())
    if tail is None:
        return
    # A finding about the record right before the tail says the same.
    result.findings = [
        f for f in result.findings if f.id != _REGRESS or (f.physical_offset or 0) + (f.length or 0) < tail.begin
    ]
    of_tail = finding(
        "commitlog.resurrected-tail",
        result.path,
        f"from here to the end of the commit log, records: {tail.record_count}, all stored before the record "
        "before them",
        file_position=tail.begin - walk.split.physical_offset,
        physical_offset=tail.begin,
        length=tail.end - tail.begin,
        count=tail.record_count,
        expected=f"stored at {tail.before_ms} or later",
        found=f"stored at {tail.newest_ms} or earlier",
        repair=f"recover --cut-at {tail.begin}",
    )
    if not tail.is_proven:
        text = f"{of_tail.message}: the clock was set back, or a truncated tail came back; nothing here tells which"
        of_tail = replace(of_tail, severity=Severity.NOTE, message=text, repair=None)
    result.findings.append(of_tail)


T = TypeVar("T")
SplitFile = tuple[Split, str]
"""A split, and the path of its file."""


@dataclass(frozen=True)
class SplitCheck:
    """The check of any split of the log, which a runner may send elsewhere; none begins after `until`, a UNIX time."""

    context: VerifyContext
    scan: ScanOptions
    until: float | None

    def __call__(self, split: SplitFile) -> SplitResult | None:
        """The result of a split; None where the time was up before it was begun."""
        return self._checked(check_split, split)

    def part(self, split: SplitFile) -> PartResult | None:
        """The result of a part of a split; None where the time was up before it was begun."""
        return self._checked(check_part, split)

    def joined(self, split: SplitFile, parts: Sequence[PartResult]) -> SplitResult | None:
        """The result of a split of its parts; None where it has to be checked in one."""
        try:
            return merge_parts(parts, self.scan.walk(split[0]), self.context)
        finally:
            split[0].source.close()

    def _checked(self, check: Callable[[Walk, VerifyContext, str], T], split: SplitFile) -> T | None:
        if self.until is not None and time.time() >= self.until:
            return None
        try:
            return check(self.scan.walk(split[0]), self.context, split[1])
        finally:
            split[0].source.close()


def check_in_parallel(
    check: SplitCheck, splits: Sequence[SplitFile], threads: ThreadRunner, count: int | None
) -> Iterator[SplitResult | None]:
    """Results of splits, each cut into so many parts or as its size says, in order, the same as of a check one by one.

    A split whose parts meet anything to tell is checked again in one. Where that happens to all of a few files, the
    next ones are not cut, so that no store takes more than half as long again.
    """
    if count is None and (threads.threads == 1 or not any(has_parts(split) for split, _ in splits)):
        yield from threads.map(check, splits)
        return
    cuts = True
    for at in range(0, len(splits), threads.threads):
        group = splits[at : at + threads.threads]
        parts = [
            splits_of(split, count=count) if cuts and not check.scan.is_known(split) else [split] for split, _ in group
        ]
        results = _first_results(check, group, parts, threads)
        again = [split for split, result in zip(group, results, strict=True) if result is None]
        cuts = not cuts or len(again) < len(group)
        whole = threads.map(check, again)
        for result in results:
            yield result if result is not None else next(whole)


def _first_results(
    check: SplitCheck, group: Sequence[SplitFile], parts: Sequence[Sequence[Split]], threads: ThreadRunner
) -> list[SplitResult | None]:
    """Results of splits that are cut as given; None for those that have to be checked again."""
    tasks: list[Callable[[], SplitResult | PartResult | None]] = []
    for split, cut in zip(group, parts, strict=True):
        tasks += [partial(check.part, (part, split[1])) for part in cut] if len(cut) > 1 else [partial(check, split)]
    done = threads.map(lambda task: task(), tasks)
    results: list[SplitResult | None] = []
    for split, cut in zip(group, parts, strict=True):
        split_results = list(islice(done, len(cut)))
        joinable = [result for result in split_results if isinstance(result, PartResult)]
        if len(cut) > 1:
            results.append(check.joined(split, joinable) if len(joinable) == len(cut) else None)
        else:
            results.append(split_results[0] if isinstance(split_results[0], SplitResult) else None)
    return results
