"""Checks many splits of the log: one by one wherever a runner wants it, or with several threads on one large file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from rmqtool.scan.log import ScanOptions, reader_for, walk_split
from rmqtool.scan.runner import ThreadRunner
from rmqtool.scan.split import Split
from rmqtool.scan.splits import PART_BYTES, splits_of
from rmqtool.scan.walk import Walk
from rmqtool.verify.match.split_check import ChunkResult, check_chunk, check_split, merge_chunks
from rmqtool.verify.survey.context import VerifyContext
from rmqtool.verify.survey.result import SplitResult

PieceAt = tuple[Split, str]
"""A split, and the path of its file."""


@dataclass(frozen=True)
class SplitCheck:
    """The check of any split of the log, with all that it needs, so that a runner may send it elsewhere.

    Attributes:
        until: seconds since 1970 from which on no split is begun.
    """

    context: VerifyContext
    data_bytes: int
    scan: ScanOptions
    until: float | None

    def __call__(self, split: PieceAt) -> SplitResult | None:
        """The result of a split; None where the time was up before it was begun."""
        if self._is_late():
            return None
        try:
            return check_split(self.walk(split[0]), self.context, split[1])
        finally:
            split[0].source.close()

    def part(self, split: PieceAt) -> ChunkResult | None:
        """The result of a part of a split; None where the time was up before it was begun."""
        if self._is_late():
            return None
        try:
            return check_chunk(self.walk(split[0]), self.context, split[1])
        finally:
            split[0].source.close()

    def joined(self, split: PieceAt, parts: Sequence[ChunkResult]) -> SplitResult | None:
        """The result of a split of its parts; None where it has to be checked in one."""
        try:
            return merge_chunks(parts, self.walk(split[0]), self.context)
        finally:
            split[0].source.close()

    def walk(self, split: Split) -> Walk:
        """A walk over a split, not begun."""
        reader = reader_for(self.data_bytes, self.scan.compiled)()
        return walk_split(split, reader, self.scan)

    def _is_late(self) -> bool:
        return self.until is not None and time.time() >= self.until


def check_in_parallel(
    check: SplitCheck, splits: Sequence[PieceAt], threads: ThreadRunner, count: int | None
) -> Iterator[SplitResult | None]:
    """Results of splits, in order, the same as of a check one by one.

    A split whose parts meet anything to tell is checked again in one. Where that happens to all of a few files, the
    next ones are not cut, so that no store takes more than half as long again.

    Args:
        count: parts of each split; None leaves it to its size.
    """
    if count is None and (threads.threads == 1 or all(split.end < 2 * PART_BYTES for split, _ in splits)):
        yield from threads.map(check, splits)
        return
    cuts = True
    for at in range(0, len(splits), threads.threads):
        group = splits[at : at + threads.threads]
        parts = [splits_of(split, count=count) if cuts else [split] for split, _ in group]
        results = _first_results(check, group, parts, threads)
        again = [split for split, result in zip(group, results, strict=True) if result is None]
        cuts = not cuts or len(again) < len(group)
        whole = threads.map(check, again)
        for result in results:
            yield result if result is not None else next(whole)


def _first_results(
    check: SplitCheck, group: Sequence[PieceAt], parts: Sequence[Sequence[Split]], threads: ThreadRunner
) -> list[SplitResult | None]:
    """Results of splits that are cut as given; None for those that have to be checked again."""
    tasks: list[Callable[[], SplitResult | ChunkResult | None]] = []
    for split, cut in zip(group, parts, strict=True):
        tasks += [partial(check.part, (part, split[1])) for part in cut] if len(cut) > 1 else [partial(check, split)]
    done = threads.map(lambda task: task(), tasks)
    results: list[SplitResult | None] = []
    for split, cut in zip(group, parts, strict=True):
        split_results = list(islice(done, len(cut)))
        joinable = [each for each in split_results if isinstance(each, ChunkResult)]
        if len(cut) > 1:
            results.append(check.joined(split, joinable) if len(joinable) == len(cut) else None)
        else:
            results.append(split_results[0] if isinstance(split_results[0], SplitResult) else None)
    return results
