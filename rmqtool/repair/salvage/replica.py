"""Another copy of the log, from which damage is filled: a replica's store, a backup, one file of either.

A log is replicated byte for byte, so the replica's bytes are the lost ones if they are records with the right CRC and
own offset, and if the replica holds the same records next to the damage as this log does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rmqtool.errors import NotAStoreError, UnreadableError
from rmqtool.formats import commitlog
from rmqtool.formats.commitlog import PHYSICAL_OFFSET_AT
from rmqtool.repair.salvage.damaged_ranges import DamagedRange, Neighbor
from rmqtool.scan.judge import judge_frame
from rmqtool.scan.log import ScanOptions
from rmqtool.scan.rules import Verdict
from rmqtool.scan.split import Split
from rmqtool.store.directory import survey
from rmqtool.store.source import ByteSource, FileSource, read_range
from rmqtool.store.view import open_directory

_PROBE: Final = commitlog.HEAD_SIZE


@dataclass(frozen=True)
class ReplicaFile:
    """One file of the other log, physical offsets [start, end); `place` is where it is on this machine."""

    place: Path
    start: int
    end: int


@dataclass(frozen=True)
class ReplicaBytes:
    """Good records of a replica, physical offsets [start, end)."""

    file: ReplicaFile
    start: int
    end: int

    def read(self) -> bytes:
        """Their bytes."""
        with FileSource.open(self.file.place) as source:
            data = read_range(source, self.start - self.file.start, self.end - self.start)
        if len(data) < self.end - self.start:
            raise UnreadableError(f"{self.file.place}: became shorter while it was read")
        return data


@dataclass(frozen=True)
class Replica:
    """One replica, by its name on the command line."""

    name: str
    files: tuple[ReplicaFile, ...]

    @classmethod
    def open(cls, path: Path) -> Replica:
        """A store, its commitlog directory, or one file of a log.

        Raises:
            NotAStoreError: it holds no file of a log.
            UnreadableError: it may not be read.
        """
        if path.is_dir():
            root = path.parent if path.name == "commitlog" else path
            files = tuple(
                ReplicaFile(root / segment.path, segment.start, segment.end)
                for segment in survey(open_directory(root)).commitlog
            )
        else:
            files = (_single(path),)
        if not files:
            raise NotAStoreError(f"{path}: holds no commit log file")
        return cls(str(path), files)

    def knows(self, neighbor: Neighbor, ours: bytes) -> bool | None:
        """True if the replica has the same record; None where its files do not reach there."""
        file = self._file(neighbor.physical_offset)
        if file is None:
            return None
        with FileSource.open(file.place) as source:
            theirs = read_range(source, neighbor.physical_offset - file.start, neighbor.size)
        return theirs == ours if any(theirs) else None

    def records(self, damaged: DamagedRange, options: ScanOptions) -> Iterator[ReplicaBytes]:
        """Runs of good records that lie in a damaged range, in order; an end-of-file blank counts where it fits."""
        file = self._file(damaged.start)
        if file is None:
            return
        limit = damaged.file_start + damaged.file_size if damaged.is_last else damaged.end
        with FileSource.open(file.place) as source:
            run: tuple[int, int] | None = None
            for start, end in self._good(source, file, damaged, options):
                if end > limit:
                    break
                if run is not None and run[1] == start and end - run[0] <= RUN_MAX:
                    run = run[0], end
                    continue
                if run is not None:
                    yield ReplicaBytes(file, *run)
                run = start, end
            if run is not None:
                yield ReplicaBytes(file, *run)

    def _good(
        self, source: ByteSource, file: ReplicaFile, damaged: DamagedRange, options: ScanOptions
    ) -> Iterator[tuple[int, int]]:
        filling = Split(
            source, damaged.start - file.start, min(damaged.end, file.end) - file.start, file.start, more_follows=True
        )
        for batch in replace(options, log_bytes=damaged.length).walk(filling).batches():
            for row in batch.as_rows():
                end = row.physical_offset + row.size
                is_blank = row.magic == commitlog.MAGIC_BLANK
                if row.verdict == Verdict.GOOD and (not is_blank or (damaged.reaches_file_end and end == damaged.end)):
                    yield row.physical_offset, end

    def _file(self, physical_offset: int) -> ReplicaFile | None:
        return next((file for file in self.files if file.start <= physical_offset < file.end), None)


RUN_MAX: Final = 64 << 20
"""Bytes of a replica's records that are copied together."""


def _single(path: Path) -> ReplicaFile:
    """One file of a log, whatever its name: its first record shows its start."""
    with FileSource.open(path) as source:
        head = read_range(source, 0, _PROBE)
        size = source.size
    verdict, _, magic = judge_frame(head, size) if len(head) >= _PROBE else (Verdict.BAD_SIZE, 0, 0)
    if verdict == Verdict.GOOD and magic != commitlog.MAGIC_BLANK:
        start = int.from_bytes(head[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big")
        return ReplicaFile(path, start, start + size)
    if path.name.isascii() and path.name.isdigit():
        return ReplicaFile(path, int(path.name), int(path.name) + size)
    raise NotAStoreError(f"{path}: not a commit log file, neither by content nor by name")
