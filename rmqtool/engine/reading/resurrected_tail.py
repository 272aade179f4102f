"""Finds records at the end of the log that came back: a broker truncated the log before them and left their bytes.

Broker: `MappedFileQueue#truncateDirtyFiles` only moves positions, in the log's last file. Once new records end exactly
where an old one begins, every start reads on into the old ones. All of them are sound, and their queue offsets may go
on without a gap; only their times are those of records that were written before the ones before them.

A clock that was set back leaves the same times. Only queue offsets that come a second time prove that old records came
back: a broker gives each once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.formats import commitlog
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.scan.row_columns import dispatched_rows
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import STALE_MARGIN_MS, Batch

_CANDIDATES_MAX: Final = 4096
_CLOCKS_APART_MS: Final = 86_400_000
"""Limit for the difference of a producer's clock and the broker's; times that differ by more are not a clock's."""
_COLUMNS: Final = 7
"""Of a candidate: where it ends, messages up to it, its store time, its producer's time, the newest store time after
it, and the store times of the messages before and after it; -1 where there is none."""


@dataclass(frozen=True)
class ResurrectedTail:
    """Records up to the end of the log that are older than the one before them.

    Attributes:
        begin, end: physical offsets of the first of them, and after the last one.
        record_count: of them.
        before_ms: store time of the record before them.
        newest_ms: store time of the newest of them.
        is_proven: whether one of them has a queue offset that a record before them has too. Else a clock that was set
            back explains them as well.
    """

    begin: int
    end: int
    record_count: int
    before_ms: int
    newest_ms: int
    is_proven: bool = False


def resurrected_tail(read: Callable[[], Iterable[Batch]]) -> ResurrectedTail | None:
    """The tail that came back, or one that looks like it; None without one.

    The clocks of producers are others than the broker's: where only the broker's was set back, the messages after
    that were sent later all the same, and this is no old tail. Where a producer's time is no clock's, it tells nothing.

    Args:
        read: reads the log's last file that holds records; a tail is read twice.
    """
    tail = _older_tail(read())
    return None if tail is None else replace(tail, is_proven=_repeats_offsets(read(), tail.begin))


def _repeats_offsets(batches: Iterable[Batch], begin: int) -> bool:
    """True if a queue continues, from a physical offset on, with an offset that it has had before.

    One that continues with 0 is that of a topic that was deleted and made again.
    """
    before: dict[tuple[bytes, int], int] = {}
    after: set[tuple[bytes, int]] = set()
    for batch in batches:
        rows = dispatched_rows(batch.as_array())
        is_later = rows["physical_offset"] >= begin
        for part, is_tail in ((rows[~is_later], False), (rows[is_later], True)):
            names = np.stack([part["topic_number"].astype(np.int64), part["queue_id"].astype(np.int64)], axis=1)
            # Of the rows before the tail the last one of each queue counts, after it the first one.
            ordered = slice(None) if is_tail else slice(None, None, -1)
            keys, numbers = np.unique(names[ordered], axis=0, return_index=True)
            offsets = part["queue_offset"][ordered][numbers]
            for (topic_number, queue_id), queue_offset in zip(keys.tolist(), offsets.tolist(), strict=True):
                queue = batch.topics[topic_number], queue_id
                if not is_tail:
                    before[queue] = queue_offset
                elif queue not in after:
                    after.add(queue)
                    if 0 < queue_offset <= before.get(queue, -1):
                        return True
    return False


def _older_tail(batches: Iterable[Batch]) -> ResurrectedTail | None:
    candidates: NDArray[np.int64] = np.empty((_COLUMNS, 0), np.int64)
    count, end, last_ms = 0, 0, -1
    for batch in batches:
        rows = batch.as_array()
        rows = rows[(rows["verdict"] == Verdict.GOOD) & (rows["magic"] != commitlog.MAGIC_BLANK)]
        if not len(rows):
            continue
        candidates[6][candidates[6] < 0] = rows["store_timestamp_ms"][0]
        stored_ms, born_ms = int(rows["store_timestamp_ms"].max()), int(rows["born_timestamp_ms"].max())
        still_newer = candidates[:, (candidates[2] - STALE_MARGIN_MS > stored_ms) & (candidates[3] > born_ms)]
        still_newer[4] = np.maximum(still_newer[4], stored_ms)
        newer = _newer_than_the_rest(rows, count, last_ms)
        candidates = np.concatenate([still_newer, newer], axis=1)[:, :_CANDIDATES_MAX]
        count += len(rows)
        end = int(rows[-1]["physical_offset"] + rows[-1]["size"])
        last_ms = int(rows[-1]["store_timestamp_ms"])
    for begin, number, before_ms, born_ms, newest_ms, earlier_ms, later_ms in candidates.T.tolist():
        if number == count:
            continue
        if born_ms == JAVA_LONG_MAX and any(
            max(0, earlier_ms) <= before_ms ^ 1 << bit <= later_ms for bit in range(63)
        ):
            continue  # one flipped bit explains a time that is newer than those around it
        return ResurrectedTail(begin, end, count - number, before_ms, newest_ms)
    return None


def _newer_than_the_rest(rows: Any, count: int, last_ms: int) -> NDArray[np.int64]:
    """Rows that are newer than all later ones of their batch, among them always the last one.

    Args:
        count: messages before these rows.
        last_ms: store time of the last of those.
    """
    stored, born = rows["store_timestamp_ms"].astype(np.int64), rows["born_timestamp_ms"].astype(np.int64)
    tells = np.abs(stored - born) < _CLOCKS_APART_MS
    later_stored, later_born = (np.maximum.accumulate(times[::-1])[::-1][1:] for times in (stored, born))
    is_stored_later, is_born_later = stored[:-1] - STALE_MARGIN_MS > later_stored, born[:-1] > later_born
    is_newer = np.append(is_stored_later & (is_born_later | ~tells[:-1]), True)
    numbers = np.flatnonzero(is_newer)
    newest = np.append(later_stored, -1)[numbers]
    ends = (rows["physical_offset"] + rows["size"])[numbers]
    # A time that is no clock's is newer than any.
    own = np.where(tells[numbers], born[numbers], JAVA_LONG_MAX)
    before, after = np.append(last_ms, stored[:-1])[numbers], np.append(stored[1:], -1)[numbers]
    return np.stack([ends, numbers + count + 1, stored[numbers], own, newest, before, after]).astype(np.int64)
