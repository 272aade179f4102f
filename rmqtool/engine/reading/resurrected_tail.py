"""Finds records at the end of the log that came back: a broker truncated the log before them and left their bytes.

Broker: `MappedFileQueue#truncateDirtyFiles` only moves positions, in the log's last file. Once new records end exactly
where an old one begins, every start reads on into the old ones. All of them are sound, and their queue offsets may go
on without a gap; only their times are those of records that were written before the ones in front of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.formats import commitlog
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import STALE_MARGIN_MS, Batch

_CANDIDATES_MAX: Final = 4096
_COLUMNS: Final = ("end", "number", "store_timestamp_ms", "born_timestamp_ms", "newest_ms")


@dataclass(frozen=True)
class ResurrectedTail:
    """Records up to the end of the log that are older than the one before them.

    Attributes:
        begin, end: physical offsets of the first of them, and after the last one.
        record_count: of them.
        before_ms: store time of the record before them.
        newest_ms: store time of the newest of them.
    """

    begin: int
    end: int
    record_count: int
    before_ms: int
    newest_ms: int


def resurrected_tail(batches: Iterable[Batch]) -> ResurrectedTail | None:
    """The tail that came back, if there is one.

    The clocks of producers are others than the broker's: where only the broker's was set back, the messages after
    that were sent later all the same, and this is no old tail.

    Args:
        batches: of the log's last file that holds records.
    """
    candidates: NDArray[np.int64] = np.empty((len(_COLUMNS), 0), np.int64)
    count, end = 0, 0
    for batch in batches:
        rows = batch.as_array()
        rows = rows[(rows["verdict"] == Verdict.GOOD) & (rows["magic"] != commitlog.MAGIC_BLANK)]
        if not len(rows):
            continue
        stored, born = rows["store_timestamp_ms"], rows["born_timestamp_ms"]
        candidates = np.concatenate(
            [_still_newer(candidates, int(stored.max()), int(born.max())), _newer_than_the_rest(rows, count)], axis=1
        )[:, :_CANDIDATES_MAX]
        count += len(rows)
        end = int(rows[-1]["physical_offset"] + rows[-1]["size"])
    candidates = candidates[:, candidates[1] < count]
    if not candidates.size:
        return None
    begin, number, before_ms, _, newest_ms = candidates[:, 0].tolist()
    return ResurrectedTail(begin, end, count - number, before_ms, newest_ms)


def _still_newer(candidates: NDArray[np.int64], stored_ms: int, born_ms: int) -> NDArray[np.int64]:
    """The candidates that are newer than records with these newest times too."""
    kept = candidates[:, (candidates[2] - STALE_MARGIN_MS > stored_ms) & (candidates[3] > born_ms)]
    kept[4] = np.maximum(kept[4], stored_ms)
    return kept


def _newer_than_the_rest(rows: Any, count: int) -> NDArray[np.int64]:
    """The rows that are newer than all later ones of their batch; the last one is, for none is later.

    Args:
        count: messages before these rows.
    """
    stored, born = rows["store_timestamp_ms"].astype(np.int64), rows["born_timestamp_ms"].astype(np.int64)
    later_stored, later_born = (np.maximum.accumulate(times[::-1])[::-1][1:] for times in (stored, born))
    is_newer = np.append((stored[:-1] - STALE_MARGIN_MS > later_stored) & (born[:-1] > later_born), True)
    numbers = np.flatnonzero(is_newer)
    newest = np.append(later_stored, -1)[numbers]
    ends = (rows["physical_offset"] + rows["size"])[numbers]
    return np.stack([ends, numbers + count + 1, stored[numbers], born[numbers], newest]).astype(np.int64)
