"""Findings from the rows of a chunk alone: damage, tombstones, times that go back, versions that cannot read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

import numpy as np

from rmqtool.engine.dispatch.queue_entries import QueueEntries
from rmqtool.errors import UnreadableError
from rmqtool.findings.finding import NOT_READABLE_BY_VERSION, Finding, Severity
from rmqtool.findings.registry import finding
from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.commitlog import HEAD_SIZE
from rmqtool.formats.properties import INNER_BASE
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.columns import Row
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.scan.walk import Walk
from rmqtool.store.source import ByteSource, read_range
from rmqtool.verify.match.flipped_bit import flipped_bits
from rmqtool.verify.match.log_chunk import RowsLookup
from rmqtool.verify.survey.context import REGRESS_MARGIN_MS, VerifyContext

IMPLAUSIBLE_MAX: Final = 100
FLIPS_MAX: Final = 100
"""Bad bodies of a chunk in which the one flipped bit is looked for: each is read again, and takes a millisecond."""
FLIP_SPANS: Final = 1000
"""So many times as much as its neighbors differ must a flipped bit have changed a time, to be the explanation."""
LOST_NAMED: Final = 5
"""Lost messages that a finding names."""

_TEXTS: Final = {
    Verdict.BAD_SIZE: "this size is impossible here",
    Verdict.BAD_MAGIC: "neither a record nor a blank starts here",
    Verdict.BAD_LENGTHS: "the lengths inside the record do not add up to its size",
    Verdict.BODY_CRC_MISMATCH: "the body's CRC does not match the stored CRC",
    Verdict.BAD_PROPERTY: "DELAY is not a number",
    Verdict.RECORD_CRC_MISMATCH: "the CRC of the whole record does not match the stored CRC",
    Verdict.SELF_OFFSET_MISMATCH: "the record's stored physical offset is another one",
    Verdict.HOLE: "zeros inside the commit log",
    Verdict.MISSING_END_BLANK: "the file ends without a blank",
    Verdict.TORN_RECORD: "the last record is incomplete",
    Verdict.UNREADABLE_RANGE: "the disk cannot read these bytes",
    Verdict.STALE: "records of an older log that was truncated here",
}


def row_findings(context: VerifyContext, walk: Walk, lookup: RowsLookup, lost: dict[int, list[str]]) -> list[Finding]:
    """Findings about the rows of a chunk; `lost` has by number of a damaged row the messages that queues have in it."""
    findings = joined_tails(_damage(context, walk, lookup, lost))
    rows, messages, rules = lookup.rows, lookup.messages, context.rules
    unknown = []
    if not rules.reads_v2:
        unknown.append(("of version 2", rows["magic"][messages] == commitlog.MAGIC_V2))
    if not rules.ipv6_hosts:
        unknown.append(("with IPv6 hosts", (rows["sys_flag"][messages] & system_flag.HOSTS_V6) != 0))
    for what, are_unknown in unknown:
        if are_unknown.any():
            count, first = int(are_unknown.sum()), rows[messages[are_unknown][0]]
            text = f"{count} records {what}, the first one ends the commit log for {rules.version}"
            findings.append(_at(context, NOT_READABLE_BY_VERSION, first, text, count=count))
    prepared = rows["prepared_transaction_offset"][messages]
    tombstones = prepared == TOMBSTONE
    for number in messages[tombstones].tolist():
        text = "a record that replaces a lost message"
        findings.append(_of_message(context, lookup, number, "commitlog.tombstone", text))
    # A half message lies before the record that ends its transaction; the other numbers come from clients,
    # which may send anything.
    impossible = ((prepared < 0) | (prepared > rows["physical_offset"][messages])) & ~tombstones
    for number in messages[impossible][:IMPLAUSIBLE_MAX].tolist():
        begin = int(rows["prepared_transaction_offset"][number])
        text = f"its transaction starts at {begin}, where no half message can be"
        # Brokers write 0 into a message of no transaction; what is right in another one nothing shows.
        is_plain = not int(rows["sys_flag"][number]) & system_flag.TRANSACTION_MASK
        right = {"expected": "0", "found": str(begin)} if is_plain else {"repair": None}
        findings.append(_of_message(context, lookup, number, "commitlog.doubtful-header", text, **right))
    return findings


def joined_tails(findings: Iterable[Finding]) -> list[Finding]:
    """Findings with one for each stale tail, however many rows and chunks it was read in."""
    joined, tail = list[Finding](), -1
    for piece in findings:
        if piece.id == FINDING_IDS[Verdict.STALE]:
            last = joined[tail] if tail >= 0 else piece
            length = last.length or 0
            if (last.physical_offset or 0) + length == piece.physical_offset:
                joined[tail] = replace(last, length=length + (piece.length or 0), count=last.count + piece.count)
                continue
            tail = len(joined)
        joined.append(piece)
    return joined


def _of_message(
    context: VerifyContext, lookup: RowsLookup, number: int, kind: str, text: str, **details: Any
) -> Finding:
    row = lookup.rows[number]
    queue = {"topic": lookup.topic(row), "queue_id": int(row["queue_id"]), "queue_offset": int(row["queue_offset"])}
    return _at(context, kind, row, text, **(queue | details))


def batch_offset_findings(
    context: VerifyContext, lookup: RowsLookup, expected: Iterable[QueueEntries]
) -> list[Finding]:
    """Records of batch queues whose header has another queue offset than their own property, which goes into the queue.

    A broker writes the same number to both (`BatchConsumeQueue#assignQueueOffset`), and dispatches by the property.
    """
    findings = []
    for entries in expected:
        if not entries.is_batch:
            continue
        numbers = np.searchsorted(lookup.rows["physical_offset"], entries.physical_offsets)
        wrong = lookup.rows["queue_offset"][numbers] != entries.queue_offsets
        for at in np.flatnonzero(wrong)[:IMPLAUSIBLE_MAX].tolist():
            base, head_offset = int(entries.queue_offsets[at]), int(lookup.rows["queue_offset"][numbers[at]])
            text = f"its header has queue offset {head_offset}, its property {INNER_BASE} says {base}"
            right = {"queue_offset": base, "expected": str(base), "found": str(head_offset)}
            findings.append(_of_message(context, lookup, int(numbers[at]), "commitlog.doubtful-header", text, **right))
    return findings


def time_findings(context: VerifyContext, lookup: RowsLookup, before_ms: int) -> list[Finding]:
    """Records whose store time does not fit between their neighbors'; before the chunk it is 0 without a record."""
    times = lookup.rows["store_timestamp_ms"][lookup.messages]
    if not len(times):
        return []
    around = np.concatenate([[before_ms or times[0]], times])
    findings = []
    first = lookup.rows[lookup.messages[0]]
    if times[0] == 0 and first["physical_offset"] == context.log_segment(int(first["physical_offset"])).start:
        text = "store time 0 in the first record of the file: recovery never starts at this file"
        findings.append(_at(context, "commitlog.store-time-regress", first, text, found="0"))
    for index in np.flatnonzero(np.diff(around) < -REGRESS_MARGIN_MS).tolist():
        before = int(around[index])
        # One record may be too new as well as the next too old; whoever does not fit to what lies around is meant.
        earlier = int(times[index - 2]) if index > 1 else before_ms
        # The record at `index` is no exception where what follows continues from it, below the one before it.
        rises = index + 1 < len(times) and times[index] <= times[index + 1] < times[index - 1]
        is_ahead = index > 0 and earlier <= times[index] and bool(rises)
        culprit = index - 1 if is_ahead else index
        time_ms, neighbor_ms = int(times[culprit]), int(times[index]) if is_ahead else before
        sides_ms = earlier if is_ahead else before, int(times[culprit + 1]) if culprit + 1 < len(times) else 0
        text = f"stored at {time_ms}, its neighbors at {neighbor_ms}"
        row = lookup.rows[lookup.messages[culprit]]
        of_time = _at(context, "commitlog.store-time-regress", row, text, found=str(time_ms))
        if not _is_damaged_time(time_ms, *sides_ms):
            text += ": the clock was set back, the field is damaged, or old records came back"
            of_time = replace(of_time, severity=Severity.NOTE, message=text)
        findings.append(of_time)
    return findings


def _is_damaged_time(time_ms: int, earlier_ms: int, later_ms: int) -> bool:
    """True if no clock shows a time: it is 0, or one flipped bit makes it fit between its neighbors.

    Neighbors that are far apart prove nothing: a flipped bit makes any time fit somewhere between them.
    """
    span = later_ms - earlier_ms
    return not time_ms or any(
        0 <= (time_ms ^ bit) - earlier_ms <= span and bit > FLIP_SPANS * span for bit in (1 << n for n in range(63))
    )


def _damage(context: VerifyContext, walk: Walk, lookup: RowsLookup, lost: dict[int, list[str]]) -> Iterator[Finding]:
    rows, flips_left = lookup.rows, FLIPS_MAX
    for number in np.flatnonzero(~lookup.good).tolist():
        row = rows[number]
        verdict = Verdict(int(row["verdict"]))
        if verdict == Verdict.MISSING_END_BLANK and not walk.split.source.size:
            continue  # a file of length 0 is a finding of its own, and has no room for a blank
        names = lost.get(number, [])
        if verdict == Verdict.SELF_OFFSET_MISMATCH:
            begin = int(row["physical_offset"])
            verdict = Verdict.STALE if are_copies(context, walk, begin, begin + int(row["size"])) else verdict
        text = _TEXTS[verdict]
        if names:
            more = f" and {len(names) - LOST_NAMED} more" if len(names) > LOST_NAMED else ""
            text += f"; the queues know of {', '.join(names[:LOST_NAMED])}{more}"
        details: dict[str, Any] = {"count": max(1, len(names))}
        if verdict == Verdict.BODY_CRC_MISMATCH and flips_left:
            flips_left -= 1
            details |= _flip(walk, row)
        yield _at(context, FINDING_IDS[verdict], row, text, **details)


def _flip(walk: Walk, row: Any) -> dict[str, Any]:
    """The flipped bit of a body, and the stored and the computed CRC."""
    judged: Row = walk.judge(int(row["physical_offset"]) - walk.split.physical_offset)
    if judged.verdict != Verdict.BODY_CRC_MISMATCH or judged.topic_length <= 0:
        return {}
    stored, computed = judged.body_crc & 0xFFFFFFFF, judged.computed_crc & 0xFFFFFFFF
    details: dict[str, Any] = {"expected": f"{stored:#010x}", "found": f"{computed:#010x}"}
    after_body = (2 if judged.magic == commitlog.MAGIC_V2 else 1) + judged.topic_length + 2 + judged.properties_length
    body_at = judged.size - after_body - judged.body_length
    body_position = int(row["physical_offset"]) - walk.split.physical_offset + body_at
    texts = []
    for flip in flipped_bits(stored, computed, judged.body_length):
        where = "the stored CRC" if flip.byte < 0 else f"file position {body_position + flip.byte}"
        texts.append(f"bit {flip.bit} of {where}")
    if texts:
        details["candidate"] = "one flipped bit: " + " or ".join(texts)
    return details


def _at(context: VerifyContext, kind: str, row: Any, message: str, **details: Any) -> Finding:
    physical_offset = int(row["physical_offset"])
    segment = context.log_segment(physical_offset)
    is_at_start = physical_offset == segment.start > context.store.commitlog[0].start
    if kind == FINDING_IDS[Verdict.MISSING_END_BLANK] and is_at_start:
        segment = context.log_segment(physical_offset - 1)  # what has no room for a blank is the file before
    return finding(
        kind,
        segment.path,
        message,
        file_position=physical_offset - segment.start,
        physical_offset=physical_offset,
        length=int(row["size"]),
        **details,
    )


_BLOCK: Final = 1 << 20


def are_copies(context: VerifyContext, walk: Walk, start: int, end: int) -> bool:
    """True if the log's last bytes, at physical offsets [start, end), are copies of other records of it.

    They may be cut: zeros in their ends, after the header, count as what did not arrive.
    """
    split = walk.split
    position, data_end = start - split.physical_offset, end - split.physical_offset
    if split.more_follows or last_data_end(split.source, data_end, split.source.size) > data_end:
        return False
    while position < data_end:
        row = walk.judge(position)
        is_elsewhere = row.verdict == Verdict.SELF_OFFSET_MISMATCH and row.topic_length > 0
        size = last_data_end(split.source, position, position + row.size) - position
        if not is_elsewhere or size < HEAD_SIZE or not _is_at(context, row.own_offset, split.source, position, size):
            return False
        position += row.size
    return True


def _is_at(context: VerifyContext, physical_offset: int, source: ByteSource, position: int, size: int) -> bool:
    """True if the log holds the same bytes at a physical offset."""
    segment = next(
        (candidate for candidate in context.store.commitlog if candidate.start <= physical_offset < candidate.end), None
    )
    if segment is None:
        return False
    there = physical_offset - segment.start
    try:
        with closing(context.open_file(segment.path)) as other:
            return all(
                read_range(source, position + at, min(_BLOCK, size - at))
                == read_range(other, there + at, min(_BLOCK, size - at))
                for at in range(0, size, _BLOCK)
            )
    except UnreadableError:
        return False
