"""Where a part of a file begins: at the record at which the walk over the whole file passes its cut.

A part is scanned without the ones before it, so it has to find its first record itself. The first good record from the
cut on may lie inside the body of one that reaches over the cut, and after damage the walk over the whole file may go
on elsewhere. So a part looks back: it finds a record some way before the cut and walks up to it. A walk of good
records only is the walk over the whole file, unless somebody made a body of records that say they lie where they lie.
Where anything else is met, the file is walked from its start. The same is asked of the cut after the part, whose
record must be where the part's own walk ends: so each part proves the seam to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rmqtool.scan.log import ScanOptions, walk_split
from rmqtool.scan.rules import Verdict
from rmqtool.scan.split import Split
from rmqtool.scan.walk import RecordReader

PROOF_BYTES: Final = 4 << 20
"""How far before a cut the walk begins that proves it: as long as a broker lets a message be by default."""


def first_row_from(
    whole: Split,
    cut: int,
    make_reader: Callable[[], RecordReader],
    options: ScanOptions,
    proof_bytes: int = PROOF_BYTES,
) -> int:
    """File position of the first row at or after a cut, as the walk over the whole file has it.

    Args:
        whole: of the whole file, which is not the last one of the log that holds data: what lies after the log's end
            is told only from all that is before it.

    Returns:
        The file's size where no row begins after the cut.
    """
    if cut <= 0:
        return 0
    if cut > proof_bytes:
        before = replace(whole, start=cut - proof_bytes, end=cut, anchor=True)
        position = _end_of_walk(before, make_reader(), options, only_good=True)
        if position is not None:
            return position
    position = _end_of_walk(replace(whole, end=cut), make_reader(), options, only_good=False)
    return whole.source.size if position is None else position


def _end_of_walk(split: Split, reader: RecordReader, options: ScanOptions, *, only_good: bool) -> int | None:
    """Where the walk over a split ends; None where it has no row, or not only good ones though those are asked for."""
    walk, end = walk_split(split, reader, options), None
    for batch in walk.batches():
        last = batch.as_array()[-1]
        if only_good and (batch.as_array()["verdict"] != Verdict.GOOD).any():
            return None
        end = int(last["physical_offset"]) + int(last["size"]) - split.physical_offset
    return end
