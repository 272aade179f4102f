"""Good records of one log file as a broker version sees them, up to the place where its scan ends.

Broker: the loops of `CommitLog#recoverNormally`, `#recoverAbnormally` and `ReputMessageService#doReput`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.dispatch.queue_entries import RowBytes, Rows, batch_bytes
from rmqtool.forecast.record_check import Checked, RecordCheck
from rmqtool.formats import commitlog
from rmqtool.formats.system_flag import HOSTS_V6
from rmqtool.scan import columns
from rmqtool.scan.columns import row_dtype
from rmqtool.scan.log import ScanOptions, walk_split
from rmqtool.scan.row_columns import by_name
from rmqtool.scan.rules import Verdict
from rmqtool.scan.split import Split
from rmqtool.scan.walk import Batch, RecordReader, Walk
from rmqtool.store.source import ByteSource


class Records(NamedTuple):
    """Good records one after the other, with what dispatch needs of them.

    `own_offset` is there where a single record says that it lies elsewhere than it does: dispatch believes it.
    """

    rows: Rows
    topics: list[bytes]
    texts: RowBytes
    own_offset: int | None = None


@dataclass(frozen=True)
class FileEnd:
    """Why the scan of a file ended, and at which file position.

    Attributes:
        is_blank: at an end-of-file blank, so that the next file follows.
        size: for a record whose lengths disagree what it claims, else -1 (dispatch continues after it).
        verdict: what the judge says of the place; None for zeros after which the file holds nothing.
    """

    position: int
    is_blank: bool
    size: int
    verdict: Verdict | None


class FileScan:
    """Scans files from a position on.

    Args:
        make_reader: of the judge that suits the amount of data.
        plain: what is known of the files already, by scans of other versions.
    """

    def __init__(
        self,
        checker: RecordCheck,
        options: ScanOptions,
        make_reader: Callable[[], RecordReader],
        plain: PlainRecords | None = None,
    ) -> None:
        self.checker = checker
        self._options = options
        self._make_reader = make_reader
        self._plain = PlainRecords() if plain is None else plain

    def walk(self, source: ByteSource, position: int, file_start: int) -> Walk:
        """A walk over the rest of a file."""
        split = Split(source, position, source.size, file_start)
        return walk_split(split, self._make_reader(), self._options)

    def records(
        self, source: ByteSource, position: int, file_start: int, known: int = -1
    ) -> Generator[Records, None, FileEnd]:
        """Records from a file position on; the end is the generator's value.

        Args:
            file_start: physical offset of the file's first byte.
            known: records up to this physical offset may be skipped.

        Raises:
            LoadFailure: the broker runs out of memory over a record.
        """
        from_begin = position == 0
        last = self._plain.last(source.name, self._options)
        if from_begin and file_start <= last <= known:
            position = last - file_start  # the last of them is read again: its time is what a walk compares with
        while True:
            walk = self.walk(source, position, file_start)
            end, position = yield from self._run(walk, position, notes=from_begin)
            if end is not None:
                return end
            from_begin = False

    def _run(self, walk: Walk, position: int, *, notes: bool) -> Generator[Records, None, tuple[FileEnd | None, int]]:
        """Follow one walk until it ends, or until the broker continues elsewhere than the judge.

        Args:
            notes: whether nothing but plain records lies before it.
        """
        base = walk.split.physical_offset
        for batch in walk.batches():
            rows = batch.as_array()
            column = by_name(rows)
            next_index = 0
            odd = np.arange(rows.size) if self.checker.needs_record_crc else odd_rows(rows)
            plain_count = int(odd[0]) if odd.size else rows.size
            if notes and plain_count:
                self._plain.note(walk.split.source.name, self._options, int(column["physical_offset"][plain_count - 1]))
            notes = notes and not odd.size
            for index in self._doubtful(rows, odd):
                if index > next_index:
                    yield _records(batch, rows[next_index:index])
                position = int(column["physical_offset"][index]) - base
                checked = self.checker.check(walk, position)
                if not checked.success or checked.size == 0:
                    # The walk knows what lies around the place, and so calls it by a better name.
                    end_verdict = Verdict(int(column["verdict"][index])) or checked.verdict
                    return FileEnd(position, checked.success, checked.size, end_verdict), position
                yield _single(batch, checked)
                position += checked.size
                if int(column["size"][index]) != checked.size:
                    return None, position
                next_index = index + 1
            if next_index < rows.size:
                yield _records(batch, rows[next_index:])
                position = int(column["physical_offset"][-1] + column["size"][-1]) - base
        checked = self.checker.check(walk, position)
        verdict = None if _is_untouched(walk, position) else checked.verdict
        return FileEnd(position, is_blank=False, size=checked.size, verdict=verdict), position

    def _doubtful(self, rows: Rows, odd: NDArray[np.intp]) -> list[int]:
        """Numbers of the odd rows at which this broker may see something else than a good record."""
        if not odd.size:
            return []
        if self.checker.needs_record_crc:
            every: list[int] = odd.tolist()
            return every
        rows = rows[odd]
        doubtful: NDArray[np.bool_] = (rows["verdict"] != Verdict.GOOD) | (rows["magic"] == commitlog.MAGIC_BLANK)
        rules = self.checker.rules
        if not rules.reads_v2:
            doubtful |= rows["magic"] == commitlog.MAGIC_V2
        if not rules.ipv6_hosts:
            doubtful |= (rows["sys_flag"] & HOSTS_V6) != 0
        if rules.checks_inner_batch_numbers:
            doubtful |= (rows["features"] & columns.INNER_BATCH_NUMBERS) != 0
        numbers: list[int] = odd[doubtful].tolist()
        return numbers


def _records(batch: Batch, rows: Rows) -> Records:
    return Records(rows, batch.topics, batch_bytes(batch))


def _single(batch: Batch, checked: Checked) -> Records:
    assert checked.row is not None
    row = checked.row._replace(verdict=Verdict.GOOD)
    own_offset = row.own_offset if row.own_offset != row.physical_offset else None
    return Records(np.array([row], row_dtype()), batch.topics, batch_bytes(batch), own_offset)


def _is_untouched(walk: Walk, position: int) -> bool:
    """Whether nothing but zeros lies from a position to the file's end."""
    return position < walk.split.source.size and walk.outcome.data_end <= position


def odd_rows(rows: Rows) -> NDArray[np.intp]:
    """Numbers of the rows at which some version may see something else than a good record."""
    column = by_name(rows)
    odd = (column["verdict"] != Verdict.GOOD) | (column["magic"] != commitlog.MAGIC_V1)
    odd |= (column["sys_flag"] & HOSTS_V6) != 0
    odd |= (column["features"] & columns.INNER_BATCH_NUMBERS) != 0
    return np.flatnonzero(odd)


class PlainRecords:
    """How far the files of one log are known to begin with such records; any thread may ask and tell."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, tuple[int, ...], bool], int] = {}

    def last(self, name: str, options: ScanOptions) -> int:
        """Physical offset of the last such record of a file that is known; -1 without any."""
        return self._last.get(_key(name, options), -1)

    def note(self, name: str, options: ScanOptions, physical_offset: int) -> None:
        """Remember that a file holds nothing else up to the record that begins here."""
        self._last[_key(name, options)] = physical_offset


def _key(name: str, options: ScanOptions) -> tuple[str, tuple[int, ...], bool]:
    """What decides whether a record is good."""
    return name, tuple(options.delays_ms), options.record_crc
